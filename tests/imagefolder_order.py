#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the order of class folders with ImageFolder's rule on random trees.

The rule is restated below with os.walk(). Where torchvision can be imported, its own function
is asked as well; the restatement always runs.
"""
import os
import random
import subprocess
import sys
import tempfile

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
PARTS = [b"a", b"b", b"B", b"a-", b"a.", b"a b", b"10", b"9", b"\xc3\xa9", b"\xff", b"\xee\x80\x80",
         b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xc3", b"_", b"~", b"\n"]
FILES = [b".jpg", b".JPEG", b".Png", b".txt", b"", b".webp", b".tif"]


def by_rule(root):
    """Samples of a class folder as (label, path relative to root)."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        found = 0
        for directory, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(ENDINGS):
                    samples.append((label, os.path.relpath(os.path.join(directory, file), root)))
                    found += 1
        if not found:
            return None
    return samples or None


def by_torchvision(root):
    """The same, from torchvision; raises ImportError without it."""
    from torchvision.datasets import DatasetFolder
    try:
        data = DatasetFolder(root, loader=lambda path: path, extensions=ENDINGS)
    except FileNotFoundError:
        return None
    return [(label, os.path.relpath(path, root)) for path, label in data.samples]


def by_stoker(program, root):
    """The same, from the program under test."""
    done = subprocess.run([program, root], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False)
    if done.returncode == 1:
        return None
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}")
    lines = [line.split(b" ", 1) for line in done.stdout.split(b"\0") if line]
    return [(int(label), os.fsdecode(path)) for label, path in lines]


def grow(rng, root):
    """Makes a random tree with some links; names go beyond ASCII and UTF-8."""
    made = []
    for _ in range(rng.randrange(1, 120)):
        parts = [rng.choice(PARTS) for _ in range(rng.randrange(1, 4))]
        directory = os.path.join(root, *parts)
        os.makedirs(directory, exist_ok=True)
        made.append(directory)
        path = os.path.join(directory, rng.choice(PARTS) + rng.choice(PARTS) + rng.choice(FILES))
        if not os.path.exists(path):
            with open(path, "wb"):
                pass
    for number in range(rng.randrange(3)):
        inner = tempfile.mkdtemp(dir=os.path.dirname(root))
        with open(os.path.join(inner, b"linked.png"), "wb"):
            pass
        os.symlink(inner, os.path.join(rng.choice(made), b"link%d" % number))
    if rng.randrange(3):  # give most classes a sample
        for entry in os.scandir(root):
            if entry.is_dir():
                with open(os.path.join(entry.path, b"0.png"), "wb"):
                    pass


def main():
    program = sys.argv[1]
    refused = 0
    torchvision = True
    for seed in range(40):
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory(prefix="stoker-order-") as scratch:
            root = os.path.join(os.fsencode(scratch), b"t")
            os.mkdir(root)
            grow(rng, root)
            text_root = os.fsdecode(root)
            expected = by_rule(text_root)
            refused += expected is None
            if by_stoker(program, text_root) != expected:
                sys.exit(f"seed {seed}: the order is not the rule's")
            try:
                if torchvision and by_torchvision(text_root) != expected:
                    sys.exit(f"seed {seed}: torchvision disagrees with the rule")
            except ImportError:
                torchvision = False
    print(f"40 trees agree with the rule, {refused} of them refused by both; torchvision "
          + ("agrees" if torchvision else "is not installed"))
    if not 0 < refused < 40:
        sys.exit("the trees test nothing")


if __name__ == "__main__":
    main()
