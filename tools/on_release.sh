#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs what the README promises on a Debian that has nothing yet: make demo, make test, and the
# Python package by pip with the release's own interpreter. What is run is the last commit.
#
#     tools/on_release.sh RELEASE [STEP...]     RELEASE: bookworm, trixie; STEP: demo test pip
#
# Needs root and debootstrap. WORK says where the trees lie (/var/tmp/stoker-releases, 3 GB each),
# MIRROR where packages come from, if not from where debootstrap takes them. The bare tree is kept
# for the next time, the used one as well, until then, to look at. Exits with 1 if a step fails,
# and names it.
set -euo pipefail

release=${1:-}
[ -n "$release" ] || { sed -n '3,12s/^# \{0,1\}//p' "$0"; exit 2; }
shift
steps=("$@")
[ $# -gt 0 ] || steps=(demo test pip)
source=$(cd "$(dirname "$0")/.." && pwd)
work=${WORK:-/var/tmp/stoker-releases}
bare=$work/$release.bare
tree=$work/$release

[ "$(id -u)" = 0 ] || { echo "on_release.sh: needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "on_release.sh: needs debootstrap" >&2; exit 1; }

# What is mounted in the tree is so for this process alone, and goes with it.
if [ -z "${STOKER_ON_RELEASE:-}" ]; then
    STOKER_ON_RELEASE=1 exec unshare --mount --propagation private "$0" "$release" "${steps[@]}"
fi

mkdir -p "$work"
if [ ! -e "$bare/made" ]; then
    rm -rf --one-file-system "$bare"
    debootstrap --variant=minbase "$release" "$bare" ${MIRROR:+"$MIRROR"} >"$work/$release.log" || {
        tail -n 20 "$work/$release.log" >&2
        exit 1
    }
    touch "$bare/made"
fi
rm -rf --one-file-system "$tree"
cp -a --reflink=auto "$bare" "$tree"
# The clone is made from outside, so that the release has to have nothing for it but make.
git clone --quiet --no-hardlinks "$source" "$tree/root/stoker"
cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
# pip trusts whom this machine trusts: a proxy may have a certificate of its own.
ca=""
certificates=/etc/ssl/certs/ca-certificates.crt
if cp -L $certificates "$tree/root/ca.crt" 2>/dev/null; then ca=/root/ca.crt; fi
mount -t proc proc "$tree/proc"
mount --rbind /sys "$tree/sys"
mount --rbind /dev "$tree/dev"

inside() { # COMMAND
    chroot "$tree" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
        ${ca:+PIP_CERT=$ca} PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        bash -c "set -euo pipefail; cd /root/stoker; $1" </dev/null
}

run_step() { # NAME
    case $1 in
    demo) inside 'make demo' ;;
    test) inside 'make test TEST_ARGS="-t 4"' ;;
    pip)
        inside 'apt-get install -y -qq --no-install-recommends python3-venv python3-dev >/dev/null
            tools/setup.sh build && python3 -m venv /root/venv && cd /root &&
            /root/venv/bin/pip install --quiet ./stoker/python &&
            head -c 100000 /dev/urandom >/root/records &&
            /root/venv/bin/python -c "
import stoker
with stoker.Engine(\"ram:1M\") as engine, \
        stoker.Dataset(engine, \"/root/records\", \"record\", record_bytes=100) as data:
    print(\"pip:\", sum(batch.count for batch in stoker.Loader(engine, data, 10, 2)), \"samples\")"'
        ;;
    *) echo "on_release.sh: no step $1" >&2; return 2 ;;
    esac
}

inside 'apt-get update -qq && apt-get install -y -qq --no-install-recommends make >/dev/null'
failed=()
for step in "${steps[@]}"; do
    echo "== $release: $step"
    # Not in a condition, where bash would go on after a command that fails.
    set +e
    (set -e; run_step "$step")
    rc=$?
    set -e
    [ $rc = 0 ] || failed+=("$step")
done
[ ${#failed[@]} = 0 ] || { echo "on_release.sh: $release: failed: ${failed[*]}" >&2; exit 1; }
echo "on_release.sh: $release: all good"
