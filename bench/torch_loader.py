#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a PyTorch DataLoader makes of a list of files: raw bytes, exact shuffle, no decoding.

    torch_loader.py [--workers N] [--batch B] [--prefetch N] [--seed S] LIST

Prints one JSON object. The clock starts before the loader's iterator is made, so the start of its
workers counts, and stops when the last batch has come.
"""
import argparse
import json
import resource
import sys
import time
import warnings

import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    """Every file of a list, as a tensor of its bytes."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, k):
        with open(self.paths[k], "rb", buffering=0) as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def join(samples):
    """One tensor of all bytes of a batch, so that workers hand over one piece of memory."""
    return torch.cat(samples), [sample.numel() for sample in samples]


def cpu_seconds():
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        use = resource.getrusage(who)
        total += use.ru_utime + use.ru_stime
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("list")
    options = parser.parse_args()
    with open(options.list, encoding="utf-8") as file:
        paths = file.read().split("\n")[:-1]
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    torch.manual_seed(options.seed)
    more = {"prefetch_factor": options.prefetch} if options.workers else {}
    loader = DataLoader(Files(paths), batch_size=options.batch, shuffle=True, collate_fn=join,
                        num_workers=options.workers, **more)

    samples = total = 0
    cpu_began, began = cpu_seconds(), time.monotonic()
    for joined, sizes in loader:
        samples += len(sizes)
        total += joined.numel()
    seconds = time.monotonic() - began
    del loader
    json.dump({"samples": samples, "bytes": total, "seconds": seconds,
               "cpu_seconds": cpu_seconds() - cpu_began, "samples_per_s": samples / seconds,
               "bytes_per_s": total / seconds, "torch": torch.__version__}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
