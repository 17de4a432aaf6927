#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Power cuts under real file systems.

    ckpt_powercut.py CKPT_LOOP STOKER CUT_DISK [FILE-SYSTEM]...

77: not root, or no FUSE or loop devices.

Saves run on ext4, xfs and btrfs on a disk that logs each write and flush, and each step that
was acknowledged. Then, for points of the log, the disk is made as a power cut there may leave
it: all that was flushed and, of the writes since, none, all (in the order they came in), or a
part with some blocks torn off. Each must mount, have a checkpoint at least as new as what had
been acknowledged, every byte of it, and nothing else that is named as a checkpoint and is none.

With STOKER_TEST_LONG the cut is made at every point of the log, else at a few.
"""

import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

LOOP, STOKER, DISK = sys.argv[1:4]
LONG = "STOKER_TEST_LONG" in os.environ
HEAD = struct.Struct("=QQQQ")
TEAR = 4096  # a file system's own superblock does not survive a tear within a block
FILE_SYSTEMS = {"ext4": (64 << 20, ["mkfs.ext4", "-q", "-F"]),
                "xfs": (304 << 20, ["mkfs.xfs", "-q", "-f"]),
                "btrfs": (160 << 20, ["mkfs.btrfs", "-q", "-f"])}


def run(*args, **more):
    done = subprocess.run(args, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, (args, done.returncode, done.stdout, done.stderr)
    return done.stdout


def again(*args):
    """What may be busy for a moment."""
    for _ in range(50):
        if subprocess.run(args, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    run(*args)


def clean_up(work):
    for name in ("vol", "fuse"):
        if os.path.ismount(f"{work}/{name}"):
            subprocess.run(["umount", f"{work}/{name}"], check=False)
    listed = subprocess.run(["losetup", "-n", "-O", "NAME,BACK-FILE"], capture_output=True,
                            text=True, check=False).stdout
    for line in listed.splitlines():
        name, _, back = line.partition(" ")
        if back.strip().startswith(work + "/"):
            subprocess.run(["losetup", "-d", name], check=False)
    if os.path.ismount(f"{work}/fuse"):
        subprocess.run(["umount", f"{work}/fuse"], check=False)
    shutil.rmtree(work, ignore_errors=True)


class Log:
    """What the disk saw: (kind, offset, length, where the bytes are)."""

    def __init__(self, path):
        self.entries = []
        self.file = open(path, "rb")
        while True:
            head = self.file.read(HEAD.size)
            if len(head) < HEAD.size:
                break
            kind, offset, length, _ = HEAD.unpack(head)
            kind = chr(kind)
            self.entries.append((kind, offset, length, self.file.tell()))
            if kind in "WN":
                self.file.seek(length, os.SEEK_CUR)

    def bytes_of(self, entry):
        self.file.seek(entry[3])
        return self.file.read(entry[2])


def apply(log, entry, image, keep=None):
    """Writes an entry to an image, or its first keep bytes."""
    kind, offset, length, _ = entry
    if kind == "W":
        os.pwrite(image, log.bytes_of(entry)[:keep], offset)
    elif kind == "Z":
        os.pwrite(image, bytes(min(length, 1 << 20)), offset) if length <= 1 << 20 else \
            subprocess.run(["fallocate", "-p", "-o", str(offset), "-l", str(length),
                            f"/proc/{os.getpid()}/fd/{image}"], check=True)


def copy_sparse(source, target, size):
    """The data of a sparse file, and no holes."""
    os.ftruncate(target, 0)
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError:
            break
        end = os.lseek(source, at, os.SEEK_HOLE)
        while at < end:
            piece = os.pread(source, min(end - at, 4 << 20), at)
            os.pwrite(target, piece, at)
            at += len(piece)


def record(work, name, size, mkfs):
    """Makes saves on the logging disk; returns the log."""
    image, log = f"{work}/image", f"{work}/log-{name}"
    with open(image, "wb") as file:
        file.truncate(size)
    run(DISK, image, f"{work}/fuse", log)
    device = run("losetup", "--direct-io=on", "-f", "--show", f"{work}/fuse/disk").strip()
    run(*mkfs, device)
    run("mount", device, f"{work}/vol")
    with open(f"{work}/fuse/notes", "w", encoding="ascii") as notes:
        notes.write("begin\n")
        notes.flush()
        for method in ("uring", "sync"):
            subprocess.run([LOOP, "save", f"{work}/vol/run", method, "3", "300000",
                            f"{work}/vol/a", f"{work}/vol/b"], stdout=notes, check=True)
    again("umount", f"{work}/vol")
    run("losetup", "-d", device)
    again("umount", f"{work}/fuse")
    os.unlink(image)
    return Log(log)


def look(work, least, where):
    """Mounts what is left and checks it; which step is there."""
    device = run("losetup", "-f", "--show", f"{work}/left").strip()
    try:
        run("mount", device, f"{work}/vol")
        try:
            run_dir = f"{work}/vol/run"
            if not os.path.isdir(run_dir):
                assert least < 0, (where, "the directory is lost")
                return "none"
            done = subprocess.run([LOOP, "check", run_dir, str(least)], capture_output=True,
                                  text=True, check=False)
            assert done.returncode == 0, (where, least, done.stdout, done.stderr)
            if done.stdout:
                run(STOKER, "ckpt", "verify", run_dir, "--all")
            return done.stdout.strip() or "none"
        finally:
            again("umount", f"{work}/vol")
    finally:
        run("losetup", "-d", device)


def leave(log, pending, how, base, left, size):
    copy_sparse(base, left, size)
    for entry in pending:
        keep = None
        if how == "some":
            if random.random() < 0.5:
                continue
            if entry[0] == "W" and random.random() < 0.3:
                keep = TEAR * random.randrange(entry[2] // TEAR + 1)
        if how != "none":
            apply(log, entry, left, keep)


def chosen(log, begin):
    """The cuts: (how many entries are on the disk, what of those not flushed)."""
    n = len(log.entries)
    kinds = [entry[0] for entry in log.entries]
    at_notes = [(at + 1, "none") for at in range(begin, n) if kinds[at] == "N"]
    writes = [at + 1 for at in range(begin, n) if kinds[at] in "WZ"]
    if LONG:
        cuts = at_notes + [(at + 1, "none") for at in range(begin, n) if kinds[at] == "F"]
        return sorted(cuts + [(at, how) for at in writes for how in ("all", "some")])
    return sorted(at_notes[1:] + [(at, how) for at in random.sample(writes, 3)
                                  for how in ("all", "some")])


def replay(work, name, size, log):
    """Cuts the power at the chosen points; how many, and which steps were found."""
    begin = next(at for at, entry in enumerate(log.entries) if entry[0] == "N")
    base = os.open(f"{work}/base", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    left = os.open(f"{work}/left", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(base, size)
    pending, least, done, found = [], -1, 0, {}
    cuts = chosen(log, begin)
    for upto, how in cuts:
        for entry in log.entries[done:upto]:
            if entry[0] == "F":
                for old in pending:
                    apply(log, old, base)
                pending = []
            elif entry[0] == "N":
                for word in log.bytes_of(entry).decode().split("\n"):
                    if word.startswith("durable "):
                        least = int(word.split()[1])
            else:
                pending.append(entry)
        done = upto
        leave(log, pending, how, base, left, size)
        what = look(work, least, (name, upto, how))
        found[what] = found.get(what, 0) + 1
    os.close(base)
    os.close(left)
    assert least == 5, least
    return len(cuts), found


def main():
    if os.getuid() != 0 or not os.path.exists("/dev/fuse") or \
            subprocess.run(["losetup", "-f"], capture_output=True, check=False).returncode != 0:
        print("needs root, FUSE and loop devices")
        sys.exit(77)
    seed = int(os.environ.get("STOKER_TEST_SEED", "7"))
    work = tempfile.mkdtemp(prefix="stoker-powercut-", dir="/var/tmp")
    tried = 0
    try:
        os.mkdir(f"{work}/fuse")
        os.mkdir(f"{work}/vol")
        for name in sys.argv[4:] or FILE_SYSTEMS:
            size, mkfs = FILE_SYSTEMS[name]
            with open("/proc/filesystems", encoding="ascii") as file:
                known = name in file.read().split()
            if not known or not shutil.which(mkfs[0]):
                print(f"{name} is left out: no {mkfs[0]}, or the kernel does not know it")
                continue
            random.seed(seed)
            log = record(work, name, size, mkfs)
            n, found = replay(work, name, size, log)
            kinds = "".join(entry[0] for entry in log.entries)
            print(f"{name}: {n} cuts in {kinds.count('W')} writes, {kinds.count('F')} flushes: "
                  f"{found}", flush=True)
            tried += 1
    finally:
        clean_up(work)
    sys.exit(0 if tried else 77)


if __name__ == "__main__":
    main()
