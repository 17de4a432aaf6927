#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the plan of one rank takes when its loader is opened: 1.28 M samples on 16 ranks, counted;
# 100 M on 4,096 ranks by first readers; 1,000 M on 4,096 ranks, computed from the order. About two
# minutes, 2 GB of memory.
#
#     bench/rank_scale.sh [BUILD-DIRECTORY]
set -eu
build="${1:-build}"
"$build/tests/rank_scale" 1281167 16 90 torch
"$build/tests/rank_scale" 100000000 4096 3 torch
"$build/tests/rank_scale" 100000000 4096 3 torch ssd
"$build/tests/rank_scale" 100000000 4096 3 keyed
"$build/tests/rank_scale" 1000000000 4096 90 keyed
