# SPDX-License-Identifier: Apache-2.0
"""What the next iteration will ask for, so that it may be fetched before this one is over.

Everything is drawn from copies of the generators, as they will be when this iteration has ended.
Invariant: nothing that anybody else sees is drawn from or written to, and nothing that is foreseen
is handed out but in the place of what the next iteration has asked for itself. So a caller that
draws meanwhile, or sets another epoch, costs what was fetched in vain.
"""

import collections
import copy

import torch
from torch.utils.data import (RandomSampler, SequentialSampler, SubsetRandomSampler,
                              WeightedRandomSampler)
from torch.utils.data.distributed import DistributedSampler

WAIT_MAX = 63  # iterations that are let pass, at most, after some that were foreseen wrongly

_DRAWING = (SubsetRandomSampler, WeightedRandomSampler, RandomSampler)
_FIXED = (SequentialSampler, list, tuple, range)


def draw(generator=None):
    """A seed as torch's loaders and samplers draw one."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def has_foresight(sampler, generator):
    """Whether what a sampler of single samples gives next can be known without running it.

    generator: the loader's. A class that is derived may draw as it likes.
    """
    used = [one for one in (generator, getattr(sampler, "generator", None)) if one is not None]
    if not all(isinstance(one, torch.Generator) and one.device.type == "cpu" for one in used):
        return False
    return type(sampler) in (*_DRAWING, *_FIXED, DistributedSampler)


class Foresight:
    """The iteration that follows: its base seed, and its batches' indices one by one."""

    def __init__(self, order, generator, base, ended, luck):
        """generator: the loader's; base: None where the next iteration draws one of its own.
        ended: (a generator, a copy of it as it will be) or None; luck: a Luck to be told."""
        self._order, self._generator, self._luck = order, generator, luck
        self._copies = {}
        if ended is not None:
            self._copies[ended[0]] = ended[1]
        self._copy_of(None), self._copy_of(generator)
        self._copy_of(getattr(order.sampler, "generator", None))
        self.base = draw(self._copy_of(generator)) if base is None else base
        self._batches = self._foresee()

    def _copy_of(self, generator):
        """The copy of a generator, of torch's default one for None."""
        if generator not in self._copies:
            now = torch.get_rng_state() if generator is None else generator.get_state()
            self._copies[generator] = torch.Generator()
            self._copies[generator].set_state(now)
        return self._copies[generator]

    def _foresee(self):
        sampler = self._order.sampler
        kind = type(sampler)
        if kind is DistributedSampler:
            sampler = copy.copy(sampler)
            sampler.epoch += 1
        elif kind is RandomSampler and sampler.generator is None:
            sampler = copy.copy(sampler)
            sampler.generator = torch.Generator()
            sampler.generator.manual_seed(draw(self._copy_of(None)))
        elif kind in _DRAWING:
            own = self._copy_of(sampler.generator)
            sampler = copy.copy(sampler)
            sampler.generator = own
        yield from self._order.over(sampler)

    def take(self):
        """The next batch's indices. StopIteration at the end, or where the sampler fails: the real
        one will say so."""
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except Exception:
            raise StopIteration from None

    def came(self, is_true):
        """The iteration that was foreseen is there: whether it was this one."""
        self._luck.told(is_true)


class Luck:
    """Whether it is worth it to foresee: where it was wrong, ever more iterations are let pass.

    A program that draws from a generator between iterations, or sets epochs in an order of its own,
    mostly does so each time.
    """

    def __init__(self):
        self._n_wait = self._penalty = 0

    def may_try(self):
        """Asked once for each iteration."""
        if self._n_wait == 0:
            return True
        self._n_wait -= 1
        return False

    def told(self, is_true):
        self._penalty = 0 if is_true else min(WAIT_MAX, 2 * self._penalty + 1)
        self._n_wait = self._penalty


class Ahead:
    """What has been begun of an iteration and, where its order has ended, of the next one.

    What is foreseen becomes part of the next iteration item by item, as its own order asks for the
    same; at the first difference the rest of it is forgotten.
    """

    def __init__(self, forget):
        """forget(items): they are of no iteration."""
        self.forget = forget
        self.ready = collections.deque()  # (index, item) of the iteration, not handed out
        self.foreseen = collections.deque()  # the same of the next one
        self.foresight = self.came = None
        self.indices = self.foresee = self.failure = None
        self.has_ended = True

    def begin(self, indices, foresee, first, base=None):
        """A new iteration, from its batch first on. Returns whether something that was foreseen
        may be of it, which with another base it is not."""
        self.indices, self.foresee, self.number = indices, foresee, first
        self.has_ended, self.failure = False, None
        self.came, self.foresight = self.foresight, None
        if self.came is not None and self.foreseen and first == 0 and \
                base in (None, self.came.base):
            return True
        self._refute()
        return False

    def fill(self, depth, start):
        """Takes indices until depth items have been begun, of the next iteration too. What a
        sampler raises is raised behind what it has given.

        start(index, number, foresight): begins a batch and returns what it is known by; foresight
        is None for the iteration's own.
        """
        while len(self.ready) < depth and not self.has_ended:
            try:
                index = self.indices.take()
            except StopIteration:
                self.has_ended = True
            except Exception as error:
                self.has_ended, self.failure = True, error
            else:
                self.ready.append((index, self._item(index, start)))
                self.number += 1
        if self.has_ended and self.failure is None and self.indices.limit is None:
            self._look_beyond(depth - len(self.ready), start)

    def _item(self, index, start):
        if self.came is None:
            return start(index, self.number, None)
        if self.foreseen[0][0] != index:
            self._refute()
            return start(index, self.number, None)
        item = self.foreseen.popleft()[1]
        if not self.foreseen:  # whatever comes now, it was worth it
            self.came.came(True)
            self.came = None
        return item

    def _refute(self):
        if self.came is not None:
            self.came.came(False)
        self.give_up()

    def give_up(self):
        """Of the next iteration nothing is known any more."""
        self.came = self.foresight = None
        self.forget([item for _, item in self.foreseen])
        self.foreseen.clear()

    def _look_beyond(self, count, start):
        if self.came is not None:  # this one is shorter than it was foreseen
            self._refute()
        if self.foresee is not None:
            foresee, self.foresee = self.foresee, None
            self.foresight = foresee(self.indices)
        while self.foresight is not None and len(self.foreseen) < count:
            try:
                index = self.foresight.take()
                item = start(index, len(self.foreseen), self.foresight)
            except (StopIteration, RuntimeError, OSError):  # what has failed is told in its turn
                return
            self.foreseen.append((index, item))

    def restart(self):
        """Drops what is ready: the order has something else in its place."""
        self.give_up()
        self.number -= len(self.ready)
        self.ready.clear()
        self.has_ended = False

    def add(self, index, start):
        """Begins what an order has given otherwise."""
        self.ready.append((index, start(index, self.number, None)))
        self.number += 1

    def end(self):
        """Raises what the order has ended by."""
        failure, self.failure = self.failure, None
        raise failure or StopIteration

    def rest(self):
        """The iteration is over; if it was broken off, nothing is foreseen."""
        if self.ready or not self.has_ended:
            self.give_up()
        self.ready.clear()
        self.indices = self.foresee = None
