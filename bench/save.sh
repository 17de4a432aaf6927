#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures writing a checkpoint of SIZE (4G), durable: Stoker by both I/O methods, a plain io_uring
# writer without copy or checksum, a buffered one with sync_file_range (both of a buffer as large
# as the state), and torch.save with fsync where a torch can be imported. Loading is held against
# fio's direct read.
#
#     bench/save.sh [ROUNDS [SETUP...]]     default: 3 rounds of all set-ups
#
#     slow     a volume of 500 MB/s
#     image    a loop device over an image that was written once with dd
#     raw      the disk as it is; ten rounds at least, since it wanders
#     stripes  1, 2 and 4 roots of 250 MB/s each, and one of 250 with one of 125
#     ranks    1, 2 and 4 ranks that hold the same, on 1, 2 and 4 roots of 250 MB/s each
#     loop     a save in every iteration of a loop with known times, on 500 MB/s
#     beside   a loader and a checkpoint on one volume of 300 MB/s, asked for 1.5 times that
#
# Contenders take turns; every run begins with ballast. Prints medians as Markdown and leaves
# results.jsonl in OUT. Needs root.
#
# BUILD build directory, OUT results, WORK where files lie (SIZE + 20 GB), PYTHON, BALLAST MiB (of
# the state twice: who writes through the page cache needs as much of that), CONTENDERS some of
# "uring ring sync buffered torch" for slow, image and raw.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-"$here/../build"}
work=${WORK:-/var/tmp/stoker-bench-save}
out=${OUT:-"$work/results"}
python=${PYTHON:-python3}
size=${SIZE:-4G}
bytes=$(numfmt --from=iec "$size")
ballast=${BALLAST:-$((bytes * 2 / 1048576 + 1024))}
contenders=${CONTENDERS:-uring ring sync buffered torch}
rounds=${1:-3}
shift $(($# > 0 ? 1 : 0))
setups=("$@")
[ $# -gt 0 ] || setups=(slow image raw stripes ranks loop beside)

export VOLUMES=$work/volumes SLOWDISK=$build/bench/slowdisk
volume="$here/volume.sh"

[ "$(id -u)" = 0 ] || { echo "save.sh: needs root to mount" >&2; exit 1; }
mkdir -p "$out" "$work"
have_torch=0
"$python" -c 'import torch' 2>/dev/null && have_torch=1
[ $have_torch = 1 ] || echo "save.sh: $python has no torch; torch.save is left out" >&2
have_fio=0
command -v fio >/dev/null && have_fio=1
[ $have_fio = 1 ] || echo "save.sh: there is no fio; reading is held against nothing" >&2

volumes=()
image_loop=""
clean_up() {
    local name
    for name in "${volumes[@]}"; do "$volume" down "$name" || true; done
    if [ -n "$image_loop" ]; then
        umount "$work/image-files" || true
        losetup -d "$image_loop" || true
    fi
    rm -f "$work/image"
}
trap clean_up EXIT

volume_up() { # NAME SIZE KEY=VALUE...
    "$volume" down "$1" >/dev/null # of an earlier run that was killed
    volumes+=("$1")
    "$volume" up "$@" >/dev/null
}

# One run: ballast, the command, its JSON as one line of the results.
measure() { # SETUP CONTENDER COMMAND...
    local setup=$1 contender=$2
    shift 2
    sync
    "$build/bench/ballast" "$ballast"
    echo "$setup: $contender" >&2
    "$@" >"$out/run.json"
    "$python" "$here/save_report.py" --append "$out/results.jsonl" "$setup" "$contender" \
        <"$out/run.json"
}

stoker() { # SETUP METHOD MORE...
    local setup=$1 method=$2
    shift 2
    measure "$setup" "stoker $method" "$build/cli/stoker" bench save --size "$bytes" --saves 1 \
        --io-method "$method" --json --quiet "$@"
}

plain() { # SETUP DIR HOW CONTENDER
    measure "$1" "$4" "$build/bench/plain_writers" "$3" "$2/plain.bin" "$bytes"
    rm "$2/plain.bin"
}

# Takes turns also with the place in a round: every second one goes backwards.
contenders() { # SETUP DIR ROUND
    local order="uring ring sync buffered torch" who
    [ $(($3 % 2)) = 1 ] || order="torch buffered sync ring uring"
    for who in $order; do
        [[ " $contenders " == *" $who "* ]] || continue
        case $who in
        uring | sync) stoker "$1" $who --root "$2" ;;
        ring) plain "$1" "$2" ring "plain ring" ;;
        buffered) plain "$1" "$2" buffered "buffered, sync_file_range" ;;
        torch)
            [ $have_torch = 0 ] ||
                measure "$1" "torch.save, fsync" "$python" "$here/torch_save.py" "$2/plain.pt" \
                    "$bytes"
            ;;
        esac
    done
}

