#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures reading 20,000 files of 108 KB, cold, in exact shuffle: Stoker by both I/O methods,
# plain reading threads, and PyTorch's DataLoader where a torch can be imported.
#
#     bench/load.sh [ROUNDS [SETUP...]]        default: 3 rounds of slow fast raw
#
#     slow   a volume of 100 MB/s, 2,000 operations a second, 2 ms latency
#     fast   a volume of 600 MB/s, 12,000 operations a second
#     raw    the disk as it is
#
# Every run of every contender begins with ballast and empty caches; contenders take turns. Prints
# medians as Markdown and leaves results.jsonl and summary.json in OUT. Needs root.
#
# BUILD build directory, OUT results, WORK where the files lie (5 GB), PYTHON an interpreter with
# torch, BALLAST MiB of it, FILES how many.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-"$here/../build"}
work=${WORK:-/var/tmp/stoker-bench}
out=${OUT:-"$work/results"}
python=${PYTHON:-python3}
ballast=${BALLAST:-4096}
files=${FILES:-20000}
file_bytes=$((108 * 1024))
rounds=${1:-3}
shift $(($# > 0 ? 1 : 0))
setups=("$@")
[ $# -gt 0 ] || setups=(slow fast raw)

export VOLUMES=$work/volumes SLOWDISK=$build/bench/slowdisk
volume="$here/volume.sh"

[ "$(id -u)" = 0 ] || { echo "load.sh: needs root to empty caches and to mount" >&2; exit 1; }
mkdir -p "$out" "$work"
have_torch=0
"$python" -c 'import torch' 2>/dev/null && have_torch=1
[ $have_torch = 1 ] || echo "load.sh: $python has no torch; its DataLoader is left out" >&2

volume_up=0
clean_up() {
    if [ $volume_up = 1 ]; then "$volume" down bench; fi
}
trap clean_up EXIT

# Makes a set-up ready: its files, a list of them, an index. Sets data, list and index.
prepare() { # SETUP
    case $1 in
    raw) data=$work/raw/set ;;
    slow | fast)
        if [ $volume_up = 0 ]; then
            "$volume" down bench # of an earlier run that was killed
            volume_up=1
            "$volume" up bench $((files * (file_bytes + 8192) + 300000000)) >/dev/null
            "$build/bench/make_files" "$VOLUMES/bench/files/set" "$files" $file_bytes
        fi
        data=$VOLUMES/bench/files/set
        ;;
    *) echo "load.sh: no set-up $1" >&2; exit 2 ;;
    esac
    mkdir -p "$(dirname "$data")"
    [ "$1" != raw ] || "$build/bench/make_files" "$data" "$files" $file_bytes
    list=$out/$1.list
    index=$out/$1.index
    find "$data" -type f -name '*.bin' | sort >"$list"
    "$build/cli/stoker" bench load "$data" --format folder --index "$index" --rebuild --steps 1 \
        --quiet >/dev/null
    case $1 in
    slow) "$volume" set bench rbps=100M riops=2000 rlat=2000 >/dev/null ;;
    fast) "$volume" set bench rbps=600M riops=12000 >/dev/null ;;
    esac
}

# One run: ballast, empty caches, the command, its JSON as one line of the results.
measure() { # SETUP ROUND CONTENDER COMMAND...
    local setup=$1 round=$2 contender=$3
    shift 3
    sync
    echo 3 >/proc/sys/vm/drop_caches
    "$build/bench/ballast" "$ballast"
    echo "$setup, round $round: $contender" >&2
    "$@" >"$out/run.json"
    "$python" "$here/load_report.py" --append "$out/results.jsonl" "$setup" "$contender" \
        <"$out/run.json"
}

stoker() { # SETUP ROUND METHOD
    local more=(--epochs 1)
    [ "$1" != slow ] || more=(--epochs 2 --tier ram:$((files * (file_bytes + 4096))))
    measure "$1" "$2" "stoker $3" "$build/cli/stoker" bench load "$data" --format folder \
        --index "$index" --batch 64 --seed "$2" --layout raw --io-method "$3" --json --quiet \
        "${more[@]}"
}

run_round() { # SETUP ROUND
    local workers
    stoker "$1" "$2" uring
    measure "$1" "$2" "8 plain threads" "$build/bench/plain_readers" -t 8 -s "$2" "$list"
    stoker "$1" "$2" sync
    measure "$1" "$2" "8 plain threads, direct" "$build/bench/plain_readers" -d -t 8 -s "$2" "$list"
    [ $have_torch = 1 ] || return 0
    for workers in 2 4; do
        [ "$1 $workers" != "slow 4" ] || continue
        measure "$1" "$2" "DataLoader, $workers workers" "$python" "$here/torch_loader.py" \
            --workers $workers --seed "$2" "$list"
    done
}

rm -f "$out/results.jsonl"
for setup in "${setups[@]}"; do
    prepare "$setup"
    for round in $(seq 1 "$rounds"); do
        run_round "$setup" "$round"
    done
done
"$python" "$here/load_report.py" --summary "$out/summary.json" "$out/results.jsonl"
