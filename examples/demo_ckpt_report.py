#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what the checkpoints of demo.sh cost, and whether what they promise was kept.

    demo_ckpt_report.py PLAIN.json RESUMED.json

PLAIN was trained without checkpoints and never killed; RESUMED goes on from those of a run
that was killed and saves after every step itself. Exits with 1 if a promise is not kept.
"""
import json
import sys


def step_seconds(run):
    """Of a step of the last epoch, in which everything is in RAM."""
    return run["epochs"][-1]["seconds"] / run["epoch_steps"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    runs = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
    plain, resumed = runs
    saved = resumed["checkpoints"]
    each = {key: 1e3 * saved[key] / saved["durable"]
            for key in ("durable_seconds", "wait_seconds")}
    print(f"{saved['durable']:,} checkpoints of {saved['bytes'] / 1e6:.2f} MB, one after "
          "every step.")
    print(f"Each was durable after {each['durable_seconds']:.2f} ms, "
          f"{each['wait_seconds']:.2f} ms of which training waited:")
    print(f"a step took {1e3 * step_seconds(resumed):.2f} ms instead of "
          f"{1e3 * step_seconds(plain):.2f} ms.")
    print()
    kept = True
    for text, good in (
            (f"killed and resumed: the same weights ({resumed['weights']}), bit for bit, as if "
             "never killed", resumed["weights"] == plain["weights"]),
            (f"resumed in mid-epoch, after step {resumed['first_step']}",
             resumed["first_step"] > 0 and resumed["first_step"] % resumed["epoch_steps"] != 0)):
        print(("  ok      " if good else "  FAILED  ") + text)
        kept = kept and good
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
