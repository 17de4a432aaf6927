#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Uses the installed library as a stranger would: tests/installed/run.sh PREFIX SCRATCH
# Every header alone and a program, in C99 -pedantic and in C++17, by pkg-config.
set -eu
prefix="$1"
scratch="$2"
here="$(cd "$(dirname "$0")" && pwd)"

PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
export PKG_CONFIG_PATH
compile_flags="$(pkg-config --cflags stoker)"
link_flags="$(pkg-config --libs stoker)"
c="gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror"
cxx="g++ -std=c++17 -pedantic-errors -Wall -Wextra -Werror"

mpi_flags="$(pkg-config --cflags ompi-c 2>/dev/null || true)"
for header in "$prefix"/include/stoker/*.h; do
    name="stoker/$(basename "$header")"
    flags="$compile_flags"
    if [ "$name" = stoker/mpi.h ]; then # for programs that have MPI
        [ -n "$mpi_flags" ] || continue
        flags="$flags $(echo "$mpi_flags" | sed 's/-I/-isystem /g')"
    fi
    # Twice, so that its guard is tried too.
    printf '#include <%s>\n#include <%s>\nint nothing;\n' "$name" "$name" >"$scratch/alone.c"
    cp "$scratch/alone.c" "$scratch/alone.cpp"
    # shellcheck disable=SC2086 # lists of words
    $c $flags -fsyntax-only "$scratch/alone.c"
    # shellcheck disable=SC2086
    $cxx $flags -fsyntax-only "$scratch/alone.cpp"
    echo "$name compiles alone as C99 and as C++17"
done

cp "$here/order.c" "$scratch/order.cpp"
# shellcheck disable=SC2086
$c $compile_flags -o "$scratch/order-c" "$here/order.c" $link_flags
# shellcheck disable=SC2086
$cxx $compile_flags -o "$scratch/order-cxx" "$scratch/order.cpp" $link_flags
for program in order-c order-cxx; do
    LD_LIBRARY_PATH="$prefix/lib" "$scratch/$program"
done

[ -f "$prefix/share/man/man1/stoker.1" ]
