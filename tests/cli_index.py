#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""'stoker index' from outside: where the index goes, and what is said where it goes nowhere.

Usage: cli_index.py STOKER"""
import json
import os
import subprocess
import sys
import tempfile

NOBODY = 65534


class Failures:
    count = 0

    def check(self, good, text):
        if not good:
            self.count += 1
            print("FAILED:", text)


def become_nobody():
    """The administrator may write everywhere."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def index(stoker, *words):
    return subprocess.run([stoker, "index", *words], capture_output=True, text=True, timeout=60,
                          check=False, preexec_fn=become_nobody)


def make_folder(path):
    os.makedirs(path)
    for k in range(5):
        with open(f"{path}/{k}", "w", encoding="utf-8") as file:
            file.write("sample")


def check_read_only(fail, stoker, directory):
    """A data set that nothing can be written beside."""
    folder, cache = f"{directory}/data", f"{directory}/cache"
    make_folder(folder)
    os.makedirs(cache)
    os.chmod(cache, 0o777)
    os.chmod(folder, 0o555)
    for _ in range(2):
        done = index(stoker, folder)
        fail.check(done.returncode == 0 and "samples      5" in done.stdout, "without a cache")
        fail.check("not kept" in done.stderr and folder in done.stderr
                   and "Permission denied" in done.stderr and "--cache-dir" in done.stderr,
                   f"without a cache: {done.stderr!r}")
    kept = json.loads(index(stoker, folder, "--json").stdout)
    fail.check(kept["index_built"] is True and kept["index_kept"] is False, f"JSON: {kept}")
    for bad, reason in (("/proc/stoker-cache", "No such file"), ("/dev/null", "Not a directory"),
                        (f"{folder}/cache", "Permission denied")):
        done = index(stoker, folder, "--cache-dir", bad)
        fail.check(done.returncode == 1 and f"--cache-dir {bad}: {reason}" in done.stderr,
                   f"--cache-dir {bad}: exit {done.returncode}, {done.stderr!r}")
    for built in (True, False):
        done = index(stoker, folder, "--cache-dir", f"{cache}/made", "--json")
        fail.check(done.returncode == 0 and done.stderr == "", f"a good cache: {done.stderr!r}")
        kept = json.loads(done.stdout)
        fail.check(kept["index_built"] is built and kept["index_kept"] is True, f"JSON: {kept}")
    os.chmod(folder, 0o777)
    done = index(stoker, folder, "--rebuild", "--cache-dir", "/dev/null")
    fail.check(done.returncode == 0 and done.stderr == "" and
               os.path.exists(f"{folder}/.stoker-index"), f"no cache needed: {done.stderr!r}")


def check_status(fail, stoker, directory):
    """2 where the command line is wrong, 1 where what it names is."""
    folder = f"{directory}/plain"
    make_folder(folder)
    os.chmod(folder, 0o777)
    for words, message, status in (
            ([folder, "--io-method", "pigeon"], "io_method", 2),
            ([folder, "--format", "folder", "--record-bytes", "4"], "record_bytes", 2),
            ([f"{folder}/0", "--format", "record", "--record-bytes", "4"], "remain", 1),
            ([f"{folder}/none"], "No such file", 1)):
        done = index(stoker, *words)
        fail.check(done.returncode == status and message in done.stderr,
                   f"{words}: exit {done.returncode}, {done.stderr!r}")
        fail.check(("Try 'stoker help index'" in done.stderr) == (status == 2),
                   f"{words}: {done.stderr!r}")


def check_words(fail, stoker, directory):
    """Nothing in it, and names that would write to the terminal."""
    for extra in ([], ["--extensions", "*"]):
        folder = f"{directory}/empty{len(extra)}"
        os.makedirs(folder)
        done = index(stoker, folder, "--format", "folder", *extra)
        fail.check(done.returncode == 1 and "there is no file in it" in done.stderr
                   and "*" not in done.stderr, f"an empty folder: {done.stderr!r}")
    os.makedirs(f"{directory}/classes/a")
    done = index(stoker, f"{directory}/classes", "--format", "class-folder", "--extensions", "*")
    fail.check('class "a" holds no file (' in done.stderr, f"an empty class: {done.stderr!r}")
    odd = f"{directory}/a\nb\x1b[31m\x07"
    for words in ([odd], ["--io-method", odd, odd]):
        done = index(stoker, *words)
        fail.check("a\\nb\\x1b[31m\\x07" in done.stderr and "\x1b" not in done.stderr
                   and "\x07" not in done.stderr, f"an odd path: {done.stderr!r}")
    make_folder(odd)
    done = subprocess.run([stoker, "bench", "load", odd, "--format", "folder", "--quiet"],
                          capture_output=True, text=True, timeout=60, check=False)
    fail.check(done.returncode == 0 and "a\\nb\\x1b[31m\\x07: 5 samples" in done.stdout,
               f"an odd path in a report: {done.stdout!r}")
    done = subprocess.run([stoker, "probe", "/proc"], capture_output=True, text=True, timeout=60,
                          check=False)
    fail.check(done.returncode == 1 and "Read-only file system" in done.stderr
               or "Permission denied" in done.stderr, f"probe /proc: {done.stderr!r}")


def main():
    stoker = sys.argv[1]
    fail = Failures()
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        for check in (check_read_only, check_status, check_words):
            check(fail, stoker, directory)
    print(f"{fail.count} failed")
    return 1 if fail.count else 0


if __name__ == "__main__":
    sys.exit(main())
