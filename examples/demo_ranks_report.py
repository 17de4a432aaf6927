#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of demo_ranks.sh.

    demo_ranks_report.py FOLDER"""

import json
import pathlib
import sys

WORLD = 4


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, title in (("alone", "each rank on its own"), ("together", "ranks serve each other")):
        results = [json.loads((folder / f"{name}{rank}.json").read_text("utf-8"))
                   for rank in range(WORLD)]
        print(f"\n{title}\nrank    RAM %   peer %  origin %  origin MB  seconds  waiting %")
        for rank, result in enumerate(results):
            shares = [100 * result["sources"][tier] / result["samples"]
                      for tier in ("ram", "peer", "origin")]
            print(f"{rank:4} {shares[0]:8.1f} {shares[1]:8.1f} {shares[2]:9.1f}"
                  f" {result['origin_bytes'] / 1e6:10.2f} {result['seconds']:8.2f}"
                  f" {100 * result['stall_fraction']:10.1f}")
        total = sum(result["origin_bytes"] for result in results)
        print(f" all {total / 1e6:38.2f}   (the data set has"
              f" {results[0]['dataset_bytes'] / 1e6:.2f} MB)")
    saving = [json.loads((folder / f"saving{rank}.json").read_text("utf-8"))
              for rank in range(WORLD)]
    megabytes = saving[0]["bytes"] / 1e6
    saved_s = max(result["seconds"] for result in saving)
    loaded_s = max(result["load_seconds"] for result in saving)
    print(f"\nfour ranks that hold the same {megabytes:.0f} MB save it together, durable in"
          f" {saved_s:.2f} s;\nthey load it together, each reads a quarter, in {loaded_s:.2f} s,"
          " and every byte is as it was")
    return 0


if __name__ == "__main__":
    sys.exit(main())
