#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# python_save.py on a volume that takes 500 MB a second, an ext4 of its own:
#
#     sudo PYTHON=python3 bench/python_save.sh [MEGABYTES [ROUNDS]]
#
# PYTHON is one that has a torch. Needs root, libfuse3 and 6 times as much room. BUILD says where
# the build is (build/), VOLUMES where the volume lies (/var/tmp/stoker-volumes).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-"$here/../build"}
megabytes=${1:-1000}
export VOLUMES="${VOLUMES:-/var/tmp/stoker-volumes}" SLOWDISK="$build/bench/slowdisk"

"$here/volume.sh" down python_save
trap '"$here/volume.sh" down python_save' EXIT
trap 'exit 130' INT TERM
files=$("$here/volume.sh" up python_save "$((6 * megabytes + 500))M" wbps=500M)
PYTHONPATH="$build/python" "${PYTHON:-python3}" "$here/python_save.py" "$files/bench" \
    "$megabytes" "${2:-3}"
