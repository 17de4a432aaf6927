#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a PyTorch DataLoader makes of a list of files: raw bytes, exact shuffle, no decoding.

    torch_loader.py [--workers N] [--batch B] [--prefetch N] [--seed S] [--epochs E]
                    [--rank R --world W] [--compute-us N] [--cgroup DIR --cache-bytes N] LIST

Prints one JSON object. The clock starts before the loader's iterator is made, so the start of its
workers counts, and stops when the last batch has come. With several epochs the workers stay.

--world shares the files with DistributedSampler; --compute-us sleeps after each batch. --cgroup: a
memory cgroup (version 1) in which this process is; the page cache in it is held to --cache-bytes,
whatever the process and its workers need beside it.
"""
import argparse
import json
import os
import resource
import sys
import time
import warnings

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Files(Dataset):
    """Every file of a list, as a tensor of its bytes."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, k):
        with open(self.paths[k], "rb", buffering=0) as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


class PageCache:
    """Holds the page cache of a cgroup to a size: the limit is that and what else is charged,
    at its most so far."""

    def __init__(self, folder, n_bytes):
        self.folder = folder
        self.n_bytes = n_bytes
        self.beside_bytes = 0

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="ascii") as file:
            return file.read()

    def hold(self):
        if not self.folder:
            return
        stat = dict(line.split() for line in self.read("memory.stat").splitlines())
        cached = int(stat["total_cache"]) - int(stat.get("total_shmem", 0))
        beside = int(self.read("memory.usage_in_bytes")) - cached
        if beside <= self.beside_bytes:
            return
        self.beside_bytes = beside
        with open(os.path.join(self.folder, "memory.limit_in_bytes"), "w",
                  encoding="ascii") as file:
            file.write(str(beside + self.n_bytes))


def join(samples):
    """One tensor of all bytes of a batch, so that workers hand over one piece of memory."""
    return torch.cat(samples), [sample.numel() for sample in samples]


def cpu_seconds():
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        use = resource.getrusage(who)
        total += use.ru_utime + use.ru_stime
    return total


def make_loader(paths, options):
    """The loader, and what has to be told of each epoch."""
    files = Files(paths)
    more = {"prefetch_factor": options.prefetch} if options.workers else {}
    sampler = None
    if options.world > 1:
        sampler = DistributedSampler(files, options.world, options.rank, seed=options.seed)
    loader = DataLoader(files, batch_size=options.batch, shuffle=sampler is None, sampler=sampler,
                        collate_fn=join, num_workers=options.workers,
                        persistent_workers=options.workers > 0 and options.epochs > 1, **more)
    return loader, sampler.set_epoch if sampler else lambda epoch: None


def run_epoch(loader, cache, compute_s):
    samples = total = 0
    computing = 0.0
    cpu_began, began = cpu_seconds(), time.monotonic()
    for joined, sizes in loader:
        came = time.monotonic()
        samples += len(sizes)
        total += joined.numel()
        if compute_s:
            time.sleep(compute_s)
        cache.hold()
        computing += time.monotonic() - came
    seconds = time.monotonic() - began
    return {"samples": samples, "bytes": total, "seconds": seconds,
            "cpu_seconds": cpu_seconds() - cpu_began, "stall_fraction": 1 - computing / seconds}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--compute-us", type=int, default=0)
    parser.add_argument("--cgroup", default="")
    parser.add_argument("--cache-bytes", type=int, default=0)
    parser.add_argument("list")
    return parser.parse_args()


def main():
    options = parse()
    with open(options.list, encoding="utf-8") as file:
        paths = file.read().split("\n")[:-1]
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    torch.manual_seed(options.seed)
    loader, set_epoch = make_loader(paths, options)
    cache = PageCache(options.cgroup, options.cache_bytes)

    cpu_began, epochs = cpu_seconds(), []
    for epoch in range(options.epochs):
        set_epoch(epoch)
        epochs.append(run_epoch(loader, cache, options.compute_us * 1e-6))
    del loader # its workers' processor time counts when they have ended
    samples, total, seconds = (sum(epoch[key] for epoch in epochs)
                               for key in ("samples", "bytes", "seconds"))
    result = {"samples": samples, "bytes": total, "seconds": seconds,
              "cpu_seconds": cpu_seconds() - cpu_began, "samples_per_s": samples / seconds,
              "bytes_per_s": total / seconds, "torch": torch.__version__}
    if options.epochs > 1:
        result["epochs"] = epochs
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    main()
