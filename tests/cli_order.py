#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""'stoker order' as a person uses it: output, messages, exit status.

Usage: cli_order.py STOKER"""
import hashlib
import os
import signal
import struct
import subprocess
import sys
import time

TEN = "4 1 7 5 3 9 0 8 6 2".split()  # torch.randperm(10), seed 0
IMAGENET = "bbf70b62862c7ae6fac74033870a4e187be3f61ac977c4b9f4a8ecbf1deef134"


def sha256(ids):
    return hashlib.sha256(b"".join(struct.pack("<q", int(i)) for i in ids)).hexdigest()


def lines(*rows):
    return "".join(row + "\n" for row in rows)


# arguments, expected output
GOOD = [
    ("order --kind torch --n 10 --seed 0 --epoch 0", lines(*TEN)),
    ("order --n=10 --seed=0 --all", lines(*TEN)),
    ("order --n 10 --seed -1 --epoch 1 --all", lines(*TEN)),
    ("order --n 1000 --head 2", lines("44", "37")),
    ("order --n 10 --head 0", ""),
    ("order --n 10 --head 18446744073709551615", lines(*TEN)),
    ("order --n 1281167 --sha256", lines(IMAGENET)),
    ("order --n 10 --sha256", lines(sha256(TEN))),
    ("order --n 10 --batch 4", lines("4 1 7 5", "3 9 0 8", "6 2")),
    ("order --n 10 --batch 5", lines("4 1 7 5 3", "9 0 8 6 2")),
    ("order --n 10 --batch 4 --drop-last", lines("4 1 7 5", "3 9 0 8")),
    ("order --n 10 --batch 4 --drop-last --sha256", lines(sha256(TEN[:8]))),
    ("order --n 10 --batch 4 --drop-last --all", lines(*TEN[:8])),
    ("order --n 10 --batch 11 --drop-last", ""),
    ("order --n 10 --world 4 --rank 2 --all", lines("7", "0", "4")),
    ("order --n 10 --world 4 --rank 2 --drop-last --all", lines("7", "0")),
    ("order --n 3 --kind sequential --all", lines("0", "1", "2")),
    ("order --n 3 --no-shuffle --all", lines("0", "1", "2")),
    ("order --n 1 --kind keyed --all", lines("0")),
    ("order --n 1 --sampler generator --num-samples 3 --all", lines("0", "0", "0")),
    ("order --n 1 --sampler stateful --replacement --workers some", lines("0")),
    ("order --n 10 --legacy", lines(*TEN)),
    ("--version", "stoker 0.1.0\n"),
]

# arguments, what the message must contain
BAD = [
    ("", "Usage: stoker"),
    ("burn", "unknown command 'burn'"),
    ("help burn", "unknown command 'burn'"),
    ("order", "--n is missing"),
    ("order --n", "--n needs a value"),
    ("order --n 0", "--n is '0'; it must be a number from 1 to 281474976710656"),
    ("order --n 281474976710657", "--n is '281474976710657'"),
    ("order --n 18446744073709551616", "--n is"),
    ("order --n 10x", "--n is '10x'"),
    ("order --n -1", "--n is '-1'"),
    ("order --n 1 --n 2", "--n is given twice"),
    ("order --n 1 --seed 9223372036854775808", "--seed is"),
    ("order --n 1 --seed +-1", "--seed is"),
    ("order --n 1 --world 0", "--world is '0'; it must be a number from 1 to 1048576"),
    ("order --n 1 --world 1048577", "--world is"),
    ("order --n 1 --rank 1", "--rank is 1; with --world 1 it must be from 0 to 0"),
    ("order --n 1 --batch 0", "--batch is '0'"),
    ("order --n 1 --kind list", "--kind is 'list'; it must be one of: sequential, torch, keyed"),
    ("order --n 1 --all --sha256", "exclude each other"),
    ("order --n 1 --all=1", "--all takes no value"),
    ("order --n 1 --al", "unknown option --al"),
    ("order --n 1 -a", "unknown option -a"),
    ("order --n 1 path", "unexpected argument 'path'"),
    ("order --n 1 --replacement", "replacement"),
    ("order --n 1 --sampler generator --world 2", "world is 2"),
]


def run(program, arguments):
    return subprocess.run([program] + arguments.split(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=60)


def check_good(program):
    for arguments, expected in GOOD:
        done = run(program, arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, ""), (arguments, done)
    for arguments in ("--help", "help", "help order", "order --help", "order --n 1 --help"):
        done = run(program, arguments)
        assert done.returncode == 0 and done.stdout.startswith("Usage: stoker"), (arguments, done)


def check_bad(program):
    for arguments, expected in BAD:
        done = run(program, arguments)
        assert done.returncode == 2 and not done.stdout, (arguments, done)
        assert expected in done.stderr, (arguments, done)


def check_full_disk(program):
    with open("/dev/full", "w") as full:
        done = subprocess.run([program, "order", "--n", "10"], stdout=full,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
    assert done.returncode == 1 and "No space left" in done.stderr, done


def check_interrupt(program):
    """SIGINT ends a computation of seconds within 100 ms."""
    child = subprocess.Popen([program, "order", "--n", "100000000", "--sha256"],
                             stdout=subprocess.PIPE)
    time.sleep(0.3)
    begin = time.monotonic()
    child.send_signal(signal.SIGINT)
    output = child.communicate(timeout=60)[0]
    seconds = time.monotonic() - begin
    assert child.returncode == -signal.SIGINT and output == b"", (child.returncode, output)
    # Twice what is promised: the time of the kernel to free the memory, on a busy machine.
    assert seconds < 0.2, seconds


def main():
    program = os.path.abspath(sys.argv[1])
    check_good(program)
    check_bad(program)
    check_full_disk(program)
    check_interrupt(program)
    print("%d good, %d bad command lines" % (len(GOOD), len(BAD)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
