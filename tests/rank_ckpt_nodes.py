#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks on two nodes, each with a directory of its own, save with copies on the other node
over UCX. One rank is killed or stopped at random moments, and when the manifest is being written on
the second node (between the first verdict and the second vote); then its node's directory is gone,
too. The others end in time, and what anybody said to be durable is loaded by the next job, every
byte.

    rank_ckpt_nodes.py CKPT_RANK

With STOKER_TEST_LONG 60 random moments, else 6."""
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import rank_faults
from rank_ckpt_faults import SKIP, STATE_BYTES, Job, durable, wait_for_lines
from rank_faults import WORLD, check

PER_NODE = 2
MOMENTS = 60 if "STOKER_TEST_LONG" in os.environ else 6


class Here:
    """This machine, without a network of its own."""
    address = "127.0.0.1"

    @staticmethod
    def prefix(_rank):
        return []


def node_dir(top, rank):
    return os.path.join(top, f"node{rank // PER_NODE}")


def save(program, top):
    return Job(Here, program, ["save", top, "100000", str(STATE_BYTES)], per_node=PER_NODE)


def loaded(text):
    return max((int(line.split()[1]) for line in text.splitlines() if line.startswith("loaded ")),
               default=-1)


def verify(program, top, least, name, world=WORLD, per_node=PER_NODE):
    """A new job finds something at least as new, and the same on all ranks."""
    results = Job(Here, program, ["load", top, "1"], world, per_node=per_node).end()
    steps = set()
    for rank, (code, text, _) in results.items():
        if least < 0:
            continue
        check(code == 0, f"{name}: rank {rank} does not load: {code}, {text}")
        steps.add(loaded(text))
    check(least < 0 or (len(steps) == 1 and min(steps) >= least),
          f"{name}: durable was {least}, loaded {steps}")


def judge(job, rank, said, name):
    """The newest step that somebody said to be durable."""
    newest = durable(said)
    for of, (code, text, took_s) in job.end(rank).items():
        newest = max(newest, durable(text))
        if of == rank:
            continue
        check("HANGS" not in text, f"{name}: rank {of} hangs: {text}")
        check(took_s < 20, f"{name}: rank {of} took {took_s:.1f} s")
        check(code == 3, f"{name}: rank {of} has not noticed: {code}, {text}")
    return newest


def random_moment(program, top, drawn, how, rank, is_gone):
    name = f"rank {rank} {how} at a random moment, its node is {'gone' if is_gone else 'there'}"
    job = save(program, top)
    said = wait_for_lines(job.ranks[1], drawn.randrange(1, 4))
    time.sleep(drawn.random() * 0.08)
    job.ranks[rank].send_signal(how)
    newest = judge(job, rank, said, name)
    if is_gone:
        shutil.rmtree(node_dir(top, rank))
    verify(program, top, newest, name)
    print(f"{name}: seen, {newest}", flush=True)


def between_the_votes(program, top, how):
    """The second node's keeper goes when its manifest's directory appears."""
    name = f"rank 2 {how} between the votes"
    n_hits = 0
    for _ in range(4):
        job = save(program, top)
        said = wait_for_lines(job.ranks[1], 1)
        until = time.monotonic() + 10
        is_there = False
        while not is_there and time.monotonic() < until:
            with os.scandir(node_dir(top, 2)) as entries:
                is_there = any(entry.name.endswith(".tmp") for entry in entries)
        job.ranks[2].send_signal(how)
        n_hits += is_there
        verify(program, top, judge(job, 2, said, name), name)
    check(n_hits > 0, f"{name}: no manifest was seen")


def main():
    program = os.path.abspath(sys.argv[1])
    drawn = random.Random(12)
    with tempfile.TemporaryDirectory(prefix="stoker-rank-nodes-") as top:
        probe = Job(Here, program, ["save", top, "2", str(STATE_BYTES)], per_node=PER_NODE).end()
        if any("without UCX" in text for _, text, _ in probe.values()):
            print("this build has no UCX")
            return SKIP
        check(all(code == 0 for code, _, _ in probe.values()), f"four ranks save: {probe}")
        verify(program, top, 1, "four ranks")
        verify(program, top, 1, "two ranks", 2, 1)
        for how in (signal.SIGKILL, signal.SIGSTOP):
            between_the_votes(program, top, how)
        for at in range(MOMENTS):
            how = (signal.SIGKILL, signal.SIGSTOP)[at % 2]
            random_moment(program, top, drawn, how, drawn.randrange(WORLD), at % 3 > 0)
    print("failed checks:", rank_faults.failed)
    return 1 if rank_faults.failed else 0


if __name__ == "__main__":
    sys.exit(main())
