#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks that save together over UCX, of which one is lost: killed, stopped or cut off, at
random moments, during a vote, when the manifest is being written (between the vote and the
rename), while they open and while they load; or all are terminated. The others end in time, with
an error that names the rank or without one; what anybody said to be durable is there, every byte
of it; the next job goes on, and removes what was left.

    rank_ckpt_faults.py CKPT_RANK

With STOKER_TEST_LONG 200 random moments and 100 votes, else 10 and 4. Rank 3 is in a network
namespace of its own where root is and ip; else no link is cut."""
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
IS_LONG = "STOKER_TEST_LONG" in os.environ
MOMENTS = 200 if IS_LONG else 10
LATE_MS = 400 # how long a vote waits for a rank that is late
STATE_BYTES = 6000000


class Job:
    """Ranks that were started together. world: how many; the others of WORLD are not there."""

    def __init__(self, hosts, program, words, world=WORLD, start_ms=20000, per_node=0,
                 more=None):
        rank_faults.next_port += 1
        self.ranks = []
        for rank in range(world):
            given = {"RANK": str(rank), "WORLD_SIZE": str(world), "STOKER_ADDR": hosts.address,
                     "STOKER_PORT": str(rank_faults.next_port), "START_MS": str(start_ms),
                     "PER_NODE": str(per_node), **(more or {})}
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


def terminate(job, program, directory, name, said=""):
    """All at once; what anybody has said is there."""
    for process in job.ranks:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT) # where one is held
    newest = durable(said)
    for rank, (code, text, took_s) in job.end().items():
        newest = max(newest, durable(text))
        check(code == -signal.SIGTERM and took_s < 5,
              f"{name}: rank {rank} ends by {code} in {took_s:.1f} s: {text}")
    if program:
        verify(program, directory, newest, name)
    print(f"{name}: seen", flush=True)
    return newest


def random_moment(hosts, program, directory, drawn, how, rank):
    name = f"rank {rank} {how} at a random moment"
    job = Job(hosts, program, ["save", directory, "100000", str(STATE_BYTES)])
    said = wait_for_lines(job.ranks[1], drawn.randrange(1, 4))
    time.sleep(drawn.random() * 0.05)
    lose(hosts, job, how, rank)
    newest = max(judge(hosts, program, directory, job, how, rank, name), durable(said))
    verify(program, directory, newest, name)


def hold_at_manifest(process, directory):
    """Stops whoever writes the manifest while it is not yet renamed; whether that was seen."""
    def is_there():
        with os.scandir(directory) as entries:
            return any(entry.name.endswith(".tmp") for entry in entries)

    until = time.monotonic() + 10
    while time.monotonic() < until:
        if not is_there():
            continue
        process.send_signal(signal.SIGSTOP)
        while process.poll() is None:
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "T":
                    break
        if is_there():
            return True
        process.send_signal(signal.SIGCONT)
    return False


def between_vote_and_rename(hosts, program, directory, how):
    """Rank 0 is held there; it is lost, or another is cut off, or all are terminated."""
    rank = LOST if how == "cut" else 0
    name = f"rank {rank} {how} between vote and rename"
    job = Job(hosts, program, ["save", directory, "100000", str(STATE_BYTES)])
    said = wait_for_lines(job.ranks[1], 1)
    check(hold_at_manifest(job.ranks[0], directory), f"{name}: no manifest was seen")
    if how == "terminated":
        terminate(job, program, directory, name, said)
        return
    lose(hosts, job, how, rank)
    if how == "cut":
        job.ranks[0].send_signal(signal.SIGCONT)
    newest = judge(hosts, program, directory, job, how, rank, name)
    verify(program, directory, max(newest, durable(said)), name)


def in_the_vote(hosts, program, directory, drawn, how, rank, late):
    """While all have written their part and wait for a rank that is late."""
    name = f"rank {rank} {how} in a vote, rank {late} is late"
    job = Job(hosts, program, ["save", directory, "100000", str(STATE_BYTES)],
              more={"LATE_RANK": str(late), "LATE_MS": str(LATE_MS)})
    said = wait_for_lines(job.ranks[late], 3)
    check([line.split()[0] for line in said.splitlines()] == ["late", "durable", "late"],
          f"{name}: {said}")
    time.sleep(drawn.uniform(0.1, 0.3))
    if how == "terminated":
        terminate(job, program, directory, name, said)
        return
    lose(hosts, job, how, rank)
    newest = max(judge(hosts, program, directory, job, how, rank, name), durable(said))
    verify(program, directory, newest, name)
    print(f"{name}: seen", flush=True)


def votes(hosts, program, directory, drawn, hows):
    """Whoever has voted, whoever has not, and whoever counts."""
    for at in range(25 if IS_LONG else 1):
        for how in hows:
            rank = (0, LOST, 1)[(at + (how == "stopped")) % 3] if how != "cut" else LOST
            late = (2, LOST)[at % 2] if how in ("cut", "terminated") else (LOST, 1)[at % 2]
            in_the_vote(hosts, program, directory, drawn, how, rank, late)
        in_the_vote(hosts, program, directory, drawn, "terminated", "every", 1 + at % 3)


def all_terminated(hosts, program, directory, drawn):
    """At the start, at random steps and while they load."""
    job = Job(hosts, program, ["save", directory, "100000", str(STATE_BYTES)])
    time.sleep(drawn.uniform(0, 0.1))
    terminate(job, program, directory, "all terminated at the start")
    for _ in range(20 if IS_LONG else 2):
        job = Job(hosts, program, ["save", directory, "100000", str(STATE_BYTES)])
        said = wait_for_lines(job.ranks[1], drawn.randrange(1, 6))
        time.sleep(drawn.random() * 0.05)
        terminate(job, program, directory, "all terminated at a random step", said)
    for way in ("load", "together"):
        job = Job(hosts, program, [way, directory, "100000"])
        wait_for_lines(job.ranks[1], drawn.randrange(1, 4))
        terminate(job, program, directory, f"all terminated, {way}")


def check_cleaned(program, directory):
    """What dead writers have left the next start removes, and nothing else."""
    before = {name for name in os.listdir(directory) if re.fullmatch(r"step-\d+", name)}
    done = subprocess.run([program, "clean", directory, "0"], capture_output=True, text=True,
                          check=False)
    check(done.returncode == 0, f"cleaning: {done.stdout} {done.stderr}")
    alive = set()
    for name in os.listdir(directory):
        if re.fullmatch(r"step-\d+", name):
            with open(os.path.join(directory, name, "manifest.json"), encoding="utf-8") as file:
                its_id = re.search(r'"id":"([^"]+)"', file.read()).group(1)
            alive.update((name, f"{name}.{its_id}"))
    left = set(os.listdir(directory)) - alive
    check(not left and alive, f"cleaned, and there is {left} beside {alive}")
    copies = [name for _, _, names in os.walk(directory) for name in names if ".pull" in name]
    check(not copies, f"cleaned, and there is {copies}")
    check(before <= alive, f"cleaned: {before} were there, now {alive}")


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


def together(hosts, program, directory):
    """Ranks that load together: storage gives each byte once."""
    results = Job(hosts, program, ["together", directory, "2"]).end()
    n_read = 0
    for rank, (code, text, _) in results.items():
        check(code == 0, f"together: rank {rank}: {code}, {text}")
        n_read += sum(int(n) for n in re.findall(r"^read (\d+)$", text, re.M))
    # Where storage is counted: twice, in chunks; never by each rank.
    check(n_read == 0 or 2 * STATE_BYTES <= n_read <= 2 * (STATE_BYTES + 8 * (1 << 20)),
          f"together: {n_read} bytes of {2 * STATE_BYTES}")


def lost_together(hosts, program, directory, how):
    """One that is lost costs the others time, and they read its part themselves, or stop in time
    with its name."""
    name = f"rank {LOST} {how} while loading together"
    job = Job(hosts, program, ["together", directory, "100000"],
              start_ms=2500 if how == "cut" else 4000)
    wait_for_lines(job.ranks[1], 2)
    lose(hosts, job, how, LOST)
    results = job.end(None if how == "cut" else LOST)
    if how == "cut":
        hosts.link("up")
    for rank, (code, text, took_s) in results.items():
        # Of whom the one that is cut off thinks that they are lost is its own business.
        who = "rank " if rank == LOST else f"rank {LOST}"
        if rank != LOST or how == "cut":
            check(code == 3 and who in text and took_s < 20,
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
            for how in hows + ("terminated",):
                for _ in range(4 if IS_LONG else 2 if how in hows[:2] else 1):
                    between_vote_and_rename(hosts, program, directory, how)
            votes(hosts, program, directory, drawn, hows)
            all_terminated(hosts, program, directory, drawn)
            for at in range(MOMENTS):
                how = hows[at % len(hows)]
                rank = LOST if how == "cut" else drawn.randrange(WORLD)
                random_moment(hosts, program, directory, drawn, how, rank)
                print(f"rank {rank} {how}: seen", flush=True)
            together(hosts, program, directory)
            for how in hows:
                lost_together(hosts, program, directory, how)
            check_cleaned(program, directory)
            other_worlds(hosts, program, directory)
    finally:
        hosts.remove()
    print("failed checks:", rank_faults.failed)
    return 1 if rank_faults.failed else 0


if __name__ == "__main__":
    sys.exit(main())
