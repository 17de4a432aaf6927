#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""'stoker bench load' from outside: the right bytes in the right order, its JSON, its messages.

Usage: cli_bench.py STOKER"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib

SAMPLES = 53
RECORD_BYTES = 100
PHASE_KEYS = {"samples", "bytes", "seconds", "samples_per_s", "bytes_per_s", "stall_fraction",
              "step_wait_us", "sources", "origin_bytes", "bound_bytes", "cpu_seconds", "rss_bytes"}
TIERS = ("ram", "ssd", "peer", "origin")

# arguments after "bench", what the message must contain, exit status
BAD = [
    ("", "what is to be measured", 2),
    ("store x", "what is to be measured", 2),
    ("load", "a DATASET is missing", 2),
    ("load" + " x" * 17, "unexpected argument 'x'", 2),
    ("load x --epochs 0", "needs --steps", 2),
    ("load x --policy best", "none, pin, lru", 2),
    ("load x --batch", "--batch needs a value", 2),
    ("load missing", "missing", 1),
    ("load {folder} --format folder --batch 0", "batch", 2),
    ("load {folder} --format folder --batch 262145", "262144", 2),
    ("load {folder} --format folder --rank 1", "rank", 2),
    ("load {folder} --format folder --queue-depth 1025", "queue_depth", 2),
    ("load {folder} --format folder --shape fast", "shape", 2),
    ("load {folder} --format folder --extensions .png", "empty", 1),
    ("save --root {folder} --queue-depth 1025", "queue_depth", 2),
    ("load {folder} --format folder --io-method carrier-pigeon", "io_method", 2),
    ("load {folder} --format folder --tier tape:1G", "tier", 2),
    ("load {folder} --format folder --tier ram:1M --tier ram:3M", "ram is named twice", 2),
    ("load {folder} --format folder --world 2 --rank 2", "rank", 2),
    ("load {record} --format record", "record_bytes", 2),
    ("load {record} --format window --window 0", "--window", 2),
    ("load {record} --format window --window 4 --stride 0", "--stride", 2),
    ("load {folder} --format folder --subset 5", "FIRST:END", 2),
    ("load {folder} --format folder --subset 5:4", "below END", 2),
    ("load {folder} --format folder --subset 0:999999", "at most", 2),
    ("load {folder} {folder} --format folder --weights 1", "one number for each", 2),
    ("load {folder} {folder} --format folder --weights 1,0", "weight 0", 2),
    ("load {folder} --format folder --weights 1 --subset 1:", "exclude each other", 2),
    ("load {folder} --format folder --fields jpg", "fields", 2),
    ("load {folder}/{{0..3}}.tar --format folder", "No such file", 1),
    ("load {folder}/{{0..3}}.tar", "0.tar", 1),
]


class Failures:
    count = 0

    def check(self, good, text):
        if not good:
            self.count += 1
            print("FAILED:", text)


def run(stoker, words):
    return subprocess.run([stoker, "bench", *words], capture_output=True, text=True, timeout=60,
                          check=False)


def load(stoker, path, *words):
    """The parsed JSON of a run."""
    done = run(stoker, ["load", path, "--json", "--quiet", "--crc", *words])
    if done.returncode != 0:
        raise RuntimeError(f"bench load {path} {' '.join(words)}: {done.stderr}")
    if done.stderr:
        raise RuntimeError(f"--quiet, and yet: {done.stderr}")
    return json.loads(done.stdout)


def make_data(directory):
    """A folder of files of many sizes and a file of records; returns both as lists of bytes."""
    draw = random.Random(5)
    folder = os.path.join(directory, "folder")
    files, records = {}, []
    for k in range(SAMPLES):
        name = f"{'abc'[k % 3]}/{k:03}"
        os.makedirs(os.path.join(folder, name[0]), exist_ok=True)
        files[name] = draw.randbytes(draw.choice([0, 1, 511, 512, 4096, 5000, 70001]))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(files[name])
        records.append(draw.randbytes(RECORD_BYTES))
    record = os.path.join(directory, "records.bin")
    with open(record, "wb") as file:
        file.write(b"head" + b"".join(records))
    return folder, [files[name] for name in sorted(files)], record, records


