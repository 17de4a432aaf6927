#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How a checkpoint of many devices compares with one torch.save: the single-device part is measured
# here, in turns (torch.save with fsync, and "stoker bench save" on one root), and medians go into a
# scenario, which has the other parts: devices, nodes and what is lost among them.
#
#     bench/creation.sh [ROUNDS [SCENARIO]]       default: 5 rounds, fastpersist-0.7b
#
# BUILD build directory, WORK where files lie, SIZE of what is saved (1G), PYTHON with torch.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-"$here/../build"}
work=${WORK:-/var/tmp/stoker-bench-creation}
python=${PYTHON:-python3}
size=${SIZE:-1G}
bytes=$(numfmt --from=iec "$size")
rounds=${1:-5}
scenario=${2:-fastpersist-0.7b}

"$python" -c 'import torch' || { echo "creation.sh: $python has no torch" >&2; exit 1; }
mkdir -p "$work/root"
trap 'rm -rf "$work"' EXIT
rate() { # what of its JSON: MB/s
    "$python" -c 'import json, sys
run = json.load(sys.stdin)
print(run["bytes"] / run["seconds"] / 1e6)'
}
median() { sort -g "$1" | sed -n "$((($(wc -l <"$1") + 1) / 2))p"; }

for round in $(seq 1 "$rounds"); do
    sync
    "$build/bench/ballast" 2048
    "$python" "$here/torch_save.py" "$work/plain.pt" "$bytes" | rate >>"$work/single"
    sync
    "$build/bench/ballast" 2048
    "$build/cli/stoker" bench save --size "$bytes" --saves 1 --root "$work/root" --json --quiet |
        rate >>"$work/device"
done
single=$(median "$work/single")
device=$(median "$work/device")
echo "one torch.save: $single MB/s; one device: $device MB/s (medians of $rounds, $size each)"
exec "$build/cli/stoker" simulate --builtin "$scenario" --set "ckpt_single_mb_s=$single" \
    --set "ckpt_device_mb_s=$device"
