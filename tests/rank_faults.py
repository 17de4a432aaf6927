#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks of 'stoker bench load' over UCX, of which one is lost: killed, stopped, or cut off,
before it has come, in the first epoch and later. The others end in time, either with the right
bytes or with an error that names the rank. All are terminated at once, also at random steps:
nothing hangs.

    rank_faults.py STOKER

Rank 3 is in a network namespace of its own where root is and ip; else no link is cut. Then all are
on one machine and read each other's memory as fast as they can, and one is killed or stopped in the
midst of that."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import hosts as hosts_of_tests

WORLD = 4
LOST = 3
SAMPLES, SAMPLE_BYTES = 120, 40000
EPOCHS = 4
BUSY_EPOCHS = 400
BUSY_ROUNDS = 4
TERM_ROUNDS = 20 if "STOKER_TEST_LONG" in os.environ else 2
START_MS, PEER_MS, CLOSE_MS = 4000, 700, 3000
LIMIT_S = 60
SKIP = 77
failed = 0
next_port = 12000 + os.getpid() % 20000


def check(good, text):
    global failed
    if not good:
        failed += 1
        print("FAILED:", text, flush=True)


class Hosts(hosts_of_tests.Hosts):
    """The last rank is on the second host, all others are on the first."""

    def __init__(self):
        super().__init__("stkf", "10.95.0")

    def prefix(self, rank):
        return self.at(int(rank == LOST))


def command_of(stoker, folder, epochs=EPOCHS):
    return [stoker, "bench", "load", folder, "--format", "folder", "--json", "--crc", "--layout",
            "raw", "--seed", "3", "--batch", "4", "--epochs", str(epochs)]