def expected_crc(stoker, samples, epochs, seed, world=1, rank=0):
    crc = 0
    for epoch in range(epochs):
        ids = subprocess.run([stoker, "order", "--n", str(len(samples)), "--seed", str(seed),
                              "--epoch", str(epoch), "--world", str(world), "--rank", str(rank),
                              "--all"], capture_output=True, text=True, check=True).stdout.split()
        for sample in ids:
            crc = zlib.crc32(samples[int(sample)], crc)
    return crc


def check_object(fail, result, n_epochs):
    fail.check(len(result["epochs"]) == n_epochs, f"{len(result['epochs'])} epochs")
    for phase in [result, *result["epochs"]]:
        fail.check(PHASE_KEYS <= phase.keys(), f"keys missing: {PHASE_KEYS - phase.keys()}")
        fail.check(set(phase["sources"]) == set(TIERS), f"sources {phase['sources']}")
        fail.check(set(phase["step_wait_us"]) == {"p50", "p99", "max"}, "step_wait_us")
        fail.check(0 <= phase["stall_fraction"] <= 1.001, f"stall {phase['stall_fraction']}")
        fail.check(sum(phase["sources"].values()) == phase["samples"],
                   f"sources {phase['sources']} of {phase['samples']} samples")
    for key in ("samples", "bytes", "batches"):
        total = sum(epoch[key] for epoch in result["epochs"])
        fail.check(total == result[key], f"{key}: epochs have {total}, all {result[key]}")


def check_bytes(fail, stoker, data):
    """Every way of reading gives the same bytes in the order that stoker order prints."""
    folder, files, record, records = data
    record_words = ["--format", "record", "--header-bytes", "4", "--record-bytes",
                    str(RECORD_BYTES)]
    ways = [[], ["--buffered"], ["--queue-depth", "1"], ["--tier", "ram:4M"],
            ["--tier", "ram:256K"], ["--tier", "ram:256K", "--policy", "lru"],
            ["--policy", "none", "--staging-batches", "2"], ["--workers", "1", "--io-threads", "1"]]
    for method in ("sync", "auto"):
        for way in ways:
            words = ["--epochs", "3", "--batch", "7", "--seed", "9", "--io-method", method, *way]
            for path, kind, samples in ((folder, ["--format", "folder"], files),
                                        (record, record_words, records),
                                        (record, [*record_words, "--layout", "raw"], records)):
                result = load(stoker, path, *kind, *words)
                check_object(fail, result, 3)
                fail.check(result["samples"] == 3 * SAMPLES,
                           f"{words}: {result['samples']} samples")
                fail.check(result["crc32"] == expected_crc(stoker, samples, 3, 9),
                           f"{path} {kind} {words}: other bytes or another order")


