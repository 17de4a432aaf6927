#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks that save together over UCX, of which one is lost: killed, stopped or cut off, at
random moments, when the manifest is being written (between the vote and the rename), while they
open and while they load. The others end in time, with an error that names the rank or without
one; what anybody said to be durable is there, every byte of it; and the next job goes on.

    rank_ckpt_faults.py CKPT_RANK

With STOKER_TEST_LONG 200 random moments, else 10. Rank 3 is in a network namespace of its own
where root is and ip; else no link is cut."""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import rank_faults
from rank_faults import LOST, WORLD, Hosts, check

LIMIT_S = 25
SKIP = 77
MOMENTS = 200 if "STOKER_TEST_LONG" in os.environ else 10
STATE_BYTES = 6000000


class Job:
    """Ranks that were started together. world: how many; the others of WORLD are not there."""

    def __init__(self, hosts, program, words, world=WORLD, start_ms=20000, per_node=0):
        rank_faults.next_port += 1
        self.ranks = []
        for rank in range(world):
            given = {"RANK": str(rank), "WORLD_SIZE": str(world), "STOKER_ADDR": hosts.address,
                     "STOKER_PORT": str(rank_faults.next_port), "START_MS": str(start_ms),
                     "PER_NODE": str(per_node)}
            self.ranks.append(subprocess.Popen(
                hosts.prefix(rank) + [program] + words, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env={**os.environ, **given}))

    def end(self, but=None):
        """(exit status, what was said, seconds) of each rank but one."""
        began = time.monotonic()
        results = {}
        for rank, process in enumerate(self.ranks):
            if rank == but:
                continue
            try:
                out, err = process.communicate(timeout=max(1, began + LIMIT_S - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += "HANGS"
            results[rank] = (process.returncode, out + err, time.monotonic() - began)
        if but is not None:
            self.ranks[but].kill()
            out, err = self.ranks[but].communicate()
            results[but] = (-signal.SIGKILL, out + err, 0)
        return results


def durable(text):
    return max((int(step) for step in re.findall(r"^durable (\d+)$", text, re.M)), default=-1)


def verify(program, directory, least, name):
    """What is there: at least step least, and right."""
    done = subprocess.run([program, "check", directory, str(least)], capture_output=True, text=True,
                          check=False)
    check(done.returncode == 0, f"{name}: nothing as new as {least}: {done.stdout} {done.stderr}")


def lose(hosts, job, how, rank):
    if how == "killed":
        job.ranks[rank].send_signal(signal.SIGKILL)
    elif how == "stopped":
        job.ranks[rank].send_signal(signal.SIGSTOP)
    else:
        hosts.link("down")


def judge(hosts, program, directory, job, how, rank, name, must_fail=True):
    """The others end in time and name the rank; nothing acknowledged is lost."""
    # One that is cut off goes on by itself, and finds out for itself.
    results = job.end(None if how == "cut" else rank)
    if how == "cut":
        hosts.link("up")
    newest = -1
    for of, (code, text, took_s) in results.items():
        newest = max(newest, durable(text))
        if of == rank and how != "cut":
            continue
        check("HANGS" not in text, f"{name}: rank {of} hangs: {text}")
        check(took_s < 15, f"{name}: rank {of} took {took_s:.1f} s")
        check(code in (0, 3), f"{name}: rank {of} ends by {code}: {text}")
        if code == 3 and how != "cut" and of != rank:
            check(f"rank {rank}" in text, f"{name}: rank {of} does not name it: {text}")
        if must_fail and of != rank:
            check(code == 3, f"{name}: rank {of} has not noticed: {text}")
    verify(program, directory, newest, name)
    return newest


def wait_for_lines(process, n):
    """Until it has said so many lines; what it said goes to nobody else."""
    return "".join(process.stdout.readline() for _ in range(n))


def random_moment(hosts, program, directory, drawn, how, rank):
    name = f"rank {rank} {how} at a random moment"
    job = Job(hosts, program, ["save", directory, "100000", str(STATE_BYTES)])
    said = wait_for_lines(job.ranks[1], drawn.randrange(1, 4))
    time.sleep(drawn.random() * 0.05)
    lose(hosts, job, how, rank)
    newest = max(judge(hosts, program, directory, job, how, rank, name), durable(said))
    verify(program, directory, newest, name)


def between_vote_and_rename(hosts, program, directory, how):
    """Rank 0 goes when its manifest's directory appears."""
    name = f"rank 0 {how} between vote and rename"
    n_hits = 0
    for _ in range(4):
        job = Job(hosts, program, ["save", directory, "100000", str(STATE_BYTES)])
        said = wait_for_lines(job.ranks[1], 1)
        until = time.monotonic() + 10
        is_there = False
        while not is_there and time.monotonic() < until:
            with os.scandir(directory) as entries:
                is_there = any(entry.name.endswith(".tmp") for entry in entries)
        lose(hosts, job, how, 0)
        n_hits += is_there
        newest = judge(hosts, program, directory, job, how, 0, name)
        verify(program, directory, max(newest, durable(said)), name)
    check(n_hits > 0, f"{name}: no manifest was seen")


