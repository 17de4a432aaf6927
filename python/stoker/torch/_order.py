# SPDX-License-Identifier: Apache-2.0
"""The order of a run, as torch would draw it, and how far ahead it may be taken.

Invariant: what is handed out, and what is drawn from a generator that others see, is what torch's
own loader would have handed out and drawn by then. So a sampler is run for real; what differs is
when. A sampler that touches nothing shared after its first step (ENTIRE) is run ahead as far as
somebody wants. One that draws from the caller's generator is run ahead on a copy of it and, for
real, in torch's own step. One that is not known is run no further ahead than torch would run it.
"""

import collections
import copy
import itertools

import torch
from torch.utils.data import (BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler,
                              WeightedRandomSampler)
from torch.utils.data.distributed import DistributedSampler

from stoker.torch._foresight import draw

SEQUENTIAL, DISTRIBUTED, RANDOM = "sequential", "distributed", "random"
GENERATOR, LISTED, UNKNOWN = "generator", "listed", "unknown"

ENTIRE = None  # as a limit: everything may be taken ahead

HORIZONS = {UNKNOWN: "num_workers * prefetch_factor batches"}  # else it is the epoch


def kind_of(sampler):
    """Which kind a sampler of single samples is. A class that is derived may draw as it likes."""
    kind = type(sampler)
    if kind is SequentialSampler:
        return SEQUENTIAL
    if kind is DistributedSampler:
        return DISTRIBUTED
    if kind is RandomSampler:
        return RANDOM if sampler.generator is None else GENERATOR
    if kind in (SubsetRandomSampler, WeightedRandomSampler, list, tuple, range):
        return LISTED
    return LISTED if getattr(sampler, "stoker_listable", False) else UNKNOWN


class Order:
    """A loader's index sampler: what it is asked for, epoch by epoch."""

    def __init__(self, index_sampler, ahead):
        """ahead: batches that torch's loader would have drawn before the first is handed out."""
        self.index_sampler = index_sampler
        self.ahead = ahead
        self.is_batched = type(index_sampler) is BatchSampler
        self.sampler = index_sampler.sampler if self.is_batched else index_sampler
        self.kind = kind_of(self.sampler)
        if not self.is_batched and self.kind == RANDOM:
            self.kind = LISTED  # as it is: without batches there is nothing around to rebuild

    @property
    def horizon(self):
        return HORIZONS.get(self.kind, "the epoch")

    def begin(self, saved=None):
        """An iteration's Indices. saved: what state() of an earlier one said, to go on there."""
        if saved is not None and not saved["is_primed"]:
            saved = None  # nothing had been drawn
        kind = {RANDOM: _Seeded, GENERATOR: _Followed, UNKNOWN: _Stepped}.get(self.kind, Indices)
        return kind(self, saved)

    def over(self, sampler):
        """The index sampler over another sampler of single samples."""
        if not self.is_batched:
            return sampler
        return BatchSampler(sampler, self.index_sampler.batch_size, self.index_sampler.drop_last)


