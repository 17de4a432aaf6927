#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing on Debian 12 and 13 and on Ubuntu; does nothing, and needs no root,
# where all is there. What is there is found by using it, not by asking the package manager, so
# that compilers and libraries from a home directory count.
#
#   tools/setup.sh [build] [test] [demo] [ranks] [ci]      (without a word: build)
set -eu

missing=""  # packages to install; any of them failing is an error
optional="" # packages to install where the release has them
note=""

have() {
    command -v "$1" >/dev/null 2>&1
}

library() {
    have pkg-config && pkg-config --exists "$1" 2>/dev/null
}

need() {
    missing="$missing $*"
}

# Meson 1.0 or newer; an older one counts as missing.
have_meson() {
    have meson || return 1
    case "$(meson --version 2>/dev/null)" in
    0.* | "") return 1 ;;
    esac
}

# All that is built under build/, the tests and examples as well: what is found is settled when
# the build is set up, and is not looked for again when something else is made in it.
want_build() {
    have gcc || need gcc libc6-dev
    have make || need make
    have python3 || need python3
    have_meson || need meson
    have ninja || need ninja-build
    have pkg-config || need pkg-config
    library libisal || need libisal-dev
    library "nettle >= 3.4" || need nettle-dev
    library jansson || need libjansson-dev
    library cmocka || need libcmocka-dev
    library zlib || need zlib1g-dev
    library "liburing >= 2.3" || optional="$optional liburing-dev"
    library "ucx >= 1.13" || optional="$optional libucx-dev"
    library "fuse3 >= 3.12" || optional="$optional libfuse3-dev"
    system_python_has "$python_headers" || optional="$optional python3-dev"
}

# Whether Python can do something; another one than the system's is not ours to complete.
python_headers='import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")'
system_python_has() {
    case "$(command -v python3)" in
    "" | /usr/bin/python3) python3 -c "$1" 2>/dev/null ;;
    esac
}

want_test() {
    want_build
    system_python_has 'import numpy' || optional="$optional python3-numpy"
    system_python_has 'import torch' || optional="$optional python3-torch"
    # Tests on file systems of their own, which only root may mount.
    if [ "$(id -u)" = 0 ]; then
        have mkfs.ext4 || optional="$optional e2fsprogs"
        have mkfs.xfs || optional="$optional xfsprogs"
        have ip || optional="$optional iproute2"
    fi
}

want_demo() {
    want_build
    [ -d /usr/share/datasets/fashion-mnist ] || need dataset-fashion-mnist
}

# A link between two network namespaces, which only root may make.
want_ranks() {
    want_build
    if [ "$(id -u)" = 0 ]; then
        have ip || need iproute2
    fi
}

# The compilers of .ci/run. Clang 14 is taken where the release has it, else its default one.
want_ci() {
    want_test
    # Ranks that MPI has started; what is for them is left out where there is none.
    { library ompi-c && have mpirun; } || optional="$optional libopenmpi-dev openmpi-bin"
    # A step runs as somebody else, with the system's PATH.
    (PATH=/usr/local/bin:/usr/bin:/bin && have_meson) || need meson
    (PATH=/usr/local/bin:/usr/bin:/bin && have ninja) || need ninja-build
    have g++ || need g++
    have nm || need binutils
    have runuser || need util-linux
    # Faults under real file systems: what is not there is left out, and said.
    library "fuse3 >= 3.12" || optional="$optional libfuse3-dev fuse3"
    have mkfs.xfs || [ -x /usr/sbin/mkfs.xfs ] || optional="$optional xfsprogs"
    have mkfs.btrfs || [ -x /usr/sbin/mkfs.btrfs ] || optional="$optional btrfs-progs"
    if ! have clang-14 && ! have clang; then
        if apt_has clang-14; then need clang-14; else need clang; fi
    fi
    version="$(clang_version)"
    if [ -n "$version" ]; then
        have "clang-tidy-$version" || have clang-tidy || need "clang-tidy-$version"
        has_clang_runtime "$version" || need "libclang-rt-$version-dev"
    fi
    have clang-22 || optional="$optional clang-22"
    have clang-format-14 || optional="$optional clang-format-14"
    # Where the release has no clang-format 14, .ci/run takes it from PyPI into a folder.
    python3 -c 'import venv, ensurepip' 2>/dev/null || need python3-venv
}

# The major version of the clang that is, or will be, there.
clang_version() {
    if have clang-14 || { ! have clang && apt_has clang-14; }; then
        echo 14
    elif have clang; then
        clang -dumpversion | cut -d. -f1
    else
        apt-cache depends clang 2>/dev/null |
            sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1
    fi
}

has_clang_runtime() {
    for folder in "/usr/lib/llvm-$1"/lib/clang/*/lib/linux /usr/lib/clang/"$1"*/lib/linux; do
        [ -e "$folder/libclang_rt.fuzzer-$(uname -m).a" ] && return 0
    done
    return 1
}

apt_has() {
    refresh_once
    [ -n "$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([^(].*\)$/\1/p')" ]
}

as_root=""
find_root() {
    [ "$(id -u)" = 0 ] && return 0
    if have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root="sudo"
        return 0
    fi
    return 1
}

# A release's list of packages is fetched once, and only when something is missing.
refreshed=""
refresh_once() {
    [ -n "$refreshed" ] && return 0
    refreshed=1
    if have apt-get && find_root; then
        $as_root apt-get update -qq </dev/null >&2 || note="apt-get update failed; trying anyway."
    fi
}

install_missing() {
    [ -n "$missing$optional" ] || return 0
    if ! have apt-get; then
        echo "setup: missing:$missing (Debian names); this system has no apt-get." >&2
        [ -z "$missing" ]
        return
    fi
    if ! find_root; then
        [ -n "$missing" ] || return 0
        echo "setup: these packages are missing and only root can install them:" >&2
        echo "    apt-get install$missing$optional" >&2
        echo "setup: run that as root, then run this again." >&2
        return 1
    fi
    refresh_once
    for package in $optional; do
        if apt_has "$package"; then missing="$missing $package"; fi
    done
    [ -n "$missing" ] || return 0
    echo "setup: installing$missing" >&2
    # shellcheck disable=SC2086 # a list of words
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends $missing </dev/null >&2; then
        echo "setup: apt-get could not install$missing. $note" >&2
        return 1
    fi
}

# Ubuntu 22.04 has Meson 0.61; a newer one comes from PyPI.
renew_meson() {
    have_meson && return 0
    have pip3 || { missing=" python3-pip" && optional="" && install_missing; }
    if ! pip3 install --quiet "meson >= 1.0" </dev/null >&2 || ! have_meson; then
        echo "setup: Meson 1.0 or newer is needed; try: pip3 install --user 'meson>=1.0'" >&2
        return 1
    fi
}

[ $# -gt 0 ] || set -- build
for part in "$@"; do
    case "$part" in
    build | test | demo | ranks | ci) "want_$part" ;;
    *)
        echo "usage: tools/setup.sh [build] [test] [demo] [ranks] [ci]" >&2
        exit 2
        ;;
    esac
done
install_missing
renew_meson
