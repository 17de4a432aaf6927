#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks on two nodes, each with a directory of its own, save with copies on the other node
over UCX. One rank is killed or stopped, the nodes are cut off from each other, or all are
terminated: at random moments, when the manifest is being written on the second node (between the
first verdict and the second vote), and while one node loads what only the other one has; then a
node's directory is gone, too. The others end in time, and what anybody said to be durable is loaded
by the next job, every byte.

    rank_ckpt_nodes.py CKPT_RANK

With STOKER_TEST_LONG 60 random moments, else 6. Each node is a network namespace where root is and
ip; else they are not cut off."""
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

import rank_faults
from rank_ckpt_faults import (IS_LONG, SKIP, STATE_BYTES, Job, check_cleaned, durable,
                              hold_at_manifest, terminate, wait_for_lines)
from rank_faults import Hosts, WORLD, check

PER_NODE = 2
MOMENTS = 60 if IS_LONG else 6


class TwoHosts(Hosts):
    """A namespace for each node, and the link between them."""

    def prefix(self, rank):
        return self.at(rank // PER_NODE)


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


def in_a_hurry(program, top, drawn):
    """Saves behind each other, their copies behind them; all are killed, twice, the second time as
    soon as something was saved: what was copied by then stays, and one node's is enough."""
    name = "all killed, copies behind"
    newest = -1
    for lines in (drawn.randrange(3, 9), 1):
        job = Job(Here, program, ["save", top, "100000", str(STATE_BYTES)], per_node=PER_NODE,
                  more={"HURRIES": "1"})
        said = wait_for_lines(job.ranks[1], lines)
        time.sleep(drawn.random() * 0.03)
        for process in job.ranks:
            process.send_signal(signal.SIGKILL)
        newest = max([newest, durable(said)] + [durable(text) for _, text, _ in job.end().values()])
    shutil.rmtree(node_dir(top, drawn.randrange(WORLD)))
    verify(program, top, newest, name)
    print(f"{name}: seen, {newest}", flush=True)


def between_the_votes(program, top, how):
    """The second node's keeper goes when its manifest's directory has appeared."""
    name = f"rank 2 {how} between the votes"
    for _ in range(4 if IS_LONG else 2):
        job = save(program, top)
        said = wait_for_lines(job.ranks[1], 1)
        check(hold_at_manifest(job.ranks[2], node_dir(top, 2)), f"{name}: no manifest was seen")
        job.ranks[2].send_signal(how)
        verify(program, top, judge(job, 2, said, name), name)


def judge_cut(hosts, job, said, name):
    """All end in time, and each names one of the other node."""
    newest = durable(said)
    results = job.end()
    hosts.link("up")
    for of, (code, text, took_s) in results.items():
        newest = max(newest, durable(text))
        others = "[23]" if of < PER_NODE else "[01]"
        check("HANGS" not in text and took_s < 20, f"{name}: rank {of}: {took_s:.1f} s: {text}")
        check(code == 3 and re.search(f"rank {others}", text),
              f"{name}: rank {of} does not name it: {code}, {text}")
    return newest


def cut_off(hosts, program, top, drawn):
    """The link goes between the first verdict and the second vote, and at random moments."""
    for name in ["cut off between the votes"] + ["cut off at a random moment"] * IS_LONG:
        job = Job(hosts, program, ["save", top, "100000", str(STATE_BYTES)], per_node=PER_NODE)
        said = wait_for_lines(job.ranks[1], drawn.randrange(1, 4))
        if "votes" in name:
            check(hold_at_manifest(job.ranks[2], node_dir(top, 2)), f"{name}: no manifest was seen")
        else:
            time.sleep(drawn.random() * 0.08)
        hosts.link("down")
        job.ranks[2].send_signal(signal.SIGCONT)
        newest = judge_cut(hosts, job, said, name)
        verify(program, top, newest, name)
        print(f"{name}: seen, {newest}", flush=True)


def all_terminated(program, top, drawn):
    """At a random step, and between the votes."""
    for name in ("all terminated at a random step", "all terminated between the votes"):
        job = save(program, top)
        said = wait_for_lines(job.ranks[1], drawn.randrange(1, 4))
        if "votes" in name:
            check(hold_at_manifest(job.ranks[2], node_dir(top, 2)), f"{name}: no manifest was seen")
        else:
            time.sleep(drawn.random() * 0.08)
        verify(program, top, terminate(job, None, top, name, said), name)


def load_from_the_other(hosts, program, top, name):
    """A job whose second node loads what the first one has."""
    job = Job(hosts, program, ["load", top, "40"], per_node=PER_NODE, start_ms=2000)
    said = wait_for_lines(job.ranks[2], 2)
    check(said.count("loaded") == 2, f"{name}: {said}")
    return job


def while_loading(hosts, program, top):
    """What the second node has is gone, so its ranks read all from the first one's keeper, and then
    that is lost. The first node's ranks find that out when they would end together."""
    name = "while one node loads from the other"
    parts = [os.path.join(folder, file) for folder, _, files in os.walk(node_dir(top, 2))
             for file in files if file.startswith("part-")]
    for part in parts:
        os.rename(part, part + ".away")
    jobs = []
    for how in (signal.SIGKILL, signal.SIGSTOP): # they wait for their time at the same time
        jobs.append(load_from_the_other(hosts, program, top, name))
        jobs[-1].ranks[0].send_signal(how)
    for job in jobs:
        for of, (code, text, took_s) in job.end(0).items():
            check(of == 0 or (code == 3 and "rank 0" in text and took_s < 20),
                  f"rank 0 lost {name}: rank {of}: {code} in {took_s:.1f} s: {text}")
    terminate(load_from_the_other(hosts, program, top, name), None, top, f"all terminated {name}")
    if hosts.names:
        job = load_from_the_other(hosts, program, top, name)
        hosts.link("down")
        judge_cut(hosts, job, "", f"cut off {name}")
    for part in parts:
        os.rename(part + ".away", part)
    print(f"{name}: seen", flush=True)


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
        for _ in range(20 if IS_LONG else 2):
            in_a_hurry(program, top, drawn)
        all_terminated(program, top, drawn)
        hosts = TwoHosts()
        try:
            for _ in range(10 if IS_LONG else 1):
                if hosts.names:
                    cut_off(hosts, program, top, drawn)
                while_loading(hosts, program, top)
        finally:
            hosts.remove()
        for node in range(WORLD // PER_NODE):
            check_cleaned(program, os.path.join(top, f"node{node}"))
        verify(program, top, 0, "cleaned")
    print("failed checks:", rank_faults.failed)
    return 1 if rank_faults.failed else 0


if __name__ == "__main__":
    sys.exit(main())
