#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collects the runs of load.sh and says what they show.

    load_report.py --append RESULTS.jsonl SETUP CONTENDER < RUN.json
    load_report.py --summary SUMMARY.json RESULTS.jsonl          exits with 1 if a goal is missed
"""
import json
import statistics
import sys

PLAIN = "8 plain threads"
VOLUME_BYTES_PER_S = {"slow": 100e6, "fast": 600e6}


def append(path, setup, contender):
    run = json.load(sys.stdin)
    # Where there are several epochs the first is what the others are compared with.
    first = run["epochs"][0] if run.get("epochs") else run
    row = {"setup": setup, "contender": contender, "samples": first["samples"],
           "bytes": first["bytes"], "seconds": first["seconds"],
           "cpu_seconds": first["cpu_seconds"]}
    if len(run.get("epochs", [])) > 1:
        row["later_origin_bytes"] = sum(e["origin_bytes"] for e in run["epochs"][1:])
    if "rss_bytes" in run:
        row["rss_bytes"] = run["rss_bytes"]
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def medians(rows):
    """{setup: {contender: medians}} in the order of the rows."""
    groups = {}
    for row in rows:
        groups.setdefault(row["setup"], {}).setdefault(row["contender"], []).append(row)
    table = {}
    for setup, contenders in groups.items():
        table[setup] = {}
        for name, runs in contenders.items():
            entry = {
                "runs": len(runs),
                "files_per_s": statistics.median(r["samples"] / r["seconds"] for r in runs),
                "bytes_per_s": statistics.median(r["bytes"] / r["seconds"] for r in runs),
                "least_bytes_per_s": min(r["bytes"] / r["seconds"] for r in runs),
                "most_bytes_per_s": max(r["bytes"] / r["seconds"] for r in runs),
                "cpu_us_per_file": statistics.median(r["cpu_seconds"] * 1e6 / r["samples"]
                                                     for r in runs),
            }
            if "later_origin_bytes" in runs[0]:
                entry["later_origin_bytes"] = max(r["later_origin_bytes"] for r in runs)
            table[setup][name] = entry
    return table


def print_table(setup, contenders):
    plain = contenders[PLAIN]
    print(f"\n### {setup}\n")
    print("| contender | files/s | MB/s | least - most MB/s | CPU us/file | x plain |"
          " CPU x plain |")
    print("|---|---|---|---|---|---|---|")
    for name, entry in contenders.items():
        print(f"| {name} | {entry['files_per_s']:,.0f} | {entry['bytes_per_s'] / 1e6:.1f}"
              f" | {entry['least_bytes_per_s'] / 1e6:.1f} - {entry['most_bytes_per_s'] / 1e6:.1f}"
              f" | {entry['cpu_us_per_file']:.1f}"
              f" | {entry['bytes_per_s'] / plain['bytes_per_s']:.2f}"
              f" | {entry['cpu_us_per_file'] / plain['cpu_us_per_file']:.2f} |")


def goals(setup, contenders):
    """Pairs of a text and whether it is so."""
    plain = contenders[PLAIN]
    torch = max((entry["bytes_per_s"] for name, entry in contenders.items()
                 if name.startswith("DataLoader")), default=None)
    for name in ("stoker uring", "stoker sync"):
        entry = contenders[name]
        speed = entry["bytes_per_s"] / plain["bytes_per_s"]
        cpu = entry["cpu_us_per_file"] / plain["cpu_us_per_file"]
        if setup == "slow":
            share = entry["bytes_per_s"] / VOLUME_BYTES_PER_S[setup]
            yield f"{name}: {share:.3f} of the volume's rate, at least 0.97", share >= 0.97
            later = entry["later_origin_bytes"]
            yield f"{name}: {later} bytes from the origin after the first epoch, none", later == 0
            continue
        least, most = (0.97, 0.6) if setup == "fast" else (1.2, 0.5)
        yield f"{name}: {speed:.2f} x plain threads, at least {least}", speed >= least
        yield f"{name}: {cpu:.2f} x their processor time, at most {most}", cpu <= most
        if setup == "fast" and torch:
            ratio = entry["bytes_per_s"] / torch
            limited = torch >= 0.9 * VOLUME_BYTES_PER_S[setup]
            yield (f"{name}: {ratio:.2f} x DataLoader, at least 1.5 unless the volume limits both",
                   ratio >= 1.5 or limited)


def summary(path, results):
    with open(results, encoding="utf-8") as file:
        table = medians([json.loads(line) for line in file])
    missed = 0
    for setup, contenders in table.items():
        print_table(setup, contenders)
        print()
        for text, good in goals(setup, contenders):
            print(("- ok: " if good else "- MISSED: ") + text)
            missed += not good
    with open(path, "w", encoding="utf-8") as file:
        json.dump(table, file, indent=2)
        file.write("\n")
    return 1 if missed else 0


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--append":
        append(*sys.argv[2:])
        return 0
    if len(sys.argv) == 4 and sys.argv[1] == "--summary":
        return summary(*sys.argv[2:])
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