load() { # SETUP DIR
    local method
    for method in uring sync; do
        measure "$1" "stoker load $method" "$build/cli/stoker" bench save --size "$bytes" \
            --saves 1 --load --io-method $method --json --quiet --root "$2"
    done
    [ $have_fio = 1 ] || return 0
    fio --name=read --filename="$2/read.bin" --size="$bytes" --rw=write --bs=8M --direct=1 \
        --ioengine=psync --end_fsync=1 --output-format=json >/dev/null
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 measure "$1" "fio direct read" fio --name=read \
        --filename="$2/read.bin" --size="$bytes" --rw=read --bs=8M --direct=1 --iodepth=8 \
        --ioengine=io_uring --unlink=1 --output-format=json
}

volume_bytes() { # with room for two checkpoints and the file system
    echo $((bytes * 2 + bytes / 8 + 300000000))
}

run_slow() {
    local round
    volume_up slow "$(volume_bytes)" wbps=500M rbps=500M
    for round in $(seq 1 "$rounds"); do
        contenders slow "$VOLUMES/slow/files" "$round"
        load slow "$VOLUMES/slow/files"
    done
    "$volume" set slow wbps=250M >/dev/null
    measure "fence" "two tensors, 250 MB/s" "$build/cli/stoker" bench save --size 2000M \
        --tensors 2 --equal --saves 1 --json --quiet --root "$VOLUMES/slow/files"
    "$volume" down slow
}

run_image() {
    local round
    # Direct: nothing of it is left in the page cache, which direct writes would have to drop.
    dd if=/dev/zero of="$work/image" bs=8M oflag=direct \
        count=$(($(volume_bytes) / 8388608)) status=none
    mkdir -p "$work/image-files"
    image_loop=$(losetup --direct-io=on -f --show "$work/image")
    mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$image_loop"
    mount -o noatime,nodiscard "$image_loop" "$work/image-files"
    for round in $(seq 1 "$rounds"); do
        contenders image "$work/image-files" "$round"
    done
    umount "$work/image-files"
    losetup -d "$image_loop"
    image_loop=""
    rm -f "$work/image"
}

run_raw() {
    local round
    mkdir -p "$work/raw"
    for round in $(seq 1 $((rounds > 10 ? rounds : 10))); do
        contenders raw "$work/raw" "$round"
    done
    for round in $(seq 1 "$rounds"); do load raw "$work/raw"; done
}

run_stripes() {
    local at round method roots
    for at in 1 2; do volume_up "s$at" "$(volume_bytes)" wbps=250M; done
    for at in 3 4; do volume_up "s$at" "$((bytes / 2 + 300000000))" wbps=250M; done
    for round in $(seq 1 "$rounds"); do
        for method in uring sync; do
            for at in 1 2 4; do
                roots=()
                for name in s1 s2 s3 s4; do roots+=(--root "$VOLUMES/$name/files"); done
                stoker "$at roots" $method "${roots[@]:0:$((2 * at))}"
            done
        done
    done
    "$volume" set s2 wbps=125M >/dev/null
    for method in uring sync; do # the first save learns the speeds
        measure "250 + 125 MB/s" "stoker $method" "$build/cli/stoker" bench save --size "$bytes" \
            --saves 5 --io-method $method --json --quiet --root "$VOLUMES/s1/files" \
            --root "$VOLUMES/s2/files"
    done
    for at in 1 2 3 4; do "$volume" down "s$at"; done
}