def check_shares(fail, stoker, data):
    """What ranks read, what steps cut off, and what stays in RAM."""
    folder, files = data[0], data[1]
    base = ["--format", "folder", "--batch", "5", "--seed", "3"]
    for rank in range(3):
        result = load(stoker, folder, *base, "--world", "3", "--rank", str(rank), "--epochs", "2")
        fail.check(result["crc32"] == expected_crc(stoker, files, 2, 3, 3, rank), f"rank {rank}")
    result = load(stoker, folder, *base, "--epochs", "0", "--steps", "13", "--touch")
    fail.check(result["batches"] == 13 and len(result["epochs"]) == 2, "--steps 13")
    result = load(stoker, folder, *base, "--drop-last", "--epochs", "1")
    fail.check(result["samples"] == SAMPLES // 5 * 5, f"--drop-last: {result['samples']}")
    held = load(stoker, folder, *base, "--epochs", "4", "--tier", "ram:4M")
    total = sum(len(file) for file in files)
    fail.check(held["origin_bytes"] == held["bound_bytes"] == total,
               f"held: {held['origin_bytes']} of bound {held['bound_bytes']}, set {total}")


def check_views(fail, stoker, data):
    """Several data sets are one behind the other; a subset is a part of that; weights mix."""
    folder, files = data[0], data[1]
    base = ["--format", "folder", "--batch", "5", "--seed", "3"]
    twice = load(stoker, folder, folder, *base, "--epochs", "2")
    fail.check(twice["crc32"] == expected_crc(stoker, files + files, 2, 3), "two data sets")
    for words, part in (("3:20", files[3:20]), (":9", files[:9]), ("30:", files[30:])):
        some = load(stoker, folder, *base, "--subset", words)
        fail.check(some["crc32"] == expected_crc(stoker, part, 1, 3), f"--subset {words}")
    mixes = [load(stoker, folder, folder, *base, "--epochs", "3", "--weights", weights)
             for weights in ("1,2", "0.5,1", "2,1")]
    fail.check(mixes[0]["samples"] == 6 * SAMPLES, "samples of a mix")
    fail.check(mixes[0]["crc32"] == mixes[1]["crc32"] != mixes[2]["crc32"], "draws of a mix")


def check_messages(fail, stoker, data):
    for line, message, status in BAD:
        words = [word.format(folder=data[0], record=data[2]) for word in line.split()]
        done = run(stoker, words)
        fail.check(done.returncode == status, f"bench {line}: exit {done.returncode}")
        fail.check(message in done.stderr and done.stdout == "", f"bench {line}: {done.stderr!r}")
    odd = os.fsencode(data[0]) + b"\xff"
    os.symlink(os.fsencode(data[0]), odd)
    result = load(stoker, odd, "--format", "folder")
    fail.check(result["dataset"] == os.fsdecode(data[0]) + "\ufffd", "a path that is not UTF-8")
    done = run(stoker, ["load", data[0], "--format", "folder", "--epochs", "2"])
    fail.check("epoch 1:" in done.stderr and "CPU s" in done.stdout, "plain lines")


def check_warning(fail, stoker, data):
    """A tier that cannot be used ends no run, but is told, once, and in the JSON."""
    words = ["load", data[0], "--format", "folder", "--quiet", "--tier",
             "ssd:/nonexistent:1G"]
    done = run(stoker, words)
    lines = done.stderr.splitlines()
    fail.check(done.returncode == 0 and len(lines) == 1 and "warning: " in lines[0]
               and "/nonexistent" in lines[0], f"a tier that is not there: {done.stderr!r}")
    result = json.loads(run(stoker, [*words, "--json"]).stdout)
    fail.check("/nonexistent" in result.get("warning", "") and result["ssd"]["dropped"] == 1,
               f"a tier that is not there, in JSON: {result.get('warning')}")
    result = load(stoker, data[0], "--format", "folder")
    fail.check("warning" not in result, f"a warning of nothing: {result.get('warning')}")


def check_interrupt(fail, stoker, data):
    """SIGINT while waiting for storage, and while computing."""
    for words in (["--shape", "rbps=20K rlat=50ms"], ["--compute-us", "60000000"],
                  ["--compute-us", "60000000", "--spin"]):
        with subprocess.Popen([stoker, "bench", "load", data[0], "--format", "folder", "--json",
                               *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(2.0)  # past the opening, also with a sanitizer on a busy machine
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out = process.communicate(timeout=30)[0]
            took = time.monotonic() - began
        fail.check(process.returncode == 130, f"SIGINT, {words}: exit {process.returncode}")
        fail.check(took < float(os.environ.get("INTERRUPT_SECONDS", "0.5")),
                   f"SIGINT, {words}: {took:.3f} s to the end")
        fail.check(json.loads(out)["interrupted"] is True, f"SIGINT, {words}: the report")


def main():
    stoker = sys.argv[1]
    fail = Failures()
    with tempfile.TemporaryDirectory() as directory:
        data = make_data(directory)
        for check in (check_bytes, check_shares, check_views, check_messages, check_warning,
                      check_interrupt):
            check(fail, stoker, data)
    print(f"{fail.count} failed")
    return 1 if fail.count else 0


if __name__ == "__main__":
    sys.exit(main())
