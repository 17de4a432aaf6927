#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stoker.torch.DataLoader against torch's over class folders of JPEGs, by the same data set with
the same transforms in Python.

    PYTHONPATH=build/python bench/python_images.py [--rounds N] [--images N] [--workers N ...]
                                                   [--work DIR]

torchvision's ImageFolder of pictures of 500 x 400, RandomResizedCrop to 224, RandomHorizontalFlip,
ToTensor and Normalize, batches of 64, shuffled; needs torchvision and Pillow. Contenders take turns
and begin each with an empty page cache where that may be emptied (root), and with memory that is
there (ballast, if build/bench has it). Each reads two epochs, torch's loader with 0 to 4 worker
processes (or --workers), Stoker's with as many threads, from 4 on processes. Told are medians, and
what is best of each.
"""

import argparse
import os
import pathlib
import statistics
import tempfile

import numpy as np
import torch
import torchvision
from PIL import Image

import python_load
import stoker.torch

SIZE = (400, 500)
CLASSES = 10


def make(folder, count):
    """Pictures that have something of a photograph: smooth, with some noise, 60 to 90 KB."""
    draw = np.random.default_rng(1)
    for number in range(count):
        place = folder / f"class{number % CLASSES}" / f"{number:06}.jpg"
        place.parent.mkdir(exist_ok=True)
        coarse = draw.integers(0, 256, (SIZE[0] // 20, SIZE[1] // 20, 3), np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize(SIZE[::-1], Image.BICUBIC), np.int16)
        noisy = smooth + draw.integers(-20, 20, smooth.shape, np.int16)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(place, quality=85)


def data_set(folder):
    t = torchvision.transforms
    return torchvision.datasets.ImageFolder(str(folder), t.Compose([
        t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(),
        t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))


def run(make_loader, folder, workers):
    python_load.have_memory()
    python_load.empty_page_cache()
    loader = make_loader(data_set(folder), 64, shuffle=True, num_workers=workers,
                         persistent_workers=workers > 0)
    return python_load.epochs(loader, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--work", default=None, help="where the pictures lie")
    asked = parser.parse_args()
    torch.set_num_threads(1)  # as in torch's workers
    makers = {"torch": torch.utils.data.DataLoader, "stoker": stoker.torch.DataLoader}
    ways = [(name, workers) for workers in asked.workers for name in makers]
    seen = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(dir=asked.work) as name:
        folder = pathlib.Path(name)
        make(folder, asked.images)
        for number in range(asked.rounds):
            for way in ways[number % len(ways):] + ways[:number % len(ways)]:
                seen[way].append(run(makers[way[0]], folder, way[1]))
    print(f"torch {torch.__version__}, {os.cpu_count()} processors, {asked.images} pictures, "
          f"{asked.rounds} rounds")
    for epoch in (0, 1):
        rates = {way: asked.images / statistics.median(one[epoch] for one in runs)
                 for way, runs in seen.items()}
        best = max(rate for way, rate in rates.items() if way[0] == "torch")
        for (name, workers), rate in rates.items():
            print(f"| epoch {epoch + 1} | {name}, num_workers={workers} | {rate:,.0f} pictures/s | "
                  f"{rate / best:.2f} x the best of torch |", flush=True)


if __name__ == "__main__":
    main()
