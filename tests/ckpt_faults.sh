#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints on disks that are full or broken, on file systems that have less than others, and by
# two processes at a time:
#
#     ckpt_faults.sh CKPT_LOOP STOKER SLOWDISK POOR_FS
#
# 77: not root, or no loop devices here. SLOWDISK and POOR_FS: where FUSE is there, else "none".
set -euo pipefail

loop_program=$1
stoker=$2
slowdisk=$3
poor_fs=$4

[ "$(id -u)" = 0 ] || { echo "needs root to mount"; exit 77; }
losetup -f >/dev/null 2>&1 || { echo "there are no loop devices here"; exit 77; }
for mkfs in mkfs.ext4 mkfs.xfs; do
    command -v $mkfs >/dev/null || { echo "there is no $mkfs here"; exit 77; }
done

work=$(mktemp -d /var/tmp/stoker-faults-XXXXXX)
clean_up() {
    for name in "$work"/mnt-*; do
        if mountpoint -q "$name"; then umount "$name" || umount -l "$name"; fi
    done
    for loop in $(losetup -n -O NAME,BACK-FILE |
        awk -v w="$work/" 'index($2, w) == 1 {print $1}'); do
        losetup -d "$loop" || true
    done
    if mountpoint -q "$work/disk"; then umount "$work/disk" || umount -l "$work/disk"; fi
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

fail() { echo "FAILED: $*"; exit 1; }
save() { "$loop_program" save "$@"; }
check() { "$loop_program" check "$@" || fail "check $*"; }

# A file system of its own: NAME MiB MKFS... ; more options for losetup in LOOP_OPTIONS.
mount_image() {
    local name=$1 size=$2
    shift 2
    fallocate -l "${size}M" "$work/$name.img"
    # shellcheck disable=SC2086
    loop=$(losetup ${LOOP_OPTIONS:-} --direct-io=on -f --show "$work/$name.img")
    "$@" "$loop" >/dev/null 2>&1
    mkdir -p "$work/mnt-$name"
    mount "$loop" "$work/mnt-$name"
}

full_disk() { # a failed save is said with its step and leaves room for nothing but itself
    mount_image full 300 mkfs.ext4 -q
    local dir=$work/mnt-full/run
    save "$dir" sync 2 30000000 >/dev/null || fail "room for two"
    save "$dir" uring 1 280000000 >"$work/out" && fail "a full disk was not noticed"
    grep -q "step 2 failed: reserve space.*No space left" "$work/out" || fail "$(cat "$work/out")"
    check "$dir" 1
    [ "$(find "$dir" -name 'step-2*' | wc -l)" = 0 ] || fail "the failed save left something"
    save "$dir" sync 1 30000000 >/dev/null || fail "the next save"
    check "$dir" 2
}

file_systems() { # xfs, btrfs, 4 KiB sectors, tmpfs; ext2 has no fallocate, ramfs no direct I/O
    LOOP_OPTIONS="--sector-size 4096" mount_image sector 200 mkfs.ext4 -q
    mount_image xfs 400 mkfs.xfs -q
    if command -v mkfs.btrfs >/dev/null; then mount_image btrfs 300 mkfs.btrfs -q; fi
    mkdir "$work/mnt-tmpfs"
    mount -t tmpfs -o size=100M tmpfs "$work/mnt-tmpfs"
    mount_image ext2 100 mkfs.ext2 -q
    mkdir "$work/mnt-ramfs"
    mount -t ramfs ramfs "$work/mnt-ramfs"
    for name in sector xfs btrfs tmpfs ext2 ramfs; do
        [ -d "$work/mnt-$name" ] || continue
        for method in uring sync refused; do
            save "$work/mnt-$name/$method" $method 3 9000001 >/dev/null || fail "$name $method"
            check "$work/mnt-$name/$method" 2
        done
    done
    save "$work/mnt-tmpfs/full" sync 1 150000000 >/dev/null && fail "a full tmpfs was not noticed"
    check "$work/mnt-tmpfs/full" -1
    mount -o remount,ro "$work/mnt-sector"
    save "$work/mnt-sector/sync" sync 1 1000 >"$work/out" && fail "a read-only root"
    grep -qi "read-only" "$work/out" || fail "$(cat "$work/out")"
    check "$work/mnt-sector/sync" 2
}

poor() { # NAME WORD...: a file system without what the words say
    local name=$1
    shift
    mkdir "$work/$name" "$work/mnt-$name"
    "$poor_fs" "$work/$name" "$work/mnt-$name" "$@"
}

poor_file_systems() { # as networks have them: no alignment told, no flags of rename, ...
    [ -x "$poor_fs" ] || { echo "poor_fs is not built: such file systems are left out"; return 0; }
    poor told # nothing refused, but no alignment is told: found by trying
    poor flags noreplace
    poor least nodirect nofallocate noreplace
    for name in told flags least; do
        for method in uring sync; do
            local dir=$work/mnt-$name/$method
            save "$dir" $method 3 9000001 >/dev/null || fail "$name $method"
            check "$dir" 2
            "$stoker" ckpt verify "$dir" --all >/dev/null || fail "$name $method"
        done
    done
    # A step that is there is not replaced where rename cannot be told so.
    mkdir "$work/mnt-least/uring/step-3"
    : >"$work/mnt-least/uring/step-3/file"
    save "$work/mnt-least/uring" uring 1 1000 >"$work/out" && fail "step 3 was replaced"
    grep -q "step 3 failed: commit: File exists" "$work/out" || fail "$(cat "$work/out")"
    for what in write sync; do
        touch "$work/least.eio-$what"
        save "$work/mnt-least/$what" sync 1 9000001 >"$work/out" && fail "EIO on $what"
        grep -Eqi "(step 0 failed: $what of part 0.*|cannot be .*)Input/output error" "$work/out" ||
            fail "$(cat "$work/out")"
        rm "$work/least.eio-$what"
        check "$work/mnt-least/$what" -1 || fail "after EIO on $what"
        save "$work/mnt-least/$what" sync 1 9000001 >/dev/null || fail "after EIO on $what"
        check "$work/mnt-least/$what" 0
    done
}

wait_for() { # PATTERN FILE: ten seconds at most
    for _ in $(seq 1 100); do
        if grep -q "$1" "$2"; then return 0; fi
        sleep 0.1
    done
    fail "no $1 in $(tail -n 3 "$2")"
}

broken_disk() { # EIO on writes, then on syncs
    [ -x "$slowdisk" ] || { echo "slowdisk is not built: broken disks are left out"; return 0; }
    mkdir "$work/disk" "$work/mnt-broken"
    fallocate -l 300M "$work/broken.img"
    : >"$work/control"
    "$slowdisk" "$work/broken.img" "$work/disk" ctl="$work/control"
    loop=$(losetup --direct-io=on -f --show "$work/disk/disk")
    mkfs.ext4 -q -F "$loop"
    mount "$loop" "$work/mnt-broken"
    local dir=$work/mnt-broken/run
    for fault in "eio_write 0.5" "eio_sync 1"; do
        "$loop_program" save "$dir" sync 1000 20000000 >"$work/out" &
        pid=$!
        wait_for "^durable" "$work/out"
        echo "$fault" >"$work/control"
        wait_for "^failed.*step" "$work/out"
        kill -KILL $pid
        wait $pid 2>/dev/null || true
        : >"$work/control"
        last=$(awk '/^durable/ {step = $2} END {print step}' "$work/out")
        sleep 0.3
        for _ in $(seq 1 50); do # the last write of the killed process has to end first
            umount "$work/mnt-broken" 2>/dev/null && break
            sleep 0.1
        done
        fsck.ext4 -fy "$loop" >/dev/null 2>&1 || true
        mount "$loop" "$work/mnt-broken"
        check "$dir" "$last" || fail "after $fault"
    done
}

two_processes() { # of two that save the same steps each step is one's, whole
    local dir=$work/two
    "$loop_program" save "$dir" sync 20 1000000 >"$work/one.out" &
    save "$dir" sync 20 1000000 >"$work/two.out" || true
    wait $! || true
    "$stoker" ckpt verify "$dir" --all >/dev/null || fail "two processes"
    check "$dir" "$(awk '/^durable/ {if ($2 > s) s = $2} END {print s + 0}' \
        "$work/one.out" "$work/two.out")" >/dev/null
}

for part in full_disk file_systems poor_file_systems broken_disk two_processes; do
    $part
    echo "OK $part"
done
