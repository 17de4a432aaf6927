#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stoker.torch.DataLoader against torch's over one .npy of images, shuffled, by the same script.

    PYTHONPATH=build/python bench/python_load.py [--rounds N] [--samples N] [--work DIR]

fixed: 3 x 32 x 32 bytes a sample, batches of 64; torch's data set is a NumPy memory map.
raw:   the same with samples of 108 KB.

Every contender begins with an empty page cache where that may be emptied (root), and reads two
epochs: the first cold, the second with what it has kept. torch's loader has 0, 2 and 4 workers, of
which the best counts. Contenders take turns; prints medians and the ratio for each epoch. Each run
begins with memory that is there (ballast, if build/bench has it): what a hypervisor has taken back
costs more to have again than to read into, and whoever runs first would pay.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch

import stoker
import stoker.torch

BATCH = 64
BALLAST = pathlib.Path(stoker.__file__).resolve().parents[2] / "bench" / "ballast"
BALLAST_MIB = 2048


class Mapped(torch.utils.data.Dataset):
    """As a user would write it."""

    def __init__(self, path):
        self.path, self.array = path, None

    def __len__(self):
        return len(self._open())

    def __getitem__(self, at):
        return torch.from_numpy(self._open()[at].copy())

    def _open(self):
        if self.array is None:
            self.array = np.load(self.path, mmap_mode="r")
        return self.array


def have_memory():
    if BALLAST.exists():
        subprocess.run([BALLAST, str(BALLAST_MIB)], check=True, stdout=subprocess.DEVNULL)


def empty_page_cache():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        pass


def epochs(loader, n):
    """Seconds of each epoch, every batch looked at."""
    seconds = []
    for _ in range(n):
        began = time.perf_counter()
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            x.flatten()[0].item()
        seconds.append(time.perf_counter() - began)
    return seconds


def by_torch(path, workers):
    loader = torch.utils.data.DataLoader(Mapped(path), BATCH, shuffle=True, num_workers=workers,
                                         persistent_workers=workers > 0)
    return epochs(loader, 2)


def by_stoker(path, n_bytes):
    loader = stoker.torch.DataLoader(path, BATCH, shuffle=True, seed=1, epochs=2,
                                     tiers=f"ram:{n_bytes + (64 << 20)}")
    return epochs(loader, 2)


def compare(name, shape, samples, rounds, folder):
    path = os.path.join(folder, f"{name}.npy")
    draw = np.random.default_rng(1)
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (samples, *shape))
    for at in range(0, samples, 1024):
        n = min(1024, samples - at)
        array[at:at + n] = draw.integers(0, 256, (n, *shape), np.uint8)
    array.flush()
    n_bytes = array.nbytes
    del array
    ways = {"stoker": lambda: by_stoker(path, n_bytes)}
    for workers in (0, 2, 4):
        ways[f"torch, {workers} workers"] = lambda workers=workers: by_torch(path, workers)
    seen = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            have_memory()
            empty_page_cache()
            seen[way].append(run())
    os.remove(path)
    for epoch in (0, 1):
        rates = {way: samples / statistics.median(s[epoch] for s in runs)
                 for way, runs in seen.items()}
        best = max(rate for way, rate in rates.items() if way != "stoker")
        for way, rate in rates.items():
            print(f"| {name}, epoch {epoch + 1} | {way} | {rate:,.0f} samples/s | "
                  f"{rate / best:.2f} x the best of torch |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--work", default=None, help="where the data set lies, 400 MB")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.work) as folder:
        compare("fixed", (3, 32, 32), asked.samples, asked.rounds, folder)
        compare("raw", (110592,), max(asked.samples // 12, 200), asked.rounds, folder)


if __name__ == "__main__":
    main()
