# SPDX-License-Identifier: Apache-2.0
"""The constructor's arguments: what torch refuses is refused, with the same kinds of exceptions."""

import multiprocessing
import os

import torch
from torch.utils import data

import stoker

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def is_stored(dataset):
    """Whether a data set is given by where it lies."""
    return isinstance(dataset, (str, os.PathLike, stoker.Dataset))


def check_dataset(dataset):
    if isinstance(dataset, data.IterableDataset):
        raise TypeError(
            f"{type(dataset).__name__} is an IterableDataset: it gives its samples in an order of "
            "its own, which nothing can be read ahead by. Keep torch.utils.data.DataLoader for it, "
            "or give the path of its shards as the data set")


def check_workers(given):
    """given: the arguments by name."""
    if given["num_workers"] < 0:
        raise ValueError("num_workers is negative; 0 means no worker processes")
    if given["timeout"] < 0:
        raise ValueError("timeout is negative; 0 means none")
    if given["num_workers"] == 0:
        # Until 2.0 the default was 2 and could not be told from being given.
        if given["prefetch_factor"] not in (None, 2 if VERSION < (2, 0) else None):
            raise ValueError("prefetch_factor is for num_workers > 0; leave it out")
        if given["persistent_workers"]:
            raise ValueError("persistent_workers is for num_workers > 0")
        if given["multiprocessing_context"] is not None:
            raise ValueError("multiprocessing_context is for num_workers > 0")
    elif given["prefetch_factor"] is not None and given["prefetch_factor"] < 1:
        raise ValueError("prefetch_factor must be at least 1")
    _check_context(given["multiprocessing_context"])


def prefetch_factor(given, num_workers):
    """What torch's loader says that it is: until 2.0 also without workers."""
    return 2 if given is None and (num_workers > 0 or VERSION < (2, 0)) else given


def _check_context(context):
    """Workers are spawned, whatever is said; what torch would refuse is refused."""
    known = multiprocessing.get_all_start_methods()
    if isinstance(context, str):
        if context not in known:
            raise ValueError(f"multiprocessing_context {context!r} is none of: {', '.join(known)}")
    elif context is not None and not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(f"multiprocessing_context is a context or a name of one, not {context!r}")


def check_order(given):
    if given["sampler"] is not None and given["shuffle"]:
        raise ValueError("sampler and shuffle exclude each other")
    if given["batch_sampler"] is not None:
        if given["batch_size"] != 1 or given["shuffle"] or given["sampler"] is not None or \
                given["drop_last"]:
            raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    elif given["batch_size"] is None and given["drop_last"]:
        raise ValueError("batch_size=None makes no batches, so drop_last must be left out")
    own = [name for name in ("seed", "world", "rank") if given[name] is not None]
    for name in ("sampler", "batch_sampler", "generator"):
        if own and given[name] is not None:
            raise ValueError(f"{own[0]} asks for an order of Stoker's own, which excludes {name}")
    if given["transform_seed"] not in ("sample", "worker"):
        raise ValueError("transform_seed is 'sample' or 'worker', not "
                         f"{given['transform_seed']!r}")


def ranks(world, rank):
    """(world, rank) as given or, without, as torch.distributed has them."""
    dist = torch.distributed
    is_distributed = dist.is_available() and dist.is_initialized()
    if world is None:
        world = dist.get_world_size() if is_distributed else 1
    if rank is None:
        rank = dist.get_rank() if is_distributed else 0
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} is not in 0 .. world - 1, which is {world - 1}")
    return world, rank


def make_samplers(given):
    """(sampler, batch_sampler or None, whether the order is Stoker's own)."""
    dataset, sampler, batch_sampler = given["dataset"], given["sampler"], given["batch_sampler"]
    world, rank = ranks(given["world"], given["rank"])
    is_own = given["seed"] is not None or given["world"] is not None or \
        given["rank"] is not None
    if given["stored"] and world > 1 and sampler is None and batch_sampler is None and \
            given["generator"] is None:
        is_own = True
    if sampler is None:
        if is_own:
            sampler = data.DistributedSampler(dataset, num_replicas=world, rank=rank,
                                              shuffle=bool(given["shuffle"]),
                                              seed=given["seed"] or 0)
        elif given["shuffle"]:
            sampler = data.RandomSampler(dataset, generator=given["generator"])
        else:
            sampler = data.SequentialSampler(dataset)
    if batch_sampler is None and given["batch_size"] is not None:
        batch_sampler = data.BatchSampler(sampler, given["batch_size"], given["drop_last"])
    return sampler, batch_sampler, is_own
