#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A slow volume with a real file system: image file, slowdisk, loop device, ext4.
#
#     volume.sh up NAME SIZE [KEY=VALUE]...    mounts it and prints where; SIZE as for fallocate
#     volume.sh set NAME [KEY=VALUE]...        the same volume, the same files, other limits
#     volume.sh share NAME N [KEY=VALUE]...    the same files for N machines: N mounts that are
#                                              only read, each with a device and caches of its
#                                              own; prints them. up to down, or set, as before
#     volume.sh down NAME                      takes it down, whatever of it is there
#
# Keys are slowdisk's. VOLUMES says where volumes lie (/var/tmp/stoker-volumes), SLOWDISK which
# binary to use. Needs root. Below 90 us per operation there is nothing to be had.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
slowdisk=${SLOWDISK:-"$here/../build/bench/slowdisk"}
volumes=$(realpath -m "${VOLUMES:-/var/tmp/stoker-volumes}")

fail() {
    echo "volume.sh: $*" >&2
    exit 1
}

mounted() { # not mountpoint(1), which takes the mount of a dead slowdisk for none
    awk -v m="$1" '$2 == m { found = 1 } END { exit !found }' /proc/mounts
}

detach() { # everything but the image; safe to call in any state
    root=$1
    for at in "$root/files" "$root"/share[0-9]*; do
        if mounted "$at"; then umount "$at" || umount -l "$at"; fi
    done
    for loop in $(losetup -n -O NAME,BACK-FILE |
        awk -v f="$root/disk/disk" '$2 == f { print $1 }'); do
        losetup -d "$loop" || true
    done
    tries=0 # the last reference goes a moment after the loop device
    while mounted "$root/disk" && ! umount "$root/disk" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { umount -l "$root/disk"; break; }
        sleep 0.1
    done
}

attach() { # ROOT MKFS KEY=VALUE...
    root=$1
    make=$2
    shift 2
    "$slowdisk" "$root/image" "$root/disk" "$@"
    loop=$(losetup --direct-io=on -f --show "$root/disk/disk")
    if [ "$make" = 1 ]; then
        mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"
    fi
    mount -o noatime "$loop" "$root/files"
    echo "$root/files"
}

share() { # ROOT N KEY=VALUE...
    root=$1
    count=$2
    shift 2
    "$slowdisk" "$root/image" "$root/disk" "$@"
    at=0
    while [ "$at" -lt "$count" ]; do
        loop=$(losetup -r --direct-io=on -f --show "$root/disk/disk")
        mkdir -p "$root/share$at"
        mount -o ro,noload "$loop" "$root/share$at"
        echo "$loop $root/share$at"
        at=$((at + 1))
    done
}

[ $# -ge 2 ] || { sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 2; }
command=$1
root=$volumes/$2
case $2 in */* | . | ..) fail "a name, not a path: $2" ;; esac
[ "$(id -u)" = 0 ] || fail "needs root"

case $command in
up)
    [ $# -ge 3 ] || fail "up needs a name and a size"
    [ -x "$slowdisk" ] || fail "$slowdisk is not there: it is built where libfuse3 is"
    [ ! -e "$root" ] || fail "$root is there: take it down first"
    mkdir -p "$root/disk" "$root/files"
    trap 'detach "$root"; rm -rf --one-file-system "$root"' EXIT
    fallocate -l "$3" "$root/image"
    shift 3
    attach "$root" 1 "$@"
    trap - EXIT
    ;;
set)
    [ -f "$root/image" ] || fail "no volume $2"
    shift 2
    detach "$root"
    trap 'detach "$root"' EXIT
    attach "$root" 0 "$@"
    trap - EXIT
    ;;
share)
    [ $# -ge 3 ] || fail "share needs a name and how many"
    [ -f "$root/image" ] || fail "no volume $2"
    count=$3
    case $count in '' | *[!0-9]* | 0) fail "share needs a count of 1 or more, not '$count'" ;; esac
    shift 3
    detach "$root"
    trap 'detach "$root"' EXIT
    share "$root" "$count" "$@"
    trap - EXIT
    ;;
down)
    detach "$root"
    rm -rf --one-file-system "$root"
    ;;
*)
    fail "up, set, share or down, not $command"
    ;;
esac
