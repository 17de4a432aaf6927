#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures how fast samples that are held in RAM are handed out: 200,000 records of 1 KB, raw,
# batches of 256, on one core. Prints the median epoch of each run.
#
#     bench/cached.sh [ROUNDS]                 default 3
#
# BUILD build directory, WORK where the file lies (200 MB). Needs no root.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-"$here/../build"}
work=${WORK:-/var/tmp/stoker-bench}
rounds=${1:-3}

mkdir -p "$work/cached"
"$build/bench/make_files" "$work/cached/set" 1 204800000
# make_files puts its one file into the first folder.
for round in $(seq 1 "$rounds"); do
    "$build/bench/ballast" 1024
    taskset -c 0 "$build/cli/stoker" bench load "$work/cached/set/c00/000000.bin" --format record \
        --record-bytes 1024 --tier ram:400M --batch 256 --epochs 21 --layout raw --order keyed \
        --seed "$round" --json --quiet >"$work/cached/run.json"
    python3 - "$work/cached/run.json" <<'REPORT'
import json
import statistics
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    run = json.load(file)
later = run["epochs"][1:]
rate = statistics.median(e["samples_per_s"] for e in later)
cpu = statistics.median(e["samples"] / max(e["cpu_seconds"], 1e-9) for e in later)
print(f"{run['io_method']}: {rate:,.0f} samples/s, {cpu:,.0f} per second of processor time, "
      f"step p50 {later[-1]['step_wait_us']['p50']:.1f} us, "
      f"allocations per epoch {max(e['engine']['allocations'] for e in later)}, "
      f"origin bytes after the first epoch {sum(e['origin_bytes'] for e in later)}")
REPORT
done
