#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SSDs that fail in mid-run, are full, may not be written or know no direct I/O: the run goes on,
# and the bytes stay right.
#
#     ssd_faults.sh STOKER SLOWDISK VOLUME.SH
#
# Needs root, FUSE and loop devices; exit 77 where they are missing.
set -u

stoker=$1
export SLOWDISK="$2"
volume=$3
[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] && [ -x "$SLOWDISK" ] || exit 77
losetup -f >/dev/null 2>&1 || exit 77
root=$(mktemp -d /tmp/stoker-faults-XXXXXX)
export VOLUMES="$root/volumes"
down() {
    umount "$root/ramfs" 2>/dev/null
    "$volume" down ssd >/dev/null 2>&1
    rm -rf "$root"
}
trap down EXIT
control=$root/control
: >"$control"
head -c 12000000 /dev/urandom >"$root/data.bin"
ssd=$("$volume" up ssd 64M "ctl=$control") || exit 77

fail() {
    echo "$*" >&2
    exit 1
}

load() { # OUT ARGUMENT...
    out=$1
    shift
    "$stoker" bench load "$root/data.bin" --format record --record-bytes 6000 --batch 20 --crc \
        --json --quiet --staging-bytes 1M "$@" >"$out"
}

value() { # FILE KEY KEY...
    python3 -c 'import json, sys
v = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    v = v[key]
print(v)' "$@"
}

load "$root/plain.json" --epochs 4 || fail "the run without an SSD failed"
crc=$(value "$root/plain.json" crc32)

for fault in "eio_read 1" "eio_write 1"; do
    for method in uring sync; do
        : >"$control"
        rm -rf "$ssd"/stoker-*
        load "$root/run.json" --epochs 4 --tier "ssd:$ssd:20M" --compute-us 4000 \
            --io-method "$method" &
        job=$!
        case $fault in
        eio_read*) sleep 0.9 ;; # in the second epoch: everything comes from the SSD
        *) sleep 0.1 ;;         # while it is being filled
        esac
        echo "$fault" >"$control"
        wait "$job" || fail "$fault, $method: the run ended with $?"
        [ "$(value "$root/run.json" crc32)" = "$crc" ] || fail "$fault, $method: wrong bytes"
        [ "$(value "$root/run.json" ssd dropped)" = 1 ] || fail "$fault, $method: not given up"
        sleep 0.2 # the disk looks at its control file now and then
        : >"$control"
        "$volume" down ssd >/dev/null 2>&1
        ssd=$("$volume" up ssd 64M "ctl=$control") || exit 1
        # On a disk that works again the tier does, too.
        load "$root/again.json" --epochs 4 --tier "ssd:$ssd:20M" || fail "the next run failed"
        [ "$(value "$root/again.json" crc32)" = "$crc" ] || fail "the next run: wrong bytes"
    done
done

# Every byte is right; the rest is said of the origin's part: all, none, or some.
cached() { # ORIGIN TITLE ARGUMENT...
    origin=$1 title=$2
    shift 2
    load "$root/run.json" --epochs 1 "$@" || fail "$title: the run failed"
    [ "$(value "$root/run.json" crc32)" = "$once" ] || fail "$title: wrong bytes"
    read_bytes=$(value "$root/run.json" origin_bytes)
    case $origin in
    all) [ "$read_bytes" = 12000000 ] ;;
    none) [ "$read_bytes" = 0 ] ;;
    *) [ "$read_bytes" -gt 0 ] && [ "$read_bytes" -lt 12000000 ] ;;
    esac || fail "$title: $read_bytes bytes from the origin"
}

load "$root/once.json" --epochs 1 || fail "the run without an SSD failed"
once=$(value "$root/once.json" crc32)
tier="ssd:$ssd:20M"

for method in uring sync; do
    rm -rf "$ssd"/stoker-*
    room=$(($(stat -f -c '%a * %S' "$ssd")))
    fallocate -l $((room - 5000000)) "$ssd/others" || fail "the disk cannot be filled"
    cached all "a full disk, $method" --tier "$tier" --io-method "$method"
    cached some "a full disk's cache, $method" --tier "$tier" --io-method "$method"
    rm "$ssd/others"
    cached some "room again, $method" --tier "$tier" --io-method "$method"

    mount -o remount,ro "$ssd" || fail "the disk cannot be made read-only"
    cached none "a cache on a read-only disk, $method" --tier "$tier" --io-method "$method"
    mount -o remount,rw "$ssd"
    rm -rf "$ssd"/stoker-*
    mount -o remount,ro "$ssd"
    cached all "a read-only disk, $method" --tier "$tier" --io-method "$method"
    mount -o remount,rw "$ssd"

    mkdir -p "$root/ramfs"
    mount -t ramfs ramfs "$root/ramfs" || fail "no ramfs"
    cached all "no direct I/O, $method" --tier "ssd:$root/ramfs:20M" --io-method "$method"
    cached none "no direct I/O, again, $method" --tier "ssd:$root/ramfs:20M" --io-method "$method"
    umount "$root/ramfs"
done
exit 0
