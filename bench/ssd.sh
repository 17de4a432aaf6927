#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the SSD tier: hits of one volume of 250 MB/s and of two, and a warm start.
#
#     bench/ssd.sh
#
# The data set (600 MB, 6,000 records of 100 KB) lies on the machine's own disk, the caches on
# volumes of 250 MB/s (bench/volume.sh; needs root). Prints the rate of the epochs that come from
# the SSDs as a part of what the volumes give, how much faster two are, and how long the first
# batch takes after opening a cache of 1,000,000 samples, data set and loader together.
#
# BUILD build directory, WORK where files lie (2 GB), VOLUMES where the volumes do.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-"$here/../build"}
work=${WORK:-/var/tmp/stoker-bench}/ssd
stoker=$build/cli/stoker
export SLOWDISK="$build/bench/slowdisk"

down() {
    "$here/volume.sh" down ssd-bench-1 || true
    "$here/volume.sh" down ssd-bench-2 || true
    rm -rf "$work"
}
trap down EXIT
mkdir -p "$work/cache"
"$build/bench/make_files" "$work/set" 1 600000000
one=$("$here/volume.sh" up ssd-bench-1 1G rbps=250e6 wbps=250e6)
two=$("$here/volume.sh" up ssd-bench-2 1G rbps=250e6 wbps=250e6)

run() { # OUT ARGUMENT...
    out=$1
    shift
    "$build/bench/ballast" 512
    "$stoker" bench load "$work/set/c00/000000.bin" --format record --record-bytes 100000 \
        --batch 32 --layout raw --staging-bytes 32M --json --quiet "$@" >"$out"
}

run "$work/fill1.json" --epochs 1 --tier "ssd:$one:800M"
run "$work/one.json" --epochs 3 --tier "ssd:$one:800M"
rm -rf "$one"/stoker-*
run "$work/fill2.json" --epochs 1 --tier "ssd:$one:400M" --tier "ssd:$two:400M"
run "$work/two.json" --epochs 3 --tier "ssd:$one:400M" --tier "ssd:$two:400M"

"$build/bench/make_files" "$work/many" 1 128000000
many() {
    "$stoker" bench load "$work/many/c00/000000.bin" --format record --record-bytes 128 \
        --batch 64 --tier "ssd:$work/cache:1G" --json --quiet "$@"
}
many --epochs 1 >"$work/many.json"
many --epochs 1 --steps 1 >"$work/warm.json"

python3 - "$work" <<'REPORT'
import json
import sys


def load(name):
    with open(f"{sys.argv[1]}/{name}.json", encoding="utf-8") as file:
        return json.load(file)


def rate(name):
    epochs = load(name)["epochs"][1:]
    # What staging carried over from one epoch to the next is not the SSD's.
    return sum(e["source_bytes"]["ssd"] for e in epochs) / sum(e["seconds"] for e in epochs) / 1e6


one, two, warm = rate("one"), rate("two"), load("warm")
print(f"one volume   {one:7.1f} MB/s, {one / 250:.1%} of 250")
print(f"two volumes  {two:7.1f} MB/s, {two / one:.2f} x one")
print(f"warm start   {warm['seconds'] + warm['index_seconds']:.3f} s to the first batch of "
      f"{warm['dataset_samples']:,} samples, {warm['origin_bytes']} bytes from the origin")
print(f"origin bytes of the warm runs: {load('one')['origin_bytes']}, "
      f"{load('two')['origin_bytes']}")
REPORT
