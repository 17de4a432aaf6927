# SPDX-License-Identifier: Apache-2.0
"""DataLoader: torch's constructor over Stoker's supplies.

A loader has an order (_order.py), which says what comes, and supplies (_supply.py, _streams.py),
which fetch it. An iteration borrows a supply for as long as it lasts, so that two of them at once
are as independent as torch's.
"""

import os
import time
import warnings
import weakref

import torch

import stoker
from stoker.torch import _arguments, _decoders, _order
from stoker.torch._extents import Extents, has_extents
from stoker.torch._fetch import Fetch, default_collate, is_thread_safe
from stoker.torch._files import Files, Listed, Ordered, Steps
from stoker.torch._foresight import Foresight, Luck, has_foresight
from stoker.torch._images import Folder, is_folder
from stoker.torch._processes import Processes
from stoker.torch._streams import Decoded, Direct
from stoker.torch._supply import Inline, Window
from stoker.torch._threads import Threads

STATE_VERSION = 1
THREADS_MAX = 8  # where nothing says how many
BORROW_MAX = 4
# Processes take some two seconds to begin. Two threads lose less by sharing Python's lock than that
# is worth (pictures, two processors: 0.88 of torch's rate, by processes 0.94), many lose far more.
PROCESSES_FROM = 4
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class DataLoader:
    """torch.utils.data.DataLoader's arguments and order, and Stoker's reading ahead.

    dataset is a path (or URI) of anything that stoker.Dataset reads, a stoker.Dataset (with its
    engine), torchvision's ImageFolder or DatasetFolder, or any map-style data set, whose bytes are
    read by Stoker if it has stoker_extent(i) and stoker_decode(i, content). A path gives
    batches [x, y], or x without labels: x is a tensor of shape (batch, ...) over the loader's own
    memory where samples have one shape, else a list of uint8 tensors; y is int64. A data set with
    an attribute stoker_thread_safe = True is asked by threads, and one with stoker_constant = True
    also for samples of the next epoch, where its order can be foreseen.

    An order that follows from a generator (shuffle=True without seed) is known to the end of the
    next epoch at most; by seed, or a DistributedSampler, it is known for the whole run.

    Beyond torch's arguments:

    epochs          how many iterations there will be, for what is kept in the tiers; more may come
    seed            the order is DistributedSampler's with this seed over world and rank, and every
                    iteration is the next epoch (set_epoch() names another)
    world, rank     ranks and which of them this is; default: torch.distributed's
    tiers           "ram:32G ssd:/local/cache:200G": where samples are kept; default: the system's
                    page cache
    cache_dir       where an index goes whose data set lies in a read-only place
    engine          a stoker.Engine to share, instead of tiers and cache_dir
    data_options    arguments of stoker.Dataset for a path, such as {"record_bytes": 3072}
    stream_options  arguments of stoker.Loader, such as {"staging_bytes": 1 << 30}
    transform_seed  "sample": random transforms depend on the epoch's seed and the sample alone.
                    "worker": worker processes are seeded as torch seeds them.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None,
                 num_workers=0, collate_fn=None, pin_memory=False, drop_last=False, timeout=0,
                 worker_init_fn=None, multiprocessing_context=None, generator=None, *,
                 prefetch_factor=None, persistent_workers=False, pin_memory_device="",
                 in_order=True, epochs=None, seed=None, tiers=None, cache_dir=None, world=None,
                 rank=None, engine=None, data_options=None, stream_options=None,
                 transform_seed="sample"):
        given = dict(locals())
        _arguments.check_workers(given)
        _arguments.check_dataset(dataset)
        _arguments.check_order(given)
        self.num_workers, self.timeout, self.generator = num_workers, timeout, generator
        self.prefetch_factor = _arguments.prefetch_factor(prefetch_factor, num_workers)
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order, self.epochs, self.transform_seed = in_order, epochs, transform_seed
        self.tiers, self.cache_dir, self.stream_options = tiers, cache_dir, stream_options
        self._engine, self._data_options = engine, data_options
        self._why = None  # why a folder's files are not read by Stoker
        self._why_threads = None  # why processes do not decode them
        self._files = self._open(dataset)
        given["stored"] = _arguments.is_stored(dataset)
        if given["stored"]:
            given["dataset"] = self._files
        self.dataset = given["dataset"]
        self.sampler, self.batch_sampler, self._is_own = _arguments.make_samplers(given)
        self.batch_size = None if batch_sampler is not None else batch_size
        self.drop_last = drop_last
        self.persistent_workers = persistent_workers
        self.collate_fn = collate_fn or self._default_collate()
        self._order = _order.Order(self._index_sampler, num_workers * (self.prefetch_factor or 0))
        self._luck = Luck()
        self._can_pin = self._check_pin()
        self._idle = []
        self._told = [0, 0]  # batches handed out, nanoseconds in which they were waited for
        # They import torch meanwhile: the first iteration need not wait for that.
        self._team = _decoders.Team(num_workers) if self._wants_team() else None
        self._next_epoch = 0
        self._base = self._saved = self._position = None
        self._is_made = True

    def __setattr__(self, name, value):
        if name in _FIXED and getattr(self, "_is_made", False):
            raise ValueError(f"{name} of a {type(self).__name__} cannot be changed once it is made")
        super().__setattr__(name, value)

    # ---- what it is made of -----------------------------------------------------------

    def _open(self, dataset):
        """The data set as Stoker's own reads it, or None."""
        is_stored = _arguments.is_stored(dataset)
        is_listed = not is_stored and has_extents(dataset)
        if not is_stored and (not (is_listed or is_folder(dataset)) or
                              self._wants_torchs_values()):
            return None
        if self._engine is None:
            if isinstance(dataset, stoker.Dataset):
                raise TypeError("a stoker.Dataset comes with its engine: give engine=")
            self._engine = stoker.Engine(self.tiers, cache_dir=self.cache_dir,
                                         buffered=self.tiers is None)
        elif self.tiers is not None or self.cache_dir is not None:
            raise ValueError("tiers and cache_dir are the engine's; leave them out beside engine")
        if is_stored:
            return Files(self._engine, dataset, self._data_options)
        if is_listed:
            return Extents(self._engine, dataset)
        try:
            folder = Folder(self._engine, dataset, self._data_options)
            self._why = folder.differs()
        except stoker.Error as error:
            self._why = str(error)
        return None if self._why else folder

    def _wants_torchs_values(self):
        return self.transform_seed == "worker" and self.num_workers > 0

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _default_collate(self):
        if type(self._files) is Files and self._auto_collation:
            return self._files.collate
        return default_collate(self._auto_collation)

    def _check_pin(self):
        if not self.pin_memory:
            return False
        if torch.cuda.is_available() or self.pin_memory_device:
            return True
        warnings.warn("pin_memory is set and there is no accelerator: memory is not pinned",
                      stacklevel=3)
        return False

    # ---- supplies ---------------------------------------------------------------------

    def _n_threads(self):
        return self.num_workers or min(THREADS_MAX, len(os.sched_getaffinity(0)))

    def _take_supply(self):
        return self._idle.pop() if self._idle else self._make_supply()

    def _make_supply(self):
        if self._files is not None and self._order.is_batched:
            stream = self._make_stream()
            if type(self._files) is Files:
                own = None if self.collate_fn == self._files.collate else self.collate_fn
                return Direct(self._files, stream, own, self._borrow_max())
            team, self._team = self._team, None
            if team is None and self._wants_team():
                team = _decoders.Team(self.num_workers)
            return Decoded(self._files, stream, self.collate_fn, self._n_threads(), self.timeout,
                           team, self.worker_init_fn)
        dataset = self._files if self._files is not None else self.dataset
        fetch = Fetch(dataset, self.collate_fn, self._auto_collation)
        if self.num_workers == 0 and not getattr(dataset, "stoker_thread_safe", False):
            return Inline(fetch)
        if is_thread_safe(dataset) and not self._wants_torchs_values():
            return Window(Threads(fetch, self._n_threads()), self.timeout)
        return Window(Processes(fetch, self.num_workers, {
            "prefetch_factor": self.prefetch_factor, "worker_init_fn": self.worker_init_fn,
            "persistent_workers": self.persistent_workers or self._looks_beyond(),
            "is_keyed": self.transform_seed == "sample"}), self.timeout)

    def _wants_team(self):
        """Whether worker processes decode what Stoker reads."""
        if not isinstance(self._files, Folder) or not self._order.is_batched or \
                self.num_workers == 0 or getattr(self.dataset, "stoker_thread_safe", False):
            return False
        if self.multiprocessing_context is None and self.num_workers < PROCESSES_FROM:
            return False
        try:
            _decoders.pack(self._files, self.collate_fn, self.worker_init_fn)
        except TypeError as error:
            self._why_threads = str(error)
            return False
        return True

    def _looks_beyond(self):
        """Whether samples of the next epoch may be fetched in this one, if it is foreseen."""
        if not has_foresight(self._order.sampler, self.generator):
            return False
        if self._files is not None and self._order.is_batched:
            return True  # bytes alone are read ahead
        is_anew = self.worker_init_fn is not None and not self.persistent_workers
        return bool(getattr(self.dataset, "stoker_constant", False)) and not is_anew and \
            not self._wants_torchs_values()

    def _foresee(self, indices):
        """What begins after indices, which have ended; None where nothing says."""
        is_last = self.epochs is not None and self._next_epoch >= self.epochs
        if is_last or not self._looks_beyond() or not self._luck.may_try():
            return None
        is_kept = self.persistent_workers and self.num_workers > 0
        return Foresight(self._order, self.generator, self._base if is_kept else None,
                         indices.ended(), self._luck)

    def _borrow_max(self):
        n_decoding = 0 if type(self._files) is Files else min(62, self._n_threads()) + 1
        return (self.stream_options or {}).get("borrow_max", max(BORROW_MAX, n_decoding))

    def _make_stream(self):
        sampler, batches = self._order.sampler, self._order.index_sampler
        options = dict({"borrow_max": self._borrow_max()}, **(self.stream_options or {}))
        n_samples = len(self._files)
        if self._order.kind == _order.SEQUENTIAL and len(sampler.data_source) == n_samples:
            order = {"kind": "sequential"}
        elif self._order.kind == _order.DISTRIBUTED and len(sampler.dataset) == n_samples:
            order = {"seed": sampler.seed, "world": sampler.num_replicas, "rank": sampler.rank,
                     "shuffle": sampler.shuffle, "drop_uneven": sampler.drop_last,
                     "legacy_torch": _arguments.VERSION < (2, 6)}
        else:
            return Listed(self._files, batches.batch_size, options)
        return Ordered(self._files, order, batches.batch_size, batches.drop_last, self.epochs,
                       options)

    # ---- iterations -------------------------------------------------------------------

    def __len__(self):
        return len(self._index_sampler)

    def __iter__(self):
        saved, self._saved = self._saved, None
        epoch = self._enter_epoch()
        if saved is not None and saved["epoch"] != epoch:
            saved = None  # the caller has chosen another one since
        supply = self._take_supply()
        stream = getattr(supply, "stream", None)
        step = saved["step"] if saved else 0
        if isinstance(stream, Ordered):
            indices = Steps(epoch, step, stream.n_steps)
        else:
            indices = self._order.begin(saved)
        base = self._draw_base(saved)
        position = _Position(epoch, step, base, indices)
        self._position = position
        is_first = not getattr(supply, "has_begun", False)
        supply.has_begun = True
        supply.begin(indices, base, is_first, step, _weakly(self._foresee))
        return _Iterator(self, supply, position)

    def _enter_epoch(self):
        if self._is_own:
            self.sampler.set_epoch(self._next_epoch)
        epoch = self._next_epoch
        if self._order.kind == _order.DISTRIBUTED:
            epoch = self._order.sampler.epoch
        self._next_epoch = epoch + 1
        return epoch

    def _draw_base(self, saved):
        """The seed that torch draws for workers when an iteration begins, or has drawn."""
        if saved is not None:
            self._base = saved["base_seed"]
        elif self._base is None or not (self.persistent_workers and self.num_workers > 0):
            self._base = _order.draw(self.generator)
        return self._base

    def set_epoch(self, epoch):
        """The next iteration is that epoch, of the order's or of the sampler's."""
        self._next_epoch = epoch
        if not self._is_own and hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    # ---- positions --------------------------------------------------------------------

    def _identity(self):
        sampler = self.sampler
        world = sampler.num_replicas if self._order.kind == _order.DISTRIBUTED else 1
        size = getattr(self.batch_sampler, "batch_size", None)
        samples = len(self.dataset) if hasattr(self.dataset, "__len__") else None
        return {"version": STATE_VERSION, "order": self._order.kind, "samples": samples,
                "global_batch": size * world if isinstance(size, int) else None}

    def state_dict(self):
        """Where the latest iteration is, as a dictionary of numbers and tensors: the batches that
        have been handed out, whatever has been fetched beyond them."""
        state = dict(self._identity(), epoch=self._next_epoch, step=0, base_seed=None, is_over=True)
        position = self._position
        if self._saved is not None:
            return dict(self._saved)
        if position is not None and not position.is_over:
            state.update(epoch=position.epoch, step=position.step, base_seed=position.base,
                         is_over=False, **position.indices.state())
        for name, generator in self._generators():
            state[name] = generator.get_state()
        return state

    def _generators(self):
        """The caller's, by their names in a state."""
        found = {"generator": self.generator,
                 "sampler_generator": getattr(self._order.sampler, "generator", None)}
        return [(name, one) for name, one in found.items() if isinstance(one, torch.Generator)]

    def load_state_dict(self, state):
        """The next iteration goes on where a state was taken: behind its last batch."""
        for name, own in self._identity().items():
            if state.get(name) != own:
                raise ValueError(f"the state is of another loader: its {name} is "
                                 f"{state.get(name)!r}, this one's {own!r}")
        for name, generator in self._generators():
            if state.get(name) is not None:
                generator.set_state(state[name])
        self._next_epoch = state["epoch"]
        self._position = None
        self._saved = None if state["is_over"] else dict(state)
        if self._saved is not None and self._order.kind == _order.DISTRIBUTED:
            self._order.sampler.set_epoch(state["epoch"])

    # ---- what it says -----------------------------------------------------------------

    def stats(self):
        """What it has done: batches, waited_ns and, where Stoker reads, what the streams say."""
        told = {"batches": self._told[0], "waited_ns": self._told[1]}
        for supply in self._idle + ([self._position.supply()] if self._position else []):
            loader = getattr(getattr(supply, "stream", None), "loader", None)
            if loader is not None:
                told["stream"] = loader.stats()
        return told

    def explain(self):
        """In words: where samples come from, and how far ahead the order is known."""
        supply = self._take_supply()
        self._idle.append(supply)
        how = {Inline: "fetched when asked for, in the caller's thread",
               Direct: "read by Stoker", Decoded: "read by Stoker, decoded by threads"}
        what = how.get(type(supply))
        if getattr(supply, "team", None) is not None:
            what = f"read by Stoker, decoded by {self.num_workers} processes"
        if what is None:
            what = f"fetched ahead by {supply.workers.count} " + \
                type(supply.workers).__name__.lower()
        known = self._order.horizon
        stream = getattr(supply, "stream", None)
        if isinstance(stream, Ordered):
            known = "the whole run"
        elif not isinstance(supply, Inline) and self._looks_beyond():
            known = "this epoch and the next, unless the generators are drawn from in between"
        lines = [f"batches are {what}", f"order: {self._order.kind}; known ahead: {known}"]
        if self._why_threads:
            lines.append(f"decoded by threads, which share Python's lock: {self._why_threads}")
        if self._why:
            lines.append(f"the folder is read by its own loader: {self._why}")
        return "\n".join(lines)


