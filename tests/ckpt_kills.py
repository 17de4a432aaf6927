#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that save and are killed or stopped.

    ckpt_kills.py CKPT_LOOP STOKER [SLOWDISK]

With STOKER_TEST_LONG 500 are killed, else 12. With SLOWDISK, as root, also on a disk so slow
that a killed process's direct writes land after its death.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LOOP, STOKER = sys.argv[1:3]
SLOWDISK = sys.argv[3] if len(sys.argv) > 3 else "none"
KILLS = 500 if "STOKER_TEST_LONG" in os.environ else 12
METHODS = ("uring", "sync")
RUNNING = []


def start(directory, method, steps, n_bytes, roots=()):
    RUNNING.append(subprocess.Popen([LOOP, "save", directory, method, str(steps), str(n_bytes),
                                     *roots], stdout=subprocess.PIPE, text=True))
    return RUNNING[-1]


def durable(line):
    return int(line.split()[1]) if line.startswith("durable ") else -1


def kill(process):
    """Ends it; the last step that it said to be durable."""
    process.send_signal(signal.SIGKILL)
    said = [durable(line) for line in process.stdout]
    process.wait()
    return max(said, default=-1)


def check(directory, least):
    done = subprocess.run([LOOP, "check", directory, str(least)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, (least, done.stdout, done.stderr)


def verify_all(directory):
    subprocess.run([STOKER, "ckpt", "verify", directory, "--all"], check=True,
                   capture_output=True)


def parts(*tops):
    """The files of saves: path -> (id, inode, time of the last write)."""
    found = {}
    for top in tops:
        for folder, _, names in os.walk(top):
            match = re.match(r"step-\d+\.([0-9a-f]{16}-[0-9a-f]+)$", os.path.basename(folder))
            for name in names if match else ():
                try:
                    status = os.stat(f"{folder}/{name}")
                except FileNotFoundError:
                    continue
                found[f"{folder}/{name}"] = (match[1], status.st_ino, status.st_mtime_ns)
    return found


def committed(directory):
    """The ids of all checkpoints that there are."""
    ids = set()
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        if re.match(r"step-\d+$", name):
            try:
                with open(f"{directory}/{name}/manifest.json", "rb") as file:
                    ids.add(json.load(file)["id"])
            except FileNotFoundError:  # one that lives is just removing it
                assert RUNNING[-1].poll() is None, name
    return ids


def check_reuse(old, killed_ns, old_ids, tops):
    """Nothing that a dead process left was written again, or became part of a checkpoint."""
    now = parts(*tops)
    left = {path: what for path, what in old.items() if what[0] not in old_ids}
    for path, (_, inode, _) in left.items():
        if path in now:
            assert now[path][1] == inode, path
            assert now[path][2] <= killed_ns, (path, now[path], killed_ns)
    reused = (committed(tops[0]) - old_ids) & {what[0] for what in left.values()}
    assert not reused, reused
    return len(left)


def killed(top):
    """At random moments: before, in and after the first saves."""
    tops = [f"{top}/run", f"{top}/root1", f"{top}/root2"]
    least, n_left, old, old_ids, killed_ns = -1, 0, {}, set(), 0
    for at in range(KILLS):
        process = start(tops[0], METHODS[at % 2], 1000, 3000000, tops[1:])
        for _ in range(random.randrange(4)):
            least = max(least, durable(process.stdout.readline()))
        time.sleep(random.random() * 0.08)
        if at % 5 == 0:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.05)
        least = max(least, kill(process))
        now_ns = time.time_ns()
        if os.path.isdir(tops[0]):
            check(tops[0], least)
        n_left += check_reuse(old, killed_ns, old_ids, tops)
        old, old_ids, killed_ns = parts(*tops), committed(tops[0]), now_ns
    assert least >= 0 and n_left > 0, (least, n_left)
    before = len(old)
    subprocess.run([STOKER, "ckpt", "prune", tops[0], "--orphans", "--root", tops[1], "--root",
                    tops[2]], check=True, capture_output=True)
    after = parts(*tops)
    assert {what[0] for what in after.values()} == committed(tops[0]), after
    check(tops[0], least)
    verify_all(tops[0])
    print(f"{KILLS} kills: step {least} acknowledged, {n_left} left parts seen by the next, "
          f"{before} files pruned to {len(after)}")


def stopped(top):
    """One is stopped in the middle; another saves on; the first goes on and hurts nothing."""
    run = f"{top}/stopped"
    process = start(run, "auto", 1000, 3000000)
    least = durable(process.stdout.readline())
    time.sleep(random.random() * 0.02)
    process.send_signal(signal.SIGSTOP)
    other = start(run, "sync", 4, 3000000)
    out, _ = other.communicate()
    said = [durable(line) for line in out.splitlines()]
    least = max(least, *said)
    assert other.returncode == 0, out
    check(run, least)
    process.send_signal(signal.SIGCONT)
    for _ in range(8):
        process.stdout.readline()
    kill(process)
    check(run, least)
    verify_all(run)
    print(f"stopped and gone on with: step {least} stayed")


def uncommitted(run):
    ids = committed(run)
    return [path for path, what in parts(run).items() if what[0] not in ids]


def contents(paths):
    found = {}
    for path in paths:
        if os.path.exists(path):  # else it was being removed
            with open(path, "rb") as file:
                found[path] = hash(file.read())
    return found


def late(top):
    """What a dead process's writes do after its death they do to its own files."""
    image, disk, volume = f"{top}/image", f"{top}/disk", f"{top}/volume"
    os.mkdir(disk)
    os.mkdir(volume)
    with open(image, "wb") as file:
        file.truncate(400 << 20)
    subprocess.run([SLOWDISK, image, disk, "wlat=150000"], check=True)
    device = ""
    n_late, n_left = 0, 0
    try:
        device = subprocess.run(["losetup", "--direct-io=on", "-f", "--show", f"{disk}/disk"],
                                capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        subprocess.run(["mount", "-o", "noatime", device, volume], check=True)
        run, least = f"{volume}/run", -1
        for method in METHODS:
            process = start(run, method, 1000, 20000000)
            least = max(least, durable(process.stdout.readline()))
            before = set(uncommitted(run))
            while set(uncommitted(run)) <= before:  # until a save has begun
                time.sleep(0.005)
            time.sleep(0.2)
            least = max(least, kill(process))
            left = uncommitted(run)
            at_death = contents(left)
            out, _ = (process := start(run, method, 1, 20000000)).communicate()
            assert process.returncode == 0, out
            least = max(least, *(durable(line) for line in out.splitlines()))
            check(run, least)
            n_late += contents(left) != at_death
            n_left += len(left)
            verify_all(run)
    finally:
        for process in RUNNING:  # after a failure; else all of them have ended
            process.kill()
        for command in (["umount", volume], ["losetup", "-d", device], ["umount", disk]):
            for _ in range(50 if command[-1] else 0):
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    break
                time.sleep(0.1)
    print(f"slow disk: {n_left} parts left; after {n_late} of {len(METHODS)} deaths writes were "
          "seen to land")


def has_slow_disk():
    return (os.getuid() == 0 and os.path.exists("/dev/fuse") and os.access(SLOWDISK, os.X_OK)
            and subprocess.run(["losetup", "-f"], capture_output=True, check=False).returncode == 0)


def main():
    seed = int(os.environ.get("STOKER_TEST_SEED", str(time.time_ns() % 100000)))
    random.seed(seed)
    print(f"STOKER_TEST_SEED={seed}", flush=True)
    top = tempfile.mkdtemp(prefix="stoker-kills-", dir="/var/tmp")
    try:
        killed(top)
        stopped(top)
        if has_slow_disk():
            late(top)
        else:
            print("no slow disk here: late writes are left out")
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
