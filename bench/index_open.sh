#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Time to open the index of N samples (default 10,000,000), five times, warm: the index has just
# been written. Usage: bench/index_open.sh [BUILD-DIRECTORY [N]]
set -eu
exec "${1:-build}/tests/index_open" "${2:-10000000}"
