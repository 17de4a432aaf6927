# SPDX-License-Identifier: Apache-2.0
"""Checkpointer: a training's state, saved beside the training.

Invariant: what a checkpoint of a step holds is the state when save() was called. What only an
optimizer writes is read until that optimizer's next step(), which waits for it; the rest is copied
before save() returns. Tensors of devices are copied by those, whose streams wait (_capture.py), and
the library's own save begins when that is done.
"""

import functools
import json
import os
import time

import torch

import stoker
from stoker.torch import _fsdp, _ranks, _rng, _shards
from stoker.torch._capture import Arena, Capture, Handover
from stoker.torch._device import Cuda
from stoker.torch._fences import Fences, Stable
from stoker.torch._kept import Kept
from stoker.torch._tree import FORM, Reader, dumps, kind_of

VERSION = 1
_TAKEN = ("step", "rng")
_LASTING = (torch.nn.Module, torch.optim.Optimizer)


class Checkpointer:
    """Checkpoints of a training in a directory, made if it is not there.

        checkpointer = Checkpointer("/lustre/run1", keep=3)
        done = checkpointer.load(model=model, optimizer=optimizer, loader=loader)
        for step in range(done["step"] + 1 if done else 0, 10_000):
            ...
            optimizer.step()                                       # fences first, by itself
            checkpointer.save(step, model=model, optimizer=optimizer, loader=loader)
        checkpointer.wait()

    keep    how many stay when a new one is durable (0: all)
    roots   directories on other devices where the bytes go, separated by blanks
    engine  a stoker.Engine to share; default: one that the process has for such uses

    Other options are those of stoker.Checkpoints: outstanding, slot_bytes, slots, chunk_bytes,
    buffered, read_only, vote_timeout, check_replicas, writers, shared, shared_every, shared_keep,
    node_local, partner.
    What goes wrong in the background is raised by the next call, once, never by an optimizer's
    step().

    Where torch.distributed is initialized its ranks save together: all make a Checkpointer, call
    save() for the same steps with the same parts, and one checkpoint comes of it, or none.
    Parameters of modules and what optimizers keep are taken to be alike on all ranks, which write
    a share each; DTensors are saved in shards; other tensors of a module are rank 0's; everything
    else is each rank's own. docs/python.md has the rules, and check_replicas=True checks them.

    unique      patterns ("model.experts.*") of tensors that each rank has for itself
    replicated  patterns of other tensors that are alike on all ranks
    alone       this rank's directory is its own: nothing of the others is known
    """

    def __init__(self, directory, *, engine=None, keep=2, roots=None, alone=False, unique=(),
                 replicated=(), **options):
        self._patterns = tuple(unique), tuple(replicated)
        self._team = _ranks.Team(engine, alone=alone, read_only=bool(options.get("read_only")))
        try:
            if not options.get("read_only"):
                os.makedirs(directory, exist_ok=True)
            self.directory = os.fspath(directory)
            self._saved = stoker.Checkpoints(self._team.engine, directory, keep=keep, roots=roots,
                                             alone=alone, **options)
        except BaseException:
            self._team.close()
            raise
        self._fences = Fences(self._before_step)
        self._kept = Kept()
        self._rng = _rng.States()
        self._error = None
        self._device = Cuda()
        self._arena = Arena(self._device)
        # Of the last save, if tensors of devices are in it.
        self._capture = self._handover = None
        self._waits_on_host = False  # memory of the host is read where it lies, until a fence

    # ---- saving -----------------------------------------------------------------------

    def save(self, step, *, rng=True, pickle=False, shared=False, **parts):
        """Begins to save; the checkpoint is there when it is durable (wait()).

        parts by name: objects with a state_dict() (modules, optimizers, schedulers, scalers,
        loaders), or trees of dicts, lists, tuples, tensors, NumPy arrays, numbers, strings, bytes
        and None. Others are refused with their path, or pickled with pickle=True. rng: also the
        states of torch's, Python's and NumPy's generators. shared: it is copied to the shared
        directory in any case.

        Returns before anything is written; waits only while as many saves as outstanding says (1)
        are not durable yet. Do not write to parameters or to an optimizer's state by other means
        than its step() before fence(). Raises what has gone wrong with an earlier save; this one
        is then not begun, but for one of ranks, which is.

        Tensors of a GPU are those of the current stream. What that stream, or the one that is
        current in step() or fence(), is told afterwards comes behind the copying of them.
        """
        self._settle()
        if not self._team.is_of_ranks:
            self._raise_kept()
        try:
            optimizers, made, capture = self._make(parts, rng, pickle, shared)
        except BaseException as error:
            self._decline(step, error)
            raise
        begin = functools.partial(_begin, self._saved, step, made, shared)
        for optimizer in optimizers:  # before: a step may come as soon as this has begun
            self._fences.add(optimizer)
        if capture.is_empty:
            self._waits_on_host = True
            begin()
        else:
            self._arena.trim()
            self._waits_on_host |= made.detach()
            capture.begin()
            self._capture = capture
            self._handover = Handover(capture, begin, functools.partial(self._decline, step))
        if self._team.is_of_ranks:  # whose saves are counted: not before
            self._raise_kept()

    def _make(self, parts, rng, pickle, shared):
        for name in _TAKEN:
            if name in parts:
                raise TypeError(f"a part cannot be called {name!r}")
        if type(shared) is not bool:
            raise TypeError("shared is True or False, and no part")
        optimizers = [part for part in parts.values() if isinstance(part, torch.optim.Optimizer)]
        # Those that mostly stay as they are come first; see Kept.
        names = sorted(parts, key=lambda name: not isinstance(parts[name], _LASTING))
        wholes = _fsdp.wholes(parts, self._team.is_aware)
        states = {name: _state_of(wholes[name]) for name in names}
        if rng:
            states["rng"] = self._rng.get()
        stable = Stable(optimizers)
        capture = self._begin_capture(stable)
        sharings = {name: _ranks.Sharing(self._team.rank, _ranks.kind_of_part(parts.get(name)),
                                         *self._patterns) for name in states}
        made = self._kept.make(states, stable, pickle, capture,
                               sharings if self._team.is_aware else None)
        texts = ",".join([f"{dumps(name)}:{made.texts[name]}"
                          for name in (*parts, "rng") if name in made.texts])
        made.blobs[FORM] = f'{{"version":{VERSION},"parts":{{{texts}}}}}'.encode()
        return optimizers, made, capture

    def _decline(self, step, error):
        """The other ranks need not wait for a save that this one cannot make."""
        if self._team.is_of_ranks:
            self._saved.decline(step, f"that is not there: {type(error).__name__}: {error}"[:200])

    def _begin_capture(self, stable):
        if self._capture is not None:
            try:
                self._saved.fence()  # the library has read the pinned memory
            except stoker.Error as error:
                if not self._team.is_of_ranks:
                    raise
                self._error = self._error or error
            self._capture, self._waits_on_host = None, False
        self._arena.reset()
        return Capture(self._device, self._arena, stable)

    def _before_step(self):
        try:
            self._fence()
        except stoker.Error as error:
            self._error = self._error or error
        except (ValueError, RuntimeError):
            pass  # closed, or another process's: nothing is read any more, or not from here

    def _fence(self):
        if self._capture is not None:
            self._capture.fence()
            if not self._waits_on_host:
                return
            self._settle()
        self._saved.fence()
        self._waits_on_host = False

    def _settle(self, timeout=None):
        """Waits until the last save has begun for the library. Returns whether it has."""
        if self._handover is not None:
            if not self._handover.join(timeout):
                return False
            self._error, self._handover = self._error or self._handover.error, None
        return True

    def _raise_kept(self):
        error, self._error = self._error, None
        if error is not None:
            raise error

    def fence(self):
        """Waits until everything may be changed again; for tensors of a GPU its current stream
        does. An optimizer's step() does that itself."""
        self._raise_kept()
        self._fence()
        self._raise_kept()

    def wait(self, timeout=None, *, level="local"):
        """Waits until all saves are durable, at most timeout seconds (TimeoutError); with level
        "shared" also those that are copied to the shared directory, there; with "partner" on
        another node, too."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._settle(timeout):
            raise TimeoutError(f"the state is still being copied after {timeout} s")
        self._raise_kept()
        self._saved.wait(timeout if deadline is None else max(0.0, deadline - time.monotonic()),
                         level=level)

    # ---- loading ----------------------------------------------------------------------

    def load(self, step=None, *, map_location=None, strict=True, rng=True, pickle=False,
             together=False, **into):
        """Loads a checkpoint, the newest whole one where step is None. The number of ranks need not
        be that of the save: what each rank had for itself is this rank's, or rank 0's where there
        was none; DTensors are given their parts.

        into: objects with a load_state_dict(), by the names of their parts. Without any, or for
        parts that are not named, the answer has them as trees: {"step": 7, "model": {...}, ...}.
        None where step is None and there is no checkpoint.

        map_location   where tensors of the answer go: a device, or a dict of devices; default:
                       where they were. What is loaded into objects goes where they have it.
        strict         as in Module.load_state_dict(); False also allows parts that are not there
        rng            restore the generators, if anything is loaded into objects
        pickle         allow parts that were saved with pickle=True: it runs what they say
        together       all ranks call this alike: storage gives each byte of what they all load once
        """
        self.wait()  # one that is still under way is the newest
        if step is None:
            step = self._saved.latest()
            if step is None:
                return None
        targets = _fsdp.wholes(into, self._team.is_aware)
        with self._saved.open(step) as view:
            world = view.info()["world"]
            rank = self._team.rank if self._team.rank < world else 0
            form = _form_of(view, self.directory, rank)
            missing = [name for name in into if name not in form]
            if missing and strict:
                raise KeyError(f"checkpoint {step} in {self.directory} has no part {missing[0]!r}, "
                               f"only {', '.join(form)}")
            answer = {"step": step}
            for name, part_form in form.items():
                place = _keep if name in into or name == "rng" else _placer(map_location)
                likes = None
                if self._team.is_aware:
                    likes = _shards.likes_of(part_form, targets.get(name))
                state = Reader(view, place, pickle, rank, likes, together).load(part_form)
                if name in into:
                    _load_into(targets[name], state, strict)
                else:
                    answer[name] = state
        if rng and into and "rng" in answer:
            _rng.restore(answer.pop("rng"))
        return answer

    def latest(self):
        """The step of the newest whole checkpoint; None where there is none."""
        self._settle()
        return self._saved.latest()

    def list(self):
        """All checkpoints, newest first, damaged ones too, as dictionaries."""
        self._settle()
        return self._saved.list()

    def verify(self, step=None):
        """Reads a checkpoint, the newest where step is None, and checks every byte of it. Raises
        what is wrong; returns its step."""
        self._settle()
        with self._saved.open(step) as view:
            view.verify()
            return view.info()["step"]

    def prune(self, keep, *, orphans=False):
        """Removes all but the newest keep checkpoints; returns how many directories. orphans: also
        what crashed writers left in the directory and its roots, where nobody else saves."""
        self._settle()
        return self._saved.prune(keep, orphans=orphans)

    def status(self):
        """What it has done, as a dictionary."""
        self._settle()
        return self._saved.status()

    # ---- the end ----------------------------------------------------------------------

    def close(self):
        """Waits for saves under way; raises what has gone wrong with them."""
        self._end()
        try:
            self._raise_kept()
            self._saved.wait()
        except ValueError:
            pass  # it has been closed already
        finally:
            self._saved.close()
            self._team.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self.close()
            return
        self._end()
        self._saved.close()
        self._team.close()

    def _end(self):
        self._fences.end()
        self._settle()
        self._capture = None
        self._kept.clear()


def _begin(saved, step, made, shared):
    loose, *rest = made.tensors
    # In one order on all ranks: what is made anew on one may be what another has kept.
    saved.save(step, ({name: loose[name] for name in sorted(loose)}, *rest), blobs=made.blobs,
               stable=made.stable, metadata={"format": "pt"}, holdings=made.holdings or None,
               shared=shared)


def _state_of(part):
    if isinstance(part, torch.nn.Module):
        return part.state_dict(keep_vars=True)  # detached ones are made anew each time
    get = getattr(part, "state_dict", None)
    return get() if callable(get) else part


def _load_into(part, state, strict):
    load = getattr(part, "load_state_dict", None)
    if not callable(load):
        raise TypeError(f"a {kind_of(part)} has no load_state_dict(); leave it out, and take its "
                        "state from what load() returns")
    if isinstance(part, (torch.nn.Module, _fsdp.Model)):
        load(state, strict=strict)
    else:
        load(state)


def _form_of(view, directory, rank):
    if FORM not in view.blobs():
        raise ValueError(f"checkpoint {view.info()['step']} in {directory} was not saved by "
                         "stoker.torch.Checkpointer; stoker.Checkpoints reads its tensors")
    form = json.loads(view.blob(FORM, rank=rank))
    if form["version"] != VERSION:
        raise ValueError(f"checkpoint {view.info()['step']} in {directory} is of version "
                         f"{form['version']}; this Stoker reads version {VERSION}")
    return form["parts"]


def _keep(tensor, _device):
    return tensor


def _placer(map_location):
    if callable(map_location):
        raise TypeError("map_location is a device, a dict of devices or None, not a function")

    def place(tensor, device):
        target = device if map_location is None else map_location
        if isinstance(map_location, dict):
            target = map_location.get(device, device)
        return tensor.to(target)

    return place
