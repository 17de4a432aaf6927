#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processor time to plan 90 epochs on one core: 1.28 M samples on 16 ranks (promised: 3 s, and 1 s
# for an epoch planned at the end of the one before) and 14.2 M on 1,024 (120 s, 4 GB); then with
# dropped tails and not quite room for all, where next uses are compared.
#
#     bench/plan_speed.sh [BUILD-DIRECTORY]
set -eu
build="${1:-build}"
"$build/tests/plan_speed" 1281167 16 90
"$build/tests/plan_speed" 14200000 1024 90
"$build/tests/plan_speed" 1281167 16 90 yes 0.9999
"$build/tests/plan_speed" 14200000 1024 90 yes 0.9999