def _weakly(method):
    """A bound method that does not keep its object, and gives None when that has gone."""
    found = weakref.WeakMethod(method)
    return lambda *given: found()(*given) if found() is not None else None


class _Position:
    """Where an iteration is, for state_dict()."""

    def __init__(self, epoch, step, base, indices):
        self.epoch, self.step, self.base, self.indices = epoch, step, base, indices
        self.is_over = False
        self.iterator = lambda: None

    def supply(self):
        iterator = self.iterator()
        return iterator.supply if iterator is not None else None


class _Iterator:
    """One iteration over a loader."""

    def __init__(self, loader, supply, position):
        self.loader, self.supply, self.position = loader, supply, position
        self.pid = os.getpid()
        self.is_primed = False
        position.iterator = weakref.ref(self)
        if loader.num_workers > 0:  # torch's workers are told of their first batches here
            self._prime()

    def _prime(self):
        self.is_primed = True
        self.supply.prime()

    def __iter__(self):
        return self

    def __len__(self):
        return len(self.loader)

    def __next__(self):
        if self.supply is None:
            raise StopIteration
        if os.getpid() != self.pid:
            raise RuntimeError("the loader was opened before a fork; make one in the child")
        began = time.perf_counter_ns()
        try:
            if not self.is_primed:
                self._prime()
            value = self.supply.next()
        except StopIteration:
            self.position.indices.end()
            self.position.is_over = True
            self._rest()
            raise
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.position.step += 1  # it has had its turn
            raise
        self.position.step += 1
        told = self.loader._told
        told[0] += 1
        told[1] += time.perf_counter_ns() - began
        return self._pinned(value) if self.loader._can_pin else value

    def _pinned(self, value):
        pin = torch.utils.data._utils.pin_memory.pin_memory
        return pin(value, self.loader.pin_memory_device or None)

    def _rest(self):
        """Gives the supply back; of several one is kept."""
        supply, self.supply = self.supply, None
        supply.rest()
        if self.loader._idle or supply.is_broken:
            supply.close()
        else:
            self.loader._idle.append(supply)

    def __del__(self):
        if getattr(self, "supply", None) is not None and os.getpid() == self.pid:
            self._rest()
