# SPDX-License-Identifier: Apache-2.0
"""Who saves together: the ranks of torch.distributed, or those of an engine.

Invariant: every rank gives the tensors that several hold under the same names and in the same
order, and each tensor of the checkpoint is given by exactly those that its holding says.
"""

import datetime
import fnmatch
import secrets

import torch
import torch.distributed

import stoker
from stoker._open import shared_engine

START_S = 300  # for all ranks to make their Checkpointer
_count = 0  # teams that this process has met in: ranks make theirs in the same order


class Team:
    """The ranks that a Checkpointer is one of.

    rank, world    this rank, and how many save together
    is_aware       shards are saved as such: there is a process group, or an engine of ranks
    is_of_ranks    each save is a vote of all
    """

    def __init__(self, engine, *, alone, read_only):
        self.rank, self.world, self.is_aware = 0, 1, False
        self._own = None
        if not alone and torch.distributed.is_available() and torch.distributed.is_initialized():
            self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
            self.is_aware = True
        if engine is not None and engine.world > 1 and not alone:
            self.rank, self.world, self.is_aware = engine.rank, engine.world, True
        self.is_of_ranks = self.world > 1 and not read_only
        if engine is None and self.is_of_ranks:
            engine = self._own = _open_engine(self.rank, self.world)
        elif engine is None:
            engine = shared_engine()
        elif self.is_of_ranks and engine.world == 1:
            raise ValueError(f"there are {self.world} ranks, and the engine was opened without a "
                             "comm: leave it out, open it with comm=stoker.Comm(...), or give "
                             "alone=True if this rank's directory is its own")
        self.engine = engine

    def close(self):
        if self._own is not None:
            self._own.close()


def _open_engine(rank, world):
    """An engine that reaches the others of the default process group, by its store: that works
    whatever its backend moves."""
    global _count
    _count += 1
    store = torch.distributed.PrefixStore(
        f"stoker{_count}", torch.distributed.distributed_c10d._get_default_store())

    def get(*keys):
        try:
            store.wait(list(keys), datetime.timedelta(seconds=START_S))
        except RuntimeError as error:
            raise TimeoutError(f"not all of {world} ranks have made a Checkpointer within "
                               f"{START_S} s ({error}). If one alone saves, give alone=True; if it "
                               "only loads, read_only=True") from error
        return [store.get(key).decode() for key in keys]

    def exchange(mine):
        store.set(f"rank{rank}", mine.hex())
        return list(map(bytes.fromhex, get(*[f"rank{other}" for other in range(world)])))

    if rank == 0:
        store.set("secret", secrets.token_hex(32))
    [secret] = get("secret")
    comm = stoker.Comm(rank, world, exchange=exchange, secret=secret, start_timeout=START_S)
    try:
        return stoker.Engine(comm=comm)
    except stoker.Error as error:
        if "built without UCX" not in error.message:
            raise
        raise RuntimeError(f"{world} ranks cannot save together: {error.message}. Or save on one "
                           "rank alone, with alone=True") from error


ALL, FIRST, OWN = "all", "first", "own"


class Sharing:
    """Who holds the tensors of a part.

    kind      ALL: every rank, alike; OWN: each its own. MODULE: parameters by all, the rest by
              rank 0, whose buffers are those that DistributedDataParallel hands to the others.
    """

    MODULE = "module"

    def __init__(self, rank, kind, unique, replicated):
        self.rank, self.kind = rank, kind
        self._unique, self._replicated = unique, replicated

    def __eq__(self, other):
        return isinstance(other, Sharing) and vars(self) == vars(other)

    def holder(self, tensor, name):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._unique):
            return OWN
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._replicated):
            return ALL
        if self.kind != self.MODULE:
            return self.kind
        return ALL if isinstance(tensor, torch.nn.Parameter) else FIRST


def kind_of_part(part):
    if isinstance(part, torch.nn.Module):
        return Sharing.MODULE
    return ALL if isinstance(part, torch.optim.Optimizer) else OWN
