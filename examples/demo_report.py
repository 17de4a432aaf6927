#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the five runs of demo.sh and checks what the demonstration promises.

    demo_report.py DOUBLE.json HELD.json HALF.json SSD.json WARM.json

Exits with 1 if a promise is not kept.
"""
import json
import sys

TITLES = {"double": "(a) double buffer", "held": "(b) set held", "half": "(c) half held",
          "ssd": "(d) RAM and SSD", "warm": "(e) warm SSD"}


def seconds(run, first=0):
    return sum(epoch["seconds"] for epoch in run["epochs"][first:])


def told_stall(run, first=0):
    """The same as "stoker explain" would have told it."""
    epochs = run["epochs"][first:]
    waited = sum(epoch["told_seconds"] * epoch["told_stall_fraction"] for epoch in epochs)
    return waited / sum(epoch["told_seconds"] for epoch in epochs)


def stall(run, first=0):
    """Share of the time that training waited, from epoch `first` (0-based) on."""
    return sum(epoch["stall_seconds"] for epoch in run["epochs"][first:]) / seconds(run, first)


def over_bound(run):
    """Bytes read from the origin beyond the least possible."""
    return run["origin_bytes"] - run["bound_bytes"]


def print_ratios(runs):
    plain = runs["double"]
    later = len(plain["epochs"]) - 1
    print(f"                            all epochs                   epochs 2 to {later + 1}")
    print("                   seconds  origin MB     told     s/epoch  stall %     told  speed-up")
    for name, title in TITLES.items():
        run = runs[name]
        print(f"{title:<17} {seconds(run):8.1f} {run['origin_bytes'] / 1e6:10.2f}"
              f" {run['told_origin_bytes'] / 1e6:8.2f}"
              f"    {seconds(run, 1) / later:8.2f} {100 * stall(run, 1):8.2f}"
              f" {100 * told_stall(run, 1):8.2f}"
              f" {seconds(plain, 1) / seconds(run, 1):7.1f} x")


def promises(runs):
    held, half = runs["held"], runs["half"]
    accuracy = held["epochs"][-1]["accuracy"]
    yield (f"the same weights in all {len(runs)} runs, bit for bit (" + held["weights"] + ")",
           len({run["weights"] for run in runs.values()}) == 1)
    yield (f"test accuracy {100 * accuracy:.2f} %, at least 86 %", accuracy >= 0.86)
    yield (f"set held: stall after the first epoch {100 * stall(held, 1):.2f} %, at most 2 %",
           stall(held, 1) <= 0.02)
    for title, run in (("set held", held), ("half held", half), ("RAM and SSD", runs["ssd"])):
        yield (f"{title}: {run['origin_bytes']:,} bytes from the origin, the least possible is"
               f" {run['bound_bytes']:,}, within one sample of {run['sample_bytes']}",
               abs(over_bound(run)) <= run["sample_bytes"])
    warm = runs["warm"]
    yield (f"warm SSD: {warm['origin_bytes']} bytes from the origin; first batch"
           f" {warm['first_batch_seconds']:.2f} s after the start", warm["origin_bytes"] == 0)
    off = max(abs(run["told_origin_bytes"] - run["origin_bytes"]) / max(run["origin_bytes"], 1)
              for run in runs.values())
    yield (f"explain tells the bytes from the origin within {100 * off:.2f} %, at most 1 %",
           off <= 0.01)


def main():
    if len(sys.argv) != 1 + len(TITLES):
        sys.exit(__doc__)
    runs = {}
    for name, path in zip(TITLES, sys.argv[1:]):
        with open(path, encoding="utf-8") as file:
            runs[name] = json.load(file)
    if min(len(run["epochs"]) for run in runs.values()) < 2:
        sys.exit("demo: at least two epochs are needed to compare")
    print_ratios(runs)
    print()
    kept = True
    for text, good in promises(runs):
        print(("  ok      " if good else "  FAILED  ") + text)
        kept = kept and good
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