# Ranks as a launcher would start them; prints what rank 0 reports.
stoker_ranks() { # WORLD OPTION...
    local world=$1 port=$((20000 + RANDOM % 20000)) rank
    shift
    for rank in $(seq 1 $((world - 1))); do
        RANK=$rank WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 STOKER_PORT=$port \
            "$build/cli/stoker" bench save "$@" >/dev/null &
    done
    RANK=0 WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 STOKER_PORT=$port \
        "$build/cli/stoker" bench save "$@"
    wait
}

run_ranks() {
    local at round method roots
    for at in 1 2; do volume_up "s$at" "$(volume_bytes)" wbps=250M; done
    for at in 3 4; do volume_up "s$at" "$((bytes / 2 + 300000000))" wbps=250M; done
    for round in $(seq 1 "$rounds"); do
        for method in uring sync; do
            for at in 1 2 4; do
                roots=()
                for name in s1 s2 s3 s4; do roots+=(--root "$VOLUMES/$name/files"); done
                measure "$at ranks, $at roots" "stoker $method" stoker_ranks "$at" \
                    --size "$bytes" --saves 1 --io-method $method --json --quiet \
                    "${roots[@]:0:$((2 * at))}"
            done
        done
    done
    for at in 1 2 3 4; do "$volume" down "s$at"; done
}

run_loop() {
    local g compute spin method setup
    volume_up loop 4G wbps=500M
    # 500 MB take 1 s: hidden at 0.9 of G x (forward + backward), not at twice.
    for g in 1 4; do
        for compute in 1150000 500000; do
            for spin in "" --spin; do
                for method in uring sync; do
                    setup="loop, G = $g, T_F + T_B = $((compute / 1000 / g)) ms"
                    measure "$setup${spin:+, spinning}" \
                        "stoker $method" "$build/cli/stoker" bench save --size 500M --saves 3 \
                        --every-iteration --iterations 10 --accumulation $g $spin \
                        --forward-us $((compute / g / 3)) --backward-us $((compute / g * 2 / 3)) \
                        --optimizer-us 5000 --io-method $method --json --quiet \
                        --root "$VOLUMES/loop/files"
                done
            done
        done
    done
    "$volume" down loop
}

run_beside() {
    local method
    volume_up beside 8G
    "$build/bench/make_files" "$VOLUMES/beside/files/set" 8000 110592
    "$build/cli/stoker" index "$VOLUMES/beside/files/set" --format folder >/dev/null 2>&1
    "$volume" set beside bps=300M >/dev/null
    # With 64 reads the loader takes less of the volume than a save that is not held back.
    for method in uring sync; do
        for depth in 256 64; do
            for more in "" --unarbitrated; do
                echo 3 >/proc/sys/vm/drop_caches
                # 64 files of 108 KiB in 47 ms: half the volume's rate.
                measure "beside" "stoker $method, $depth reads deep${more:+, arbiter off}" \
                    "$build/cli/stoker" bench save --size 600M --saves 5 --io-method $method $more \
                    --queue-depth $depth --json --quiet --batch 64 --compute-us 47000 \
                    --beside "$VOLUMES/beside/files/set" --root "$VOLUMES/beside/files"
            done
        done
    done
    "$volume" down beside
}

rm -f "$out/results.jsonl"
for setup in "${setups[@]}"; do
    case $setup in
    slow | image | raw | stripes | ranks | loop | beside) "run_$setup" ;;
    *) echo "save.sh: no set-up $setup" >&2; exit 2 ;;
    esac
done
"$python" "$here/save_report.py" --summary "$out/results.jsonl"
