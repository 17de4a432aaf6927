#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tar shards from a volume of 100 MB/s, 2,000 operations a second and 2 ms latency, in exact
# shuffle: the rate of the first epoch as a part of what the volume gives.
#
#     bench/shards.sh [ROUNDS [SAMPLE_BYTES]]            default: 3 rounds, 108,000 bytes
#
# BUILD build directory, VOLUMES where the volume lies, MB of shards (1000). Needs root.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-"$here/../build"}
megabytes=${MB:-1000}
rounds=${1:-3}
sample_bytes=${2:-108000}
export SLOWDISK="$build/bench/slowdisk"
out=$(mktemp -d)
down() {
    "$here/volume.sh" down shards-bench
    rm -rf "$out"
}
trap down EXIT

volume=$("$here/volume.sh" up shards-bench $(((megabytes + 300) * 1000000)))
python3 "$here/make_shards.py" "$volume" $((megabytes * 1000000)) "$sample_bytes"
"$build/cli/stoker" index "$volume" >/dev/null
"$here/volume.sh" set shards-bench rbps=100M riops=2000 rlat=2000 >/dev/null
for round in $(seq 1 "$rounds"); do
    sync
    echo 3 >/proc/sys/vm/drop_caches
    "$build/bench/ballast" 2048
    "$build/cli/stoker" bench load "$volume" --batch 64 --seed "$round" --epochs 1 \
        --layout raw --json --quiet >"$out/$round.json"
done
python3 - "$out"/*.json <<'REPORT'
import json
import statistics
import sys

rates = []
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    rates.append(result["bytes"] / result["seconds"] / 1e6)
rate = statistics.median(rates)
print(f"{rate:.1f} MB/s of samples ({min(rates):.1f} to {max(rates):.1f}), {rate / 100:.1%} of the "
      f"volume's 100; {result['samples']:,} samples, first epoch, exact shuffle")
sys.exit(0 if rate >= 97 else 1)
REPORT
