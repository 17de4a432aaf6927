#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains one network five times on Fashion-MNIST from emulated slow shared storage and compares;
# then once more with a checkpoint after every step, killed in mid-epoch and resumed.
#
#     examples/demo.sh [BUILD_DIR [WORK_DIR]]          what "make demo" runs after the build
#
# FASHION_MNIST says where the four .gz files of the data set are, DEMO_EPOCHS how long to train.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${1:-"$here/../build"}
work=${2:-"$here/../.demo"}
source=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
epochs=${DEMO_EPOCHS:-5}
shape='rbps=40M riops=4000 rlat=500us'
ssd_shape='rbps=120M wbps=120M riops=30000 rlat=100us'

train() { # NAME TITLE OPTION...
    name=$1
    printf '\n%s\n' "$2"
    shift 2
    "$build/examples/train_fashion" --data "$work/data" --epochs "$epochs" --shape "$shape" \
        --json "$work/$name.json" "$@"
}

if [ ! -x "$build/examples/train_fashion" ] || [ ! -x "$build/examples/fashion_layout" ]; then
    echo "demo: no train_fashion or fashion_layout in $build/examples: build first, with zlib" >&2
    exit 1
fi
if [ ! -f "$source/train-images-idx3-ubyte.gz" ]; then
    echo "demo: no Fashion-MNIST in $source: apt install dataset-fashion-mnist" >&2
    exit 1
fi

mkdir -p "$work"
echo "Fashion-MNIST, laid out as 60,000 single image files:"
"$build/examples/fashion_layout" "$source" "$work/data"
echo
echo "The origin is slowed down to what one process may get of a busy shared file system:"
echo "40 MB/s, 4,000 operations a second, half a millisecond each. A stall is time in which"
echo "training waits for data."

train double "(a) Plain double buffering: the next batch is read while one is used." \
    --policy none --staging-batches 2
train held "(b) The set held in RAM, read ahead as far as it is known what comes next." \
    --policy next-use --tiers ram:64M
train half "(c) RAM for half of the set, 32 batches ahead; kept is what is used again soonest." \
    --policy next-use --tiers ram:23910000 --staging-batches 32

echo
echo "And an SSD of 120 MB/s, 30,000 operations a second, a tenth of a millisecond each:"
rm -rf "$work/ssd"
mkdir "$work/ssd"
for name in ssd warm; do
    case $name in
    ssd) title="(d) RAM for a quarter of the set, an SSD for the rest." ;;
    *) title="(e) The next job: a new process that finds the SSD warm." ;;
    esac
    train $name "$title" --policy next-use --tiers "ram:11955000 ssd:$work/ssd:128M" \
        --ssd-shape "$ssd_shape" --staging-batches 32
done

# ---- checkpoints ---------------------------------------------------------------------------

newest_step() { # DIR
    ls "$1" 2>/dev/null | sed -n 's/^step-\([0-9]*\)$/\1/p' | sort -n | tail -n 1
}

# Trains until a step is durable, then kills it the hard way.
train_and_kill() { # STEP DIR OPTION...
    step=$1
    dir=$2
    shift 2
    "$build/examples/train_fashion" --data "$work/data" --epochs "$epochs" --shape "$shape" \
        --checkpoints "$dir" "$@" &
    pid=$!
    newest=0
    while [ "${newest:-0}" -lt "$step" ] && kill -0 "$pid" 2>/dev/null; do
        sleep 0.02
        newest=$(newest_step "$dir")
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" && { echo "demo: it ended before it could be killed" >&2; exit 1; }
    return 0
}

rm -rf "$work/killed"
printf '\n(f) As (b), and weights, momentum and position are saved after every single step, until\n'
printf '    the process is killed (SIGKILL) in the middle of the second epoch.\n'
train_and_kill 1400 "$work/killed" --policy next-use --tiers ram:64M
echo "killed. What it left:"
"$build/cli/stoker" ckpt list "$work/killed"
train resumed "The same command once more, which goes on from there:" \
    --policy next-use --tiers ram:64M --checkpoints "$work/killed"

# ---- what all of it comes to ---------------------------------------------------------------

echo
kept=0
python3 "$here/demo_report.py" "$work/double.json" "$work/held.json" "$work/half.json" \
    "$work/ssd.json" "$work/warm.json" || kept=1
echo
python3 "$here/demo_ckpt_report.py" "$work/held.json" "$work/resumed.json" || kept=1
exit $kept
