#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SSD caches know data sets by their files, not by their shape: no other's bytes, no old ones.

Usage: cli_caches.py STOKER"""
import json
import os
import random
import subprocess
import sys
import tempfile

RECORD_BYTES = 1000
RECORDS = 64


def run(stoker, *words):
    return subprocess.run([stoker, *words], capture_output=True, text=True, timeout=60, check=True)


class Cache:
    def __init__(self, stoker, directory):
        self.stoker = stoker
        self.tier = f"ssd:{directory}:64M"

    def load(self, path, *words):
        """(the checksum of all bytes in order, bytes that came from the origin)"""
        done = json.loads(run(self.stoker, "bench", "load", *path.split(), "--json", "--quiet",
                              "--crc", "--tier", self.tier, *words).stdout)
        return done["crc32"], done["origin_bytes"]

    def uncached(self, path, *words):
        return json.loads(run(self.stoker, "bench", "load", *path.split(), "--json", "--quiet",
                              "--crc", *words).stdout)["crc32"]

    def check(self, what, path, is_warm, *words):
        crc, origin_bytes = self.load(path, *words)
        assert crc == self.uncached(path, *words), f"{what}: bytes of another data set"
        assert (origin_bytes == 0) == is_warm, f"{what}: {origin_bytes} bytes from the origin"


def write(path, seed):
    with open(path, "wb") as file:
        file.write(random.Random(seed).randbytes(RECORDS * RECORD_BYTES))


def records(cache, stoker, directory):
    """Files of one shape, even with one name and time; and one that changes."""
    form = ("--format", "record", "--record-bytes", str(RECORD_BYTES))
    for at, name in enumerate(("a.bin", "b.bin", "one/data.bin", "two/data.bin")):
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, at)
        os.utime(path, ns=(10**18, 10**18))
        cache.check(name, path, False, *form)
    for name in ("a.bin", "two/data.bin", "b.bin"):
        cache.check(f"{name} again", os.path.join(directory, name), True, *form)
    both = " ".join(os.path.join(directory, name) for name in ("a.bin", "b.bin"))
    other = " ".join(os.path.join(directory, name) for name in ("b.bin", "a.bin"))
    cache.check("two as one", both, False, *form)
    cache.check("two as one, the other way round", other, False, *form)
    cache.check("two as one again", both, True, *form)
    part = os.path.join(directory, "a.bin")
    cache.check("a part", part, False, *form, "--subset", "3:40")
    cache.check("the same part of another", os.path.join(directory, "b.bin"), False, *form,
                "--subset", "3:40")
    write(part, 9)
    run(stoker, "index", part, *form, "--rebuild")
    cache.check("changed and indexed again", part, False, *form)
    cache.check("changed and indexed again, again", part, True, *form)


def folder(cache, stoker, directory):
    """A file that was changed in its place leaves nothing in its directory's time."""
    path = os.path.join(directory, "classes")
    for name in ("x", "y"):
        os.makedirs(os.path.join(path, name))
        for at in range(10):
            write(os.path.join(path, name, str(at)), at)
    cache.check("a folder", path, False, "--format", "folder")
    cache.check("a folder again", path, True, "--format", "folder")
    index = os.path.join(directory, "kept.stoker-index")
    cache.check("another index of it", path, False, "--format", "folder", "--index", index)
    for words in ((), ("--index", index)):
        with open(os.path.join(path, "x", "3"), "r+b") as file:
            file.write(bytes(str(words), "ascii") + b"in its place")
        run(stoker, "index", path, "--format", "folder", "--rebuild", *words)
        cache.check("a file changed in its place", path, False, "--format", "folder", *words)
        cache.check("a file changed in its place, again", path, True, "--format", "folder", *words)


def main():
    stoker = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="stoker-caches-") as directory:
        os.mkdir(os.path.join(directory, "cache"))
        cache = Cache(stoker, os.path.join(directory, "cache"))
        records(cache, stoker, directory)
        folder(cache, stoker, directory)


if __name__ == "__main__":
    main()
