#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a batch costs in Python over what it costs in C, where all are in RAM.

    PYTHONPATH=build/python bench/python_overhead.py build/src/libstoker.so

The C side is the same three calls (next, touch, release) from the shared library, timed over
many batches by a small program that is compiled here; the Python side is a for loop that takes
the data as a buffer. Prints medians of rounds that take turns. Exits 1 above 10 us a batch.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import stoker

LIMIT_US = 10.0
ROUNDS = 5
BATCHES = 20_000
RECORDS = 4096
RECORD_BYTES = 256
BATCH = 16

C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <stoker/stoker.h>
int main(int argc, char **argv)
{
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .tiers = "ram:64M"};
    stk_dataset_opts data_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                  .record_bytes = RECORD_BYTES};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = BATCH, .layout = STK_LAYOUT_RAW};
    stk_engine *engine; stk_dataset *data; stk_loader *loader; stk_batch batch;
    struct timespec a, b;
    unsigned sum = 0;
    if (argc < 2 || stk_engine_open(&engine, &engine_opts, NULL) < 0 ||
        stk_dataset_open(&data, engine, argv[1], &data_opts, NULL) < 0 ||
        stk_loader_open(&loader, engine, data, &opts, NULL) < 0)
        return 1;
    for (int at = 0; at < 2 * BATCHES; at++) {
        if (at == BATCHES) clock_gettime(CLOCK_MONOTONIC, &a);
        if (stk_loader_next(loader, &batch) != STK_BATCH) return 1;
        sum += *(const unsigned char *)batch.items[0];
        stk_loader_release(loader, &batch);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%f %u\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / 1e3 / BATCHES, sum);
    stk_loader_close(loader); stk_dataset_close(data); stk_engine_close(engine);
    return 0;
}
"""


def build_c(library, folder):
    source, program = folder / "batches.c", folder / "batches"
    source.write_text(C_PROGRAM, encoding="utf-8")
    include = pathlib.Path(__file__).resolve().parent.parent / "include"
    sizes = [f"-D{name}={globals()[name]}" for name in ("RECORD_BYTES", "BATCH", "BATCHES")]
    where = pathlib.Path(library).resolve()
    subprocess.run([os.environ.get("CC", "cc"), "-O2", *sizes, f"-I{include}", "-o", program,
                    source, where, f"-Wl,-rpath,{where.parent}"], check=True)
    return program


def in_c(program, path):
    done = subprocess.run([program, path], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[0])


def in_python(path, touch):
    with stoker.Engine("ram:64M") as engine:
        data = stoker.Dataset(engine, path, "record", record_bytes=RECORD_BYTES)
        with stoker.Loader(engine, data, BATCH, epochs=None, layout="raw") as loader:
            for batch in loader:
                if batch.step == BATCHES:
                    start = time.perf_counter()
                touch(batch)
                if batch.step == 2 * BATCHES:
                    return (time.perf_counter() - start) * 1e6 / BATCHES
    raise RuntimeError("the run ended early")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="stoker-overhead-") as name:
        folder = pathlib.Path(name)
        path = folder / "records.bin"
        path.write_bytes(os.urandom(RECORDS * RECORD_BYTES))
        program = build_c(sys.argv[1], folder)
        sides = {
            "C": lambda: in_c(program, path),
            "Python, next alone": lambda: in_python(path, lambda batch: None),
            "Python, a sample's buffer": lambda: in_python(path, lambda batch: batch.items[0][0]),
        }
        took = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for side, run in sides.items():
                took[side].append(run())
    medians = {side: statistics.median(times) for side, times in took.items()}
    for side, times in took.items():
        print(f"{side:26} {medians[side]:7.2f} us a batch ({min(times):.2f} to {max(times):.2f}), "
              f"{medians[side] / medians['C']:.2f} x C")
    over = medians["Python, a sample's buffer"] - medians["C"]
    print(f"over C: {over:.2f} us a batch (at most {LIMIT_US:.0f})")
    return 1 if over > LIMIT_US else 0


if __name__ == "__main__":
    sys.exit(main())
