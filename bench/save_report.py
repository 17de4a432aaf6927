#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gathers and sums up the runs of bench/save.sh.

    save_report.py --append RESULTS SETUP CONTENDER < JSON of stoker, fio or torch_save.py
    save_report.py --summary RESULTS                prints Markdown
"""

import json
import statistics
import sys


def of_fio(whole):
    """fio's own JSON: the job with its end_fsync; system and user time in percent."""
    job = whole["jobs"][0]
    side = job["write"] if job["write"]["io_bytes"] else job["read"]
    seconds = job["job_runtime"] / 1000
    if "sync" in job and job["write"]["io_bytes"]:
        seconds = max(seconds, side["runtime"] / 1000)
    return {"bytes": side["io_bytes"], "seconds": seconds,
            "cpu_seconds": (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds}


def append(results, setup, contender):
    run = json.load(sys.stdin)
    run = of_fio(run) if "jobs" in run else run
    if contender.startswith("stoker load"):
        run["seconds"] = run["load_seconds"]
        run["cpu_seconds"] = 0
    run.update(setup=setup, contender=contender)
    with open(results, "a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")


def extra(runs):
    last = runs[-1]
    if "loop" in last:
        loop = last["loop"]
        return (f"overhead {last['overhead_fraction']:.2%}, stall {loop['stall_seconds']:.3f} s "
                f"(model {loop['expected_stall_seconds']:.3f})")
    if "loader" in last:
        return (f"loader {last['loader']['bytes_per_s'] / 1e6:.0f} MB/s, stalled "
                f"{last['loader']['stall_fraction']:.2%}")
    if last["setup"] == "fence":
        return (f"first tensor after {last['first_tensor_seconds']:.2f} s, all after "
                f"{last['captured_seconds']:.2f} s")
    return ""


def summary(results):
    groups = {}
    with open(results, encoding="utf-8") as file:
        for line in file:
            run = json.loads(line)
            groups.setdefault((run["setup"], run["contender"]), []).append(run)
    print("| set-up | contender | MB/s | least .. most | CPU s/GB | runs | |")
    print("|---|---|---|---|---|---|---|")
    for (setup, contender), runs in groups.items():
        rates = sorted(run["bytes"] / run["seconds"] / 1e6 for run in runs)
        cpu = statistics.median(run["cpu_seconds"] / run["bytes"] * 1e9 for run in runs)
        print(f"| {setup} | {contender} | {statistics.median(rates):.1f} | {rates[0]:.1f} .. "
              f"{rates[-1]:.1f} | {cpu:.3f} | {len(runs)} | {extra(runs)} |")


def main():
    if sys.argv[1] == "--append":
        append(*sys.argv[2:5])
    else:
        summary(sys.argv[2])


if __name__ == "__main__":
    main()