class Indices:
    """The batches of one iteration, as indices.

    prime() is called where torch would begin to draw, take() by whoever fetches ahead, and
    hand_out() once a batch, when the caller asks for it.
    """

    limit = ENTIRE  # batches that may be taken beyond those handed out
    is_primed = False

    def __init__(self, order, saved):
        self.order = order
        self.saved = saved
        self.rng = None
        self.own_rng = None
        self.iterator = None
        if saved is None:
            # Like torch: a sampler whose __iter__ is no generator function does its work here.
            self.iterator = self.start()

    def start(self):
        return iter(self.order.index_sampler)

    def prime(self):
        """Draws what torch draws with the first batch. For saved ones nothing is left to draw."""
        self.is_primed = True
        if self.order.kind in (SEQUENTIAL, DISTRIBUTED):  # nothing that others see is drawn
            if self.saved is not None:
                self.iterator = _skip(self.start(), self.saved["step"])
        elif self.saved is not None:
            self.iterator = self._again()
        else:
            self.rng = torch.get_rng_state()
            self.own_rng = _state_of(getattr(self.order.sampler, "generator", None))

    def _again(self):
        """Runs the sampler again as it ran, leaving the generators as they are now."""
        generator = getattr(self.order.sampler, "generator", None)
        own_now = _state_of(generator)
        self.rng, self.own_rng = self.saved["rng"], self.saved.get("own_rng")
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.rng)
            if generator is not None and self.own_rng is not None:
                generator.set_state(self.own_rng)
            iterator = _skip(self.start(), self.saved["step"])
            first = list(itertools.islice(iterator, 1))  # what is drawn lazily is drawn in here
        if generator is not None:
            generator.set_state(own_now)
        return itertools.chain(first, iterator)

    def take(self):
        """The next batch's indices. StopIteration at the end."""
        return next(self.iterator)

    def hand_out(self, index):
        """None, or another index in whose place this one was fetched in vain."""

    def end(self):
        """The caller has asked beyond the last batch."""

    def ended(self):
        """Once take() has ended: None where the generators are as they will be at the end, else
        one that is not and a copy that is."""

    def state(self):
        """What begin() needs to be here again; the step is added by the loader."""
        state = {} if self.rng is None else {"rng": self.rng, "own_rng": self.own_rng}
        return dict(state, is_primed=self.is_primed)


class _Seeded(Indices):
    """RandomSampler without a generator: everything follows from one seed that it draws."""

    seed = None

    def start(self):
        return None

    def prime(self):
        self.is_primed = True
        self.seed = draw() if self.saved is None else self.saved["seed"]
        sampler = copy.copy(self.order.sampler)
        sampler.generator = torch.Generator()
        sampler.generator.manual_seed(self.seed)
        self.iterator = iter(self.order.over(sampler))
        if self.saved is not None:
            self.iterator = _skip(self.iterator, self.saved["step"])

    def state(self):
        return {"seed": self.seed, "is_primed": self.is_primed}


class _Followed(Indices):
    """RandomSampler with the caller's generator: taken from a copy, followed by the real one.

    The real sampler is as far ahead as torch's would be. Where the caller draws from the generator
    meanwhile the two part; from there on the real one alone counts.
    """

    real = None
    has_parted = False

    def start(self):
        self.real = iter(self.order.index_sampler)
        self.ready = collections.deque()
        return None

    def prime(self):
        self.is_primed = True
        generator = self.order.sampler.generator
        if self.saved is not None:
            self.start()
            generator.set_state(self.saved["own_rng"])
        self.own_rng = generator.get_state()
        sampler = copy.copy(self.order.sampler)
        sampler.generator = self.copy = torch.Generator()
        self.copy.set_state(self.own_rng)
        self.iterator = iter(self.order.over(sampler))
        n_done = 0 if self.saved is None else self.saved["step"]
        self.iterator = _skip(self.iterator, n_done)
        self._draw(n_done + self.order.ahead)
        for _ in range(n_done):
            self.ready.popleft()

    def _draw(self, count):
        self.ready.extend(itertools.islice(self.real, count))

    def take(self):
        if not self.has_parted:
            return next(self.iterator)
        if not self.ready:
            self._draw(1)
        if not self.ready:
            raise StopIteration
        return self.ready.popleft()

    def hand_out(self, index):
        if self.has_parted:
            return None
        self._draw(1)
        real = self.ready.popleft() if self.ready else None
        if real == index or real is None:
            return None
        self.has_parted = True
        self.limit = max(1, self.order.ahead)
        return real

    def end(self):
        self._draw(1)  # what a sampler draws behind its last batch

    def ended(self):
        return None if self.has_parted else (self.order.sampler.generator, self.copy)

    def state(self):
        return {"own_rng": self.own_rng, "is_primed": self.is_primed}


class _Stepped(Indices):
    """A sampler that is not known: taken as torch takes it."""

    def __init__(self, order, saved):
        super().__init__(order, saved)
        self.limit = max(1, order.ahead)


def _skip(iterator, count):
    next(itertools.islice(iterator, count, count), None)
    return iterator


def _state_of(generator):
    return generator.get_state() if isinstance(generator, torch.Generator) else None
