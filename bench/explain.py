#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What "stoker explain" tells of a run against what the run came to, in six set-ups.

    bench/explain.py [--rounds 3] [--build build]

Origin and SSD are emulated (100 MB/s, 2 ms; 250 MB/s, 0.1 ms); the data sets have 200 MB. Times are
told by what the run has learned of its devices. Prints medians of the rounds; exits with 1 where
the bytes from the origin are off by more than 1 % or the time that is waited by more than 5 points.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from make_shards import make_shards

RECORD_BYTES = 10_000
TOTAL_BYTES = 200_000_000
BYTES_OFF = 0.01
STALL_OFF_POINTS = 5
SHAPES = ["--shape", "rbps=100M rlat=2ms", "--ssd-shape", "rbps=250M wbps=250M rlat=100us"]

HALF, QUARTER = TOTAL_BYTES // 2, TOTAL_BYTES // 4
# title: (tiers, whether of shards, epochs, us of computing for a batch of 1.28 MB)
SETUPS = {
    "fits RAM": ([f"ram:{TOTAL_BYTES + (8 << 20)}"], False, 3, 8000),
    "RAM + SSD": ([f"ram:{QUARTER}", f"ssd:CACHE:{2 * TOTAL_BYTES}"], False, 3, 4000),
    "S = 2 C, RAM": ([f"ram:{HALF}"], False, 4, 5000),
    "S = 2 C, RAM + SSD": ([f"ram:{QUARTER}", f"ssd:CACHE:{QUARTER}"], False, 4, 5000),
    "tar shards, half in RAM": ([f"ram:{HALF}"], True, 4, 5000),
    "compute-bound": ([f"ram:{QUARTER}"], False, 3, 16000),
}


def run(build, root, setup):
    tiers, is_tar, epochs, compute_us = setup
    cache = root / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    data = [root / "data.bin", "--format", "record", "--record-bytes", str(RECORD_BYTES)]
    if is_tar:
        data = [root / "shards"]
    options = [word for tier in tiers for word in ("--tier", tier.replace("CACHE", str(cache)))]
    command = [build / "cli" / "stoker", "bench", "load", *data, *options, *SHAPES,
               "--batch", "128", "--layout", "raw", "--staging-bytes", "16M",
               "--epochs", str(epochs), "--compute-us", str(compute_us), "--explain", "--json",
               "--quiet"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def compare(result):
    """(bytes seen, bytes told, stall seen, stall told), stalls in per cent of the run."""
    told = result["explained"]
    stall = sum(e["stall_fraction"] * e["seconds"] for e in result["epochs"]) / result["seconds"]
    return (result["origin_bytes"], told["origin_bytes"], 100 * stall,
            100 * told["stall_fraction"])


def off(row):
    return abs(row[1] - row[0]) / max(row[0], 1), abs(row[3] - row[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "build")
    args = parser.parse_args()
    rows = {title: [] for title in SETUPS}
    with tempfile.TemporaryDirectory(prefix="stoker-explain-",
                                     dir=os.environ.get("WORK", "/var/tmp")) as name:
        root = pathlib.Path(name)
        with open(root / "data.bin", "wb") as file:
            for _ in range(TOTAL_BYTES // RECORD_BYTES):
                file.write(os.urandom(RECORD_BYTES))
        (root / "shards").mkdir()
        make_shards(root / "shards", TOTAL_BYTES, RECORD_BYTES)
        for _ in range(args.rounds):
            for title, setup in SETUPS.items():
                rows[title].append(compare(run(args.build, root, setup)))
    print("| set-up | origin MB, told | off | waiting %, told | off by points |")
    print("|---|---|---|---|---|")
    good = True
    for title, seen in rows.items():
        bytes_off, stall_off = (statistics.median(part) for part in zip(*map(off, seen)))
        row = [statistics.median(part) for part in zip(*seen)]
        print(f"| {title} | {row[0] / 1e6:.2f}, {row[1] / 1e6:.2f} | {bytes_off:.2%} "
              f"| {row[2]:.1f}, {row[3]:.1f} | {stall_off:.1f} |")
        good = good and bytes_off <= BYTES_OFF and stall_off <= STALL_OFF_POINTS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
