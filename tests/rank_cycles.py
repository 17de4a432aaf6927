#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks as processes over UCX that come and go many times: engines, data sets, loaders and
what they read of each other. Neither holds more at the end than after the first tenth: no
descriptor, no thread, no memory.

    rank_cycles.py RANK_CYCLES

100 times, 10,000 with STOKER_TEST_LONG, on one machine, where they read each other's memory;
and then, as root with ip, half as often in two network namespaces."""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from hosts import Hosts

SAMPLES, SAMPLE_BYTES = 24, 20000
# An allocator keeps some for the threads that were; so does UCX for connections.
HEAP_BYTES, RESIDENT_BYTES, MAPPED_BYTES = 64 << 10, 4 << 20, 16 << 20
# A sanitizer keeps what was freed for a while: not for so long that it looks like growth.
ENVIRONMENT = {**os.environ,
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
               ":thread_local_quarantine_size_kb=64"}
failed = 0
next_port = 12000 + os.getpid() % 20000 // 16 * 16


def check(good, text):
    global failed
    if not good:
        failed += 1
        print("FAILED:", text, flush=True)


def run(name, program, folder, cycles, prefixes, address):
    global next_port
    next_port += 16
    began = time.monotonic()
    ranks = [subprocess.Popen(
        prefixes[rank] + [program, str(rank), "2", address, str(next_port), folder, str(cycles)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
             for rank in range(2)]
    for rank, process in enumerate(ranks):
        try:
            out, err = process.communicate(timeout=60 + cycles)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            out += "HANGS"
        check(process.returncode == 0, f"{name}: rank {rank}: {process.returncode} {out} {err}")
        if process.returncode != 0:
            continue
        more = json.loads(out)
        print(f"{name}, rank {rank}: {out.strip()}, {time.monotonic() - began:.0f} s", flush=True)
        check(more["files"] == 0, f"{name}: rank {rank} has {more['files']} descriptors more")
        check(more["threads"] == 0, f"{name}: rank {rank} has {more['threads']} threads more")
        check(more["heap"] <= HEAP_BYTES, f"{name}: rank {rank}'s heap grows by {more['heap']}")
        check(more["resident"] <= RESIDENT_BYTES,
              f"{name}: rank {rank} has {more['resident']} bytes more in memory")
        check(more["mapped"] <= MAPPED_BYTES,
              f"{name}: rank {rank} has {more['mapped']} bytes more mapped")


def main():
    program = os.path.abspath(sys.argv[1])
    cycles = 10000 if os.environ.get("STOKER_TEST_LONG") else 100
    with tempfile.TemporaryDirectory(prefix="stoker-cycles-") as folder:
        drawn = random.Random(6)
        for at in range(SAMPLES):
            with open(os.path.join(folder, f"{at:05}"), "wb") as file:
                file.write(drawn.randbytes(SAMPLE_BYTES))
        run("one machine", program, folder, cycles, [[], []], "127.0.0.1")
        two = Hosts("stkc", "10.94.0")
        try:
            if two.names:
                run("two hosts", program, folder, cycles // 2, [two.at(0), two.at(1)], two.address)
        finally:
            two.remove()
    print("failed checks:", failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
