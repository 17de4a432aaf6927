#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.save into stoker.open(), into a plain file that is then synced, and into nothing.

    PYTHONPATH=build/python bench/python_open.py FOLDER [MEGABYTES [ROUNDS]]

Writing into nothing is what torch itself takes: its walk over the state, its checksums and the
calls of write(). What the others take beyond that is theirs. Contenders take turns, each round in
another order; told are medians. FOLDER is on the device that is measured.
"""

import io
import os
import random
import resource
import statistics
import sys
import time

import torch

import stoker

N_TENSORS = 300
MIXED = (4096, 1, 1024, 3, 1024, 64, 4096, 1, 2048, 17, 512, 5)


class Nothing(io.RawIOBase):
    """Takes what is written, and counts."""

    n_calls = 0

    def writable(self):
        return True

    def write(self, data, /):
        self.n_calls += 1
        return len(data) if isinstance(data, bytes) else memoryview(data).nbytes


def make(n_bytes):
    mixed = [MIXED[at % len(MIXED)] for at in range(N_TENSORS)]
    return {f"tensor.{at}": torch.ones(max(1, n_bytes // 4 * one // sum(mixed)))
            for at, one in enumerate(mixed)}


def processor():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def nothing(state, path):
    torch.save(state, Nothing())


def plain(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def by_stoker(state, path):
    with stoker.open(path, "wb") as file:
        torch.save(state, file)


def measure(state, path, n_rounds):
    """Medians of (seconds, processor seconds) by contender."""
    contenders = [nothing, plain, by_stoker]
    found = {one: [] for one in contenders}
    for number in range(n_rounds + 1):
        for one in random.sample(contenders, len(contenders)):
            os.sync()
            began, cpu_began = time.perf_counter(), processor()
            one(state, path)
            if number:  # the first of each touches memory and files for the first time
                found[one].append((time.perf_counter() - began, processor() - cpu_began))
    return {one: [statistics.median(column) for column in zip(*rows)]
            for one, rows in found.items()}


def tell(what, medians):
    floor, base = medians[nothing], medians[plain]
    print(f"{what}: into nothing {floor[0]:.3f} s, processor {floor[1]:.2f} s")
    for name, one in (("plain file and fsync", plain), ("stoker.open()", by_stoker)):
        seconds, cpu = medians[one]
        print(f"  {name:21} {seconds:6.3f} s ({seconds / base[0]:4.2f}), processor {cpu:5.2f} s "
              f"({cpu / base[1]:4.2f}), {cpu - floor[1]:5.2f} s of it not torch's "
              f"({(cpu - floor[1]) / (base[1] - floor[1]):4.2f})")


def main(folder, megabytes="1000", rounds="5"):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "bench.pt")
    state = make(int(megabytes) << 20)
    print(f"torch {torch.__version__}, {megabytes} MB in {N_TENSORS} tensors, {rounds} rounds")
    tell("with torch's checksums", measure(state, path, int(rounds)))
    if hasattr(torch.serialization, "set_crc32_options"):  # since torch 2.6
        torch.serialization.set_crc32_options(False)
        tell("without them", measure(state, path, int(rounds)))
    os.remove(path)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
