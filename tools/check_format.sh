#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks that every C file is as clang-format 14 would write it; --fix writes it so. Another
# version formats differently, so none other is taken. CLANG_FORMAT names one.
set -eu
cd "$(dirname "$0")/.."

is_14() {
    case "$("$1" --version 2>/dev/null)" in
    *" version 14."*) return 0 ;;
    *) return 1 ;;
    esac
}

for program in "${CLANG_FORMAT:-clang-format-14}" clang-format-14 clang-format; do
    if is_14 "$program"; then
        mode="--dry-run -Werror"
        [ "${1:-}" = --fix ] && mode="-i"
        # shellcheck disable=SC2086 # a list of words
        find include src cli python examples bench tests -name '*.[ch]' -print0 |
            xargs -0 "$program" --style=file $mode
        exit
    fi
done
echo "check_format: clang-format 14 is needed: apt-get install clang-format-14," \
    "or pip install clang-format==14.0.6 and CLANG_FORMAT=path" >&2
exit 1