def expected_crcs(stoker, folder, epochs=EPOCHS):
    """What each rank must read, by one process that is alone."""
    crcs = []
    for rank in range(WORLD):
        out = subprocess.run(
            command_of(stoker, folder, epochs) +
            ["--quiet", "--world", str(WORLD), "--rank", str(rank)],
            capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
        crcs.append(json.loads(out)["crc32"])
    return crcs


class Job:
    def __init__(self, hosts, stoker, folder, epochs=EPOCHS, compute_us=60000):
        global next_port
        next_port += 1
        more = ["--tier", "ram:16M", "--ram-bytes", str((SAMPLES // WORLD + 1) * SAMPLE_BYTES),
                "--staging-bytes", str(12 * SAMPLE_BYTES), "--compute-us", str(compute_us),
                "--start-timeout-ms", str(START_MS), "--peer-timeout-ms", str(PEER_MS),
                "--close-timeout-ms", str(CLOSE_MS)]
        self.ranks = []
        for rank in range(WORLD):
            given = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "STOKER_ADDR": hosts.address,
                     "STOKER_PORT": str(next_port), "STOKER_SECRET": "of the test"}
            self.ranks.append(subprocess.Popen(
                hosts.prefix(rank) + command_of(stoker, folder, epochs) + more,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, **given}))

    def wait_for(self, phase):
        """Until the job is in a phase; the first epoch of 8 batches takes half a second."""
        if phase == "start":
            return
        if phase == "first epoch":
            time.sleep(0.6)
            return
        for line in self.ranks[0].stderr:
            if line.startswith("epoch 0:"):
                return

    def end(self, but=()):
        """(exit status, output, what was said, seconds) of each rank but some."""
        began = time.monotonic()
        results = {}
        for rank, process in enumerate(self.ranks):
            if rank in but:
                continue
            try:
                out, err = process.communicate(timeout=max(1, began + LIMIT_S - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += "HANGS"
            results[rank] = (process.returncode, out, err, time.monotonic() - began)
        for rank in but:
            self.ranks[rank].kill()
            self.ranks[rank].communicate()
        return results


def judge(name, results, crcs):
    """Right bytes, or an error that names the lost rank, and no hang."""
    limit_s = EPOCHS * 2 + (START_MS + CLOSE_MS) / 1000 + 15
    n_good = 0
    for rank, (code, out, err, took_s) in results.items():
        check(took_s < limit_s, f"{name}: rank {rank} took {took_s:.1f} s")
        check("HANGS" not in err, f"{name}: rank {rank} hangs: {err}")
        if code == 0:
            n_good += 1
            check(json.loads(out)["crc32"] == crcs[rank], f"{name}: rank {rank} has wrong bytes")
        else:
            check(code == 1 and f"rank {LOST}" in err, f"{name}: rank {rank} says {code}: {err}")
    return n_good


def lose(hosts, stoker, folder, crcs, how, phase):
    name = f"{how} in {phase}"
    job = Job(hosts, stoker, folder)
    job.wait_for(phase)
    lost = job.ranks[LOST]
    if how == "killed":
        lost.send_signal(signal.SIGKILL)
    elif how == "stopped":
        lost.send_signal(signal.SIGSTOP)
    else:
        hosts.link("down")
    # One that is cut off goes on by itself, and has the others' part from the origin; at the
    # start it cannot know who they are.
    but = () if how == "cut" and phase != "start" else (LOST,)
    results = job.end(but)
    if how == "cut":
        hosts.link("up")
    n_good = judge(name, results, crcs)
    # Once all have begun nobody needs anybody.
    if phase == "later":
        check(n_good == len(results), f"{name}: {n_good} of {len(results)} ended well")
    print(f"{name}: {n_good} of {len(results)} read on, "
          f"{max(took for _, _, _, took in results.values()):.1f} s", flush=True)


def terminate_all(hosts, stoker, folder, phase, more_s=0.0):
    job = Job(hosts, stoker, folder)
    job.wait_for(phase)
    time.sleep(more_s)
    for process in job.ranks:
        process.send_signal(signal.SIGTERM)
    for rank, (code, _, err, took_s) in job.end().items():
        check(code == -signal.SIGTERM and took_s < 10,
              f"terminated in {phase}: rank {rank} ends by {code} in {took_s:.1f} s: {err}")


class OneMachine:
    """No namespaces: ranks that share a machine."""
    names = ()
    address = "127.0.0.1"

    @staticmethod
    def prefix(_):
        return []


def lose_in_the_midst(stoker, folder):
    """While all read each other's memory and wait for nothing else."""
    hosts = OneMachine()
    crcs = expected_crcs(stoker, folder, BUSY_EPOCHS)
    began = time.monotonic()
    whole = Job(hosts, stoker, folder, BUSY_EPOCHS, 0).end()
    took_s = time.monotonic() - began
    check(judge("all of one machine", whole, crcs) == WORLD, f"four ranks run: {whole}")
    for rank, (code, out, _, _) in whole.items():
        if code == 0:
            mapped = json.loads(out)["engine"]["mapped_bytes"]
            check(mapped > 10 * SAMPLES * SAMPLE_BYTES, f"rank {rank} reads {mapped} in place")
    drawn = random.Random(9)
    for at in range(BUSY_ROUNDS):
        how = signal.SIGSTOP if at % 2 else signal.SIGKILL
        job = Job(hosts, stoker, folder, BUSY_EPOCHS, 0)
        job.wait_for("later")
        time.sleep(drawn.uniform(0, took_s / 3))
        lost = job.ranks[LOST]
        check(lost.poll() is None, "the job lasts until a rank is lost")
        lost.send_signal(how)
        results = job.end((LOST,))
        n_good = judge(f"{how.name} in the midst", results, crcs)
        check(n_good == WORLD - 1, f"{how.name} in the midst: {n_good} ended well: {results}")
        print(f"{how.name} in the midst: {n_good} of {len(results)} read on, "
              f"{max(took for _, _, _, took in results.values()):.1f} s", flush=True)


def main():
    stoker = os.path.abspath(sys.argv[1])
    hosts = Hosts()
    try:
        with tempfile.TemporaryDirectory(prefix="stoker-faults-") as folder:
            drawn = random.Random(4)
            for at in range(SAMPLES):
                with open(os.path.join(folder, f"{at:05}"), "wb") as file:
                    file.write(drawn.randbytes(SAMPLE_BYTES))
            crcs = expected_crcs(stoker, folder)
            probe = Job(hosts, stoker, folder).end()
            if any("without UCX" in err for _, _, err, _ in probe.values()):
                print("this build has no UCX")
                return SKIP
            check(judge("nobody lost", probe, crcs) == WORLD, f"four ranks run: {probe}")
            for phase in ("start", "first epoch", "later"):
                for how in ("killed", "stopped") + (("cut",) if hosts.names else ()):
                    lose(hosts, stoker, folder, crcs, how, phase)
                terminate_all(hosts, stoker, folder, phase)
            for _ in range(TERM_ROUNDS):
                terminate_all(hosts, stoker, folder, "later", drawn.uniform(0, 1))
            lose_in_the_midst(stoker, folder)
    finally:
        hosts.remove()
    print("failed checks:", failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