def at_the_start(hosts, program, directory, how):
    name = f"rank {LOST} {how} at the start"
    job = Job(hosts, program, ["save", directory, "3", str(STATE_BYTES)], start_ms=4000)
    lose(hosts, job, how, LOST)
    judge(hosts, program, directory, job, how, LOST, name, must_fail=False)


def while_loading(hosts, program, directory, how):
    name = f"rank {LOST} {how} while loading"
    job = Job(hosts, program, ["load", directory, "6"])
    wait_for_lines(job.ranks[1], 1)
    lose(hosts, job, how, LOST)
    results = job.end(None if how == "cut" else LOST)
    if how == "cut":
        hosts.link("up")
    for rank, (code, text, took_s) in results.items():
        if rank != LOST:
            check(code == 0 and took_s < 15, f"{name}: rank {rank}: {code}, {text}")


def together(hosts, program, directory, how):
    """Ranks that load together: storage gives each byte once; one that is lost costs the others
    time, and they read its part themselves, or stop in time with its name."""
    results = Job(hosts, program, ["together", directory, "2"]).end()
    n_read = 0
    for rank, (code, text, _) in results.items():
        check(code == 0, f"together: rank {rank}: {code}, {text}")
        n_read += sum(int(n) for n in re.findall(r"^read (\d+)$", text, re.M))
    # Where storage is counted: twice, in chunks; never by each rank.
    check(n_read == 0 or 2 * STATE_BYTES <= n_read <= 2 * (STATE_BYTES + 8 * (1 << 20)),
          f"together: {n_read} bytes of {2 * STATE_BYTES}")
    name = f"rank {LOST} {how} while loading together"
    job = Job(hosts, program, ["together", directory, "100000"], start_ms=4000)
    wait_for_lines(job.ranks[1], 2)
    lose(hosts, job, how, LOST)
    for rank, (code, text, took_s) in job.end(LOST).items():
        if rank != LOST:
            check(code == 3 and f"rank {LOST}" in text and took_s < 20,
                  f"{name}: rank {rank}: {code} after {took_s:.1f} s, {text[-300:]}")


def other_worlds(hosts, program, directory):
    """Jobs of other sizes go on where the last one was."""
    for world in (2, 1, 4):
        before = subprocess.run([program, "check", directory, "0"], capture_output=True, text=True,
                                check=True).stdout
        step = int(re.search(r"step (\d+)", before).group(1))
        results = Job(hosts, program, ["save", directory, "2", str(STATE_BYTES)], world).end()
        for rank, (code, text, _) in results.items():
            check(code == 0 and durable(text) == step + 2, f"{world} ranks: {rank}: {code}, {text}")
        verify(program, directory, step + 2, f"{world} ranks")


def main():
    program = os.path.abspath(sys.argv[1])
    hosts = Hosts()
    drawn = random.Random(11)
    try:
        with tempfile.TemporaryDirectory(prefix="stoker-rank-ckpt-") as top:
            directory = os.path.join(top, "ckpt")
            probe = Job(hosts, program, ["save", directory, "2", str(STATE_BYTES)]).end()
            if any("without UCX" in text for _, text, _ in probe.values()):
                print("this build has no UCX")
                return SKIP
            check(all(code == 0 for code, _, _ in probe.values()), f"four ranks save: {probe}")
            verify(program, directory, 1, "four ranks")
            hows = ("killed", "stopped") + (("cut",) if hosts.names else ())
            for how in hows:
                at_the_start(hosts, program, directory, how)
                while_loading(hosts, program, directory, how)
            for how in hows[:2]:
                between_vote_and_rename(hosts, program, directory, how)
            for at in range(MOMENTS):
                how = hows[at % len(hows)]
                rank = LOST if how == "cut" else drawn.randrange(WORLD)
                random_moment(hosts, program, directory, drawn, how, rank)
                print(f"rank {rank} {how}: seen", flush=True)
            for how in hows[:2]:
                together(hosts, program, directory, how)
            other_worlds(hosts, program, directory)
    finally:
        hosts.remove()
    print("failed checks:", rank_faults.failed)
    return 1 if rank_faults.failed else 0


if __name__ == "__main__":
    sys.exit(main())
