#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""'stoker bench load' as four processes that serve each other's samples over UCX: the right
bytes on every rank, each from the origin once; a rank that is killed or stopped costs the
others time and nothing else; ranks that differ are refused.

Usage: cli_ranks.py STOKER"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

WORLD = 4
SAMPLES = 120
EPOCHS = 5
LIMIT_S = 60
SKIP = 77


class Failures:
    count = 0

    def check(self, good, text):
        if not good:
            self.count += 1
            print("FAILED:", text)


def write_set(folder, sizes):
    """Files of the given sizes; returns the sum."""
    os.mkdir(folder)
    drawn = random.Random(5)
    for at, size in enumerate(sizes):
        with open(os.path.join(folder, f"{at:05}"), "wb") as file:
            file.write(drawn.randbytes(size))
    return sum(sizes)


def free_port():
    import socket
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Job:
    """Ranks that were started together."""

    def __init__(self, stoker, folder, options, launcher="torch", each=None, quiet=True,
                 tier="ram:64M"):
        port = free_port()
        self.ranks = []
        command = [stoker, "bench", "load", folder, "--json", "--quiet",
                   "--crc", "--layout", "raw", "--seed", "3", "--tier", tier]
        if os.path.isdir(folder):
            command += ["--format", "folder"]
        if not quiet:
            command.remove("--quiet")
        for rank in range(WORLD):
            given = {"STOKER_PORT": str(port)}
            if launcher == "torch":
                given.update(RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1")
            elif launcher == "ompi":
                given.update(OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE=str(WORLD),
                             OMPI_COMM_WORLD_LOCAL_SIZE=str(WORLD))
            else:
                given.update(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS=str(WORLD),
                             SLURM_STEP_NODELIST="localhost", SLURM_JOB_ID="17")
            more = (each or (lambda rank: ""))(rank)
            self.ranks.append(subprocess.Popen(
                command + options.split() + more.split(), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env={**os.environ, **given}))

    def wait_for_epoch(self, epoch):
        """Until rank 0 has said that an epoch is over."""
        for line in self.ranks[0].stderr:
            if line.startswith(f"epoch {epoch}:"):
                return

    def end(self, but=()):
        """The results of the ranks, in order; None of those that failed."""
        results, self.errors, self.codes = [], [], []
        until = time.monotonic() + LIMIT_S
        for rank, process in enumerate(self.ranks):
            if rank in but:
                process.kill()
            try:
                out, err = process.communicate(timeout=max(1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += "HANGS"
            self.errors.append(err)
            self.codes.append(process.returncode)
            results.append(json.loads(out) if process.returncode == 0 else None)
        return results


def expected_crcs(stoker, folder, options):
    """What each rank must read, by one process that is alone and has no peers."""
    crcs = []
    for rank in range(WORLD):
        out = subprocess.run(
            [stoker, "bench", "load", folder, "--format", "folder", "--json", "--quiet", "--crc",
             "--layout", "raw", "--seed", "3", "--world", str(WORLD), "--rank", str(rank)] +
            options.split(), capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
        crcs.append(json.loads(out)["crc32"])
    return crcs


def check_good(failures, name, results, errors, crcs, but=()):
    for rank, result in enumerate(results):
        if rank in but:
            continue
        failures.check(result is not None, f"{name}: rank {rank} failed: {errors[rank]}")
        if result is None:
            continue
        failures.check(result["crc32"] == crcs[rank], f"{name}: rank {rank} read wrong bytes")
        failures.check(sum(result["sources"].values()) == result["samples"],
                       f"{name}: rank {rank}: sources do not add up")
        failures.check(result["rank"] == rank and result["world"] == WORLD, f"{name}: {rank}")


def origin_bytes(results):
    return sum(result["origin_bytes"] for result in results if result)


def room(n_bytes, sizes):
    return f"--ram-bytes {n_bytes // WORLD + max(sizes)} --staging-bytes {16 * max(sizes)}"


def test_each_byte_once(failures, stoker, folder, n_bytes, sizes):
    run = f"--batch 4 --epochs {EPOCHS}"
    crcs = expected_crcs(stoker, folder, run)
    for launcher in ("torch", "ompi", "slurm"):
        job = Job(stoker, folder, f"{run} {room(n_bytes, sizes)}", launcher)
        results = job.end()
        check_good(failures, launcher, results, job.errors, crcs)
        failures.check(origin_bytes(results) == n_bytes,
                       f"{launcher}: {origin_bytes(results)} of {n_bytes} bytes from the origin")
        failures.check(all(r and r["bound_bytes"] == n_bytes for r in results), "the bound")
        failures.check(all(r and r["peers"]["served"] > 0 and r["peers"]["failed"] == 0
                           for r in results), f"{launcher}: peers serve")


def test_ranks_that_differ(failures, stoker, folder):
    job = Job(stoker, folder, "--epochs 2", each=lambda rank: f"--batch {5 if rank == 2 else 4}")
    results = job.end()
    for rank in range(WORLD):
        failures.check(results[rank] is None and "rank 0 has batch_size 4, rank 2 has 5" in
                       job.errors[rank], f"another batch is refused: {job.errors[rank]}")


def test_lost_rank(failures, stoker, folder, n_bytes, sizes, how):
    """A rank is killed, stopped for good, or stopped for a while, in the midst of it."""
    run = f"--batch 4 --epochs {EPOCHS} --compute-us 50000"
    crcs = expected_crcs(stoker, folder, f"--batch 4 --epochs {EPOCHS}")
    job = Job(stoker, folder,
              f"{run} {room(n_bytes, sizes)} --peer-timeout-ms 500 --close-timeout-ms 3000",
              quiet=False)
    job.wait_for_epoch(0)
    job.ranks[1].send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    if how == "paused":
        time.sleep(1.5)
        job.ranks[1].send_signal(signal.SIGCONT)
    but = () if how == "paused" else (1,)
    if how == "stopped":
        for rank in (0, 2, 3): # the stopped one cannot end by itself
            job.ranks[rank].wait(timeout=LIMIT_S)
    results = job.end(but)
    check_good(failures, how, results, job.errors, crcs, but)


def test_told(failures, stoker, path):
    """What comes from where is told beforehand; by the published policy as by the simulator."""
    samples, n_bytes = 2000, 2000
    with open(path, "wb") as file:
        file.write(random.Random(8).randbytes(samples * n_bytes))
    simulated = json.loads(subprocess.run(
        [stoker, "simulate", "--builtin", "coverage", "--policy", "paper", "--set",
         f"ranks={WORLD}", "--set", "epochs=8", "--set", f"samples={samples}", "--json"],
        capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout)["policies"][0]
    for policy, part in (("coordinated", 1), ("paper", 1), ("coordinated", 4)):
        caches = tempfile.mkdtemp(dir=os.path.dirname(path))
        for rank in range(WORLD):
            os.mkdir(os.path.join(caches, str(rank)))
        run = "--format record --record-bytes 2000 --batch 4 --epochs 8 --explain " \
            f"--policy {policy} --ram-bytes {n_bytes * (samples // WORLD // part + 1)} " \
            f"--staging-bytes {32 * n_bytes}"
        # The rest of what it holds is on an SSD of its own.
        ssd_bytes = n_bytes * (samples // WORLD * (part - 1) // part + 1)
        job = Job(stoker, path, run, each=lambda rank: "" if part == 1 else
                  f"--tiers-per-rank --tier ssd:{caches}/{rank}:{ssd_bytes}")
        for rank, result in enumerate(job.end()):
            failures.check(result is not None, f"told: rank {rank} failed: {job.errors[rank]}")
            if result is None:
                continue
            run, told, paper = (result["shares"][name] for name in ("run", "told", "paper"))
            failures.check(part == 1 or result["sources"]["ssd"] > 0, f"rank {rank} uses its SSD")
            if part > 1: # the published policy is another one on that
                paper = {"origin": simulated["steady_origin_share"],
                         "local": simulated["steady_local_share"]}
            for source, share in run.items():
                failures.check(abs(share - told[source]) <= 0.02,
                               f"{policy}, rank {rank}: {source} {share}, told {told[source]}")
            failures.check(abs(paper["origin"] - simulated["steady_origin_share"]) <= 0.02 and
                           abs(paper["local"] - simulated["steady_local_share"]) <= 0.02,
                           f"rank {rank}: paper is told {paper}, simulated {simulated}")
    # RAM for half of all, which the ranks of this machine share.
    job = Job(stoker, path, "--format record --record-bytes 2000 --batch 4 --epochs 8 --explain "
              f"--staging-bytes {32 * n_bytes}", tier=f"ram:{n_bytes * samples // 2}")
    for rank, result in enumerate(job.end()):
        failures.check(result is not None, f"shared: rank {rank} failed: {job.errors[rank]}")
        if result is None:
            continue
        run, told = result["shares"]["run"], result["shares"]["told"]
        failures.check(0.3 < told["origin"] < 0.9, f"shared: rank {rank} is told {told}")
        for source, share in run.items():
            failures.check(abs(share - told[source]) <= 0.02,
                           f"shared, rank {rank}: {source} {share}, told {told[source]}")


def main():
    stoker = os.path.abspath(sys.argv[1])
    failures = Failures()
    with tempfile.TemporaryDirectory(prefix="stoker-ranks-") as scratch:
        uniform = [40000] * SAMPLES
        mixed = [random.Random(at).randrange(1, 90000) for at in range(SAMPLES)]
        folders = [(os.path.join(scratch, name), sizes) for name, sizes in
                   (("uniform", uniform), ("mixed", mixed))]
        for folder, sizes in folders:
            write_set(folder, sizes)
        probe = Job(stoker, folders[0][0], "--batch 4")
        results = probe.end()
        if any("without UCX" in error for error in probe.errors):
            print("this build has no UCX")
            return SKIP
        failures.check(all(results), f"four ranks run: {probe.errors}")
        for folder, sizes in folders:
            test_each_byte_once(failures, stoker, folder, sum(sizes), sizes)
        test_told(failures, stoker, os.path.join(scratch, "records"))
        test_ranks_that_differ(failures, stoker, folders[0][0])
        for how in ("killed", "stopped", "paused"):
            test_lost_rank(failures, stoker, folders[0][0], sum(uniform), uniform, how)
    print("failed checks:", failures.count)
    return 1 if failures.count else 0


if __name__ == "__main__":
    sys.exit(main())
