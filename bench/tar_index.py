#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Indexing tar shards against reading their headers once, cold, whole processes, in turns.

    bench/tar_index.py [--gb 10] [--sample-bytes 108000] [--rounds 5] [--build build] [--keep]

Makes shards of about 100 MB (a picture, a label and some words for each sample) in WORK
(/var/tmp/stoker-bench), which are removed at the end, or with --keep are kept and used again.
The peers pread one header after the other (tar_headers) on one, 8 and 32 threads. Needs root to
empty the page cache. Exits with 1 if indexing takes longer than the quickest peer.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from make_shards import make_shards

THREADS = (1, 8, 32)


def timed(command):
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3\n")
    began = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - began, done.stdout


def measure(build, folder, n_members, rounds):
    shards = sorted(map(str, folder.glob("*.tar")))
    contenders = {f"headers, {n} thread{'s' * (n > 1)}":
                  [build / "bench" / "tar_headers", "-t", str(n), *shards] for n in THREADS}
    contenders["stoker index"] = [build / "cli" / "stoker", "index", folder, "--rebuild"]
    took = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, command in contenders.items():
            seconds, out = timed(command)
            took[name].append(seconds)
            if name.startswith("headers") and int(out) != n_members:
                sys.exit(f"{name}: {out.strip()} members instead of {n_members}")
    for name, times in took.items():
        print(f"{name:20} {statistics.median(times):7.3f} s "
              f"({min(times):.3f} to {max(times):.3f})")
    medians = {name: statistics.median(times) for name, times in took.items()}
    index = medians.pop("stoker index")
    print(f"indexing takes {index / min(medians.values()):.2f} of the quickest peer's time")
    return index <= min(medians.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--sample-bytes", type=int, default=108_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "build")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    work = pathlib.Path(os.environ.get("WORK", "/var/tmp/stoker-bench")) / "tar-index"
    made = work / "made"
    try:
        if not made.exists():
            shutil.rmtree(work, ignore_errors=True)
            (work / "shards").mkdir(parents=True)
            n_members = make_shards(work / "shards", args.gb * 1e9, args.sample_bytes)
            made.write_text(str(n_members), encoding="ascii")
        n_members = int(made.read_text(encoding="ascii"))
        shards = list((work / "shards").glob("*.tar"))
        n_bytes = sum(path.stat().st_size for path in shards)
        print(f"{len(shards)} shards, {n_bytes / 1e9:.2f} GB, {n_members:,} members")
        return 0 if measure(args.build, work / "shards", n_members, args.rounds) else 1
    finally:
        if not args.keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
