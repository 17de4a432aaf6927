#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""'stoker bench save' as four processes on two nodes that save together over UCX: directories of
each node's own, copies on the other node and in a shared directory, loaded again alone, together
and from another rank; and what 'stoker ckpt' tells of one node's directory when all were killed.

Usage: cli_ranks_save.py STOKER"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

from cli_ranks import LIMIT_S, SKIP, WORLD, Failures, free_port

PER_NODE = 2
BYTES = 3 << 20


class Job:
    """Ranks that were started together; the machine plays two nodes."""

    def __init__(self, stoker, top, options, quiet=True):
        port = free_port()
        self.ranks = []
        for rank in range(WORLD):
            node = rank // PER_NODE
            given = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "STOKER_ADDR": "127.0.0.1",
                     "STOKER_PORT": str(port), "STOKER_NODE": f"node{node}"}
            command = [stoker, "bench", "save", "--size", str(BYTES), "--tensors", "7", "--json",
                       "--chunk-bytes", "64K",
                       "--root", node_root(top, node), *options.split()]
            self.ranks.append(subprocess.Popen(
                command + (["--quiet"] if quiet else []), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env={**os.environ, **given}))

    def end(self):
        """(exit status, JSON or None, what was said) of each rank."""
        ended = []
        for process in self.ranks:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += "HANGS"
            ended.append((process.returncode, json.loads(out) if process.returncode == 0 else None,
                          err))
        return ended


def node_root(top, node):
    return os.path.join(top, f"node{node}")


def saved_dir(top, node):
    return os.path.join(node_root(top, node), "stoker-bench-save.0")


def left_behind(top):
    return [name for folder in ("node0", "node1", "shared")
            for name in os.listdir(os.path.join(top, folder))]


def test_levels(failures, stoker, top):
    """Each level is told where it was asked for, the later ones not before the first."""
    shared = f"--shared {top}/shared"
    for options, partner, copies in (("--node-local", 0, 0), ("--node-local --partner", 3, 0),
                                     (f"--node-local --partner {shared}", 3, 3),
                                     (f"--node-local {shared} --shared-every 2", 0, 1)):
        for more in ("--load", "--load --together"):
            for rank, (code, told, err) in enumerate(Job(stoker, top, f"{options} {more}").end()):
                name = f"{options} {more}: rank {rank}"
                failures.check(code == 0, f"{name}: {err}")
                if code != 0:
                    continue
                failures.check(told["node_local"] and told["load_seconds"] > 0, name)
                failures.check(told.get("partner_copies", 0) == partner and
                               told.get("shared_copies", 0) == copies, f"{name}: {told}")
                for key, n in (("partner_seconds", partner), ("shared_seconds", copies)):
                    # Of some saves only it may be less than the median of all.
                    least = told["durable_seconds"] if n == 3 else min(told["saves"])
                    failures.check(key not in told or told[key] >= least,
                                   f"{name}: {key}: {told}")
            failures.check(left_behind(top) == [], f"{options}: left {left_behind(top)}")


def test_of_others(failures, stoker, top):
    """A rank of the other node's tensors, which have other values; the loop goes on by itself."""
    for options in ("--node-local", "--node-local --partner"):
        job = Job(stoker, top, f"{options} --unique --load --load-next {PER_NODE}")
        for rank, (code, told, err) in enumerate(job.end()):
            failures.check(code == 0 and told["load_next_seconds"] > 0, f"rank {rank}: {err}")
    job = Job(stoker, top, f"--node-local --partner --shared {top}/shared --shared-every 3 "
              "--saves 1 --every-iteration --iterations 6 --forward-us 1000 --backward-us 1000")
    for rank, (code, told, err) in enumerate(job.end()):
        failures.check(code == 0 and told["partner_copies"] == 7 and told["shared_copies"] in (1, 2)
                       and told["shared_seconds"] is None, f"loop: rank {rank}: {told} {err}")


def test_killed(failures, stoker, top):
    """What is left on one node, what is told of it, and that the next run begins anew."""
    job = Job(stoker, top, "--node-local --saves 1000", quiet=False)
    for line in job.ranks[0].stderr:
        if line.startswith("save 3:"):
            break
    for process in job.ranks:
        process.send_signal(signal.SIGKILL)
    job.end()
    for node in range(2):
        directory = saved_dir(top, node)
        own = f"of writers {2 * node} {2 * node + 1}" + (" and the header" if node == 0 else "")

        def ckpt(*words, directory=directory):
            return subprocess.run([stoker, "ckpt", words[0], directory, *words[1:]],
                                  capture_output=True, text=True, check=False, timeout=LIMIT_S)
        listed = ckpt("list").stdout
        failures.check("NOT WHOLE" in listed and f"of 5 parts here, {own}" in listed, listed)
        listed = ckpt("list", "--node-local").stdout
        failures.check("NOT WHOLE" not in listed and f"of 5 parts here, {own}" in listed, listed)
        failures.check(ckpt("verify").returncode == 1, "one node's is not whole")
        done = ckpt("verify", "--node-local", "--all")
        failures.check(done.returncode == 0 and f"{own}: " in done.stdout and "are whole" in
                       done.stdout, f"{done.stdout} {done.stderr}")
        step = re.match(r"step (\d+)", listed).group(1)
        parts = [os.path.join(folder, name) for folder, _, names in os.walk(directory)
                 for name in names if f"step-{step}." in folder and name.startswith("part-")]
        with open(parts[0], "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        done = ckpt("verify", "--node-local", "--step", step)
        failures.check(done.returncode == 1 and "1 part is damaged" in done.stdout and
                       os.path.basename(parts[0]) in done.stderr, f"{done.stdout} {done.stderr}")
        os.truncate(parts[0], 10)
        listed = ckpt("list", "--node-local").stdout
        failures.check("NOT WHOLE" in listed, listed)
    job = Job(stoker, top, "--node-local --saves 1")
    failures.check(all(code == 0 for code, _, _ in job.end()), "the next run begins anew")
    failures.check(left_behind(top) == [], f"left {left_behind(top)}")


def main():
    stoker = os.path.abspath(sys.argv[1])
    failures = Failures()
    with tempfile.TemporaryDirectory(prefix="stoker-ranks-save-") as top:
        for folder in ("node0", "node1", "shared"):
            os.mkdir(os.path.join(top, folder))
        probe = Job(stoker, top, "--node-local --saves 1").end()
        if any("without UCX" in err for _, _, err in probe):
            print("this build has no UCX")
            return SKIP
        failures.check(all(code == 0 for code, _, _ in probe), f"four ranks save: {probe}")
        test_levels(failures, stoker, top)
        test_of_others(failures, stoker, top)
        test_killed(failures, stoker, top)
    print("failed checks:", failures.count)
    return 1 if failures.count else 0


if __name__ == "__main__":
    sys.exit(main())
