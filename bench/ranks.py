#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks that read one slow volume and serve each other: what that saves, and what it gains.

    bench/ranks.py [--rounds N] [--only counts|times|slow] [KIND...]

Default: 3 rounds of small big, and what a slow rank costs.

    small   2,000 files of 108 KB
    big     48 files of 16 MiB

Each rank is a process with a mount, a device and a page cache of its own of the same volume, as if
it were a machine of its own; they meet over UCX. Each can hold a quarter of the data set and one
sample (1.0 S together), or a half (2.0 S).

counts: five epochs without a limit that matters. What the origin and its devices give, against the
lower bound; shares of local reads; what crosses the network; beside it the published policy
(paper), which reads what it is told to read and what the simulator says.

times: each step computes (sleeps) for less than a tenth of what the volume needs for its samples,
so that reading ahead alone stalls for nine tenths of the time. How long an epoch takes from the
second one on with Stoker, with its policies none and paper, and with a DataLoader and a
DistributedSampler for each rank, as much page cache as Stoker has memory for samples, and the best
of several numbers of workers. All in one run, interleaved; medians.

slow: most of the data set lies on the ranks' SSDs (a cache directory each), and one rank's is slow.
An epoch's time before others serve for it, and after.

Needs root (mounts, memory cgroups of version 1), libfuse3 and UCX; PYTHON, an interpreter with
torch, for the last contender. BUILD build directory, WORK where the volume lies. Exits with 1 if a
goal is missed.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from ranks_job import (BUILD, CGROUPS, HERE, PYTHON, STOKER, WORK, WORLD, Volume, run_json,
                       run_ranks)

EPOCHS = 5
STEADY_EPOCHS = 3 # of those for which one epoch is like another from the second on
COMPUTE_SHARE = 0.09
FAST = ("rbps=1G",)


class Kind:
    """A data set, and how it is read."""

    def __init__(self, name, count, sample_bytes, batch, slow_mb_s, workers):
        self.name = name
        self.count = count
        self.sample_bytes = sample_bytes
        self.batch = batch
        self.slow_mb_s = slow_mb_s
        self.workers = workers

    def staging_bytes(self):
        """Four batches; two is the least that a loader takes."""
        return 4 * self.batch * self.sample_bytes

    def ram_bytes(self, hundredths):
        return self.count * hundredths // (100 * WORLD) * self.sample_bytes + self.sample_bytes

    def compute_us(self):
        """A step's: what the volume needs for the samples of all ranks is ten times and more."""
        return int(COMPUTE_SHARE * WORLD * self.batch * self.sample_bytes / self.slow_mb_s)


KINDS = {
    "small": Kind("small", 2000, 108 << 10, 16, 40, (1, 2, 4)),
    "big": Kind("big", 48, 16 << 20, 1, 100, (0, 1, 2)),
}


class Report:
    """Prints what was found and counts the goals that were missed."""

    def __init__(self):
        self.missed = 0

    def say(self, text):
        print(text, flush=True)

    def goal(self, is_good, text):
        self.missed += not is_good
        self.say(("- ok: " if is_good else "- MISSED: ") + text)


def load(volume, kind, policy, hundredths, *more):
    """A rank's command for run_ranks()."""
    def command(rank, _):
        return [STOKER, "bench", "load", volume.data(rank), "--format", "folder", "--index",
                volume.index(rank), "--layout", "raw", "--batch", str(kind.batch), "--seed", "1",
                "--tiers-per-rank", "--tier", f"ram:{kind.ram_bytes(hundredths)}",
                "--ram-bytes", str(kind.ram_bytes(hundredths)),
                "--staging-bytes", str(kind.staging_bytes()), "--policy", policy, "--json",
                "--quiet", *more]
    return command


def total(results, key, of=lambda result: result):
    return sum(of(result)[key] for result in results)


def later_share(results, name):
    """Of the reads from the second epoch on: those from a tier."""
    later = [epoch for result in results for epoch in result["epochs"][1:]]
    return sum(epoch["sources"][name] for epoch in later) / total(later, "samples")


# ---- counts ------------------------------------------------------------------------------------


def told_share(results):
    """What the run was told beforehand to read from the origin, from the second epoch on."""
    return statistics.mean(result["shares"]["told"]["origin"] for result in results)


def count(volume, kind, policy, hundredths):
    """Runs it; the results and what the devices gave."""
    volume.mount(*FAST)
    results, _ = run_ranks(load(volume, kind, policy, hundredths, "--epochs", str(EPOCHS),
                                "--explain"))
    return results, volume.device_bytes()


def simulated_paper(kind):
    """The simulator's share of reads from the origin, for the same numbers."""
    changes = {"ranks": WORLD, "epochs": EPOCHS, "samples": kind.count,
               "sample_mb": kind.sample_bytes / 1e6, "batch": kind.batch,
               "ram_mb": kind.ram_bytes(100) / 1e6, "seed": 1}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    found = run_json([STOKER, "simulate", "--builtin", "coverage", "--policy", "paper", "--json",
                      *words])
    return found["policies"][0]["steady_origin_share"]


def check_device(report, volume, kind, device_bytes, metadata_bytes):
    blocks = kind.count * (-(-kind.sample_bytes // 4096) * 4096)
    most = 1.01 * blocks + metadata_bytes
    report.goal(device_bytes <= most,
                f"devices gave {device_bytes / blocks:.4f} x the blocks of all samples once, at "
                f"most {most / blocks:.4f} (1 %, and {metadata_bytes / 1e6:.2f} MB of metadata "
                f"for {WORLD} mounts)")
    assert volume.bytes <= blocks


def counts(report, volume, kind):
    report.say(f"\n### {kind.name}: {kind.count} samples of {kind.sample_bytes} bytes, "
               f"{EPOCHS} epochs, counts\n")
    metadata_bytes = volume.metadata_bytes()
    report.say("| policy, capacity | origin / data set | bound / data set | local | peer | origin |"
               " network / data set |\n|---|---|---|---|---|---|---|")
    runs = {}
    for policy, hundredths in (("coordinated", 100), ("paper", 100), ("coordinated", 200)):
        results, device_bytes = count(volume, kind, policy, hundredths)
        runs[policy, hundredths] = results, device_bytes
        shares = [later_share(results, name) for name in ("ram", "peer", "origin")]
        crossed = total(results, "served_bytes", lambda result: result["peers"])
        report.say(f"| {policy}, {hundredths / 100:.1f} S |"
                   f" {total(results, 'origin_bytes') / volume.bytes:.4f} |"
                   f" {results[0]['bound_bytes'] / volume.bytes:.4f} |" +
                   "".join(f" {share:.3f} |" for share in shares) +
                   f" {crossed / volume.bytes:.2f} |")
    report.say("")
    for hundredths, least in ((100, 0.46), (200, 0.77)):
        results, device_bytes = runs["coordinated", hundredths]
        exact = total(results, "origin_bytes") == results[0]["bound_bytes"] == volume.bytes
        report.goal(exact, f"{hundredths / 100:.1f} S: the origin gave the bound to the byte")
        check_device(report, volume, kind, device_bytes, metadata_bytes)
        share = later_share(results, "ram")
        report.goal(share >= least, f"{hundredths / 100:.1f} S: {share:.3f} of later reads are "
                                    f"local, at least {least}")
    paper = runs["paper", 100][0]
    seen, told, simulated = later_share(paper, "origin"), told_share(paper), simulated_paper(kind)
    report.goal(abs(seen - told) <= 0.02, f"paper reads {seen:.3f} of later samples from the "
                                          f"origin, told {told:.3f} for this order")
    if kind.count >= 1000: # with few samples chance is more than that
        report.goal(abs(seen - simulated) <= 0.02, f"and the simulator says {simulated:.3f}")
    else:
        report.say(f"- (the simulator, with an order of its own: {simulated:.3f})")


# ---- times -------------------------------------------------------------------------------------


class Contender:
    """One whose epochs are timed."""

    def __init__(self, name, run):
        self.name = name
        self.run = run
        self.epochs, self.stalls, self.memory = [], [], 0

    def measure(self):
        """The slowest rank's time, since ranks that train together wait for it."""
        results, most_bytes = self.run()
        later = [result["epochs"][1:] for result in results]
        self.epochs.append(max(sum(epoch["seconds"] for epoch in epochs) / len(epochs)
                               for epochs in later))
        self.stalls.append(max(sum(epoch["seconds"] * epoch["stall_fraction"] for epoch in epochs) /
                               total(epochs, "seconds") for epochs in later))
        self.memory = max(self.memory, most_bytes)

    def seconds(self):
        return statistics.median(self.epochs)

    def stall(self):
        return statistics.median(self.stalls)


def stoker_contender(volume, kind, slow, name, policy, limit_bytes):
    epochs = STEADY_EPOCHS if policy == "none" else EPOCHS

    def run():
        volume.mount(*slow)
        return run_ranks(load(volume, kind, policy, 100, "--epochs", str(epochs),
                              "--compute-us", str(kind.compute_us())), limit_bytes)
    return Contender(name, run)


def torch_contender(volume, kind, slow, workers, cache_bytes):
    def run():
        volume.mount(*slow)
        return run_ranks(lambda rank, cgroup: [
            PYTHON, os.path.join(HERE, "torch_loader.py"), "--workers", str(workers), "--batch",
            str(kind.batch), "--epochs", str(STEADY_EPOCHS), "--rank", str(rank), "--world",
            str(WORLD), "--compute-us", str(kind.compute_us()), "--cgroup", cgroup,
            "--cache-bytes", str(cache_bytes), volume.list_path(rank)])
    return Contender(f"DataLoader, {workers} worker{'' if workers == 1 else 's'}", run)


def have_torch():
    return subprocess.run([PYTHON, "-c", "import torch"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


def run_rounds(contenders, rounds):
    """All once; in later rounds the best DataLoader stands for the others."""
    for at in range(rounds):
        ours = [c for c in contenders if not c.name.startswith("DataLoader")]
        theirs = [c for c in contenders if c.name.startswith("DataLoader")]
        if at > 0 and theirs:
            theirs = [min(theirs, key=lambda c: c.seconds())]
        for contender in ours + theirs:
            contender.measure()


def times(report, volume, kind, rounds):
    slow = (f"rbps={kind.slow_mb_s}M",)
    samples_bytes = kind.ram_bytes(100) + kind.staging_bytes()
    limit_bytes = samples_bytes + (256 << 20)
    report.say(f"\n### {kind.name}: a volume of {kind.slow_mb_s} MB/s, steps of "
               f"{kind.compute_us() / 1000:.1f} ms\n")
    contenders = [stoker_contender(volume, kind, slow, name, policy, limit_bytes)
                  for name, policy in (("stoker", "coordinated"), ("stoker, paper", "paper"),
                                       ("stoker, staging alone", "none"))]
    if have_torch():
        contenders += [torch_contender(volume, kind, slow, workers, samples_bytes)
                       for workers in kind.workers]
    else:
        report.say(f"{PYTHON} has no torch: its DataLoader is left out\n")
    run_rounds(contenders, rounds)
    ours = contenders[0].seconds()
    report.say("| contender | s of an epoch | least - most | stall | x stoker | cgroup MB |\n"
               "|---|---|---|---|---|---|")
    for contender in contenders:
        report.say(f"| {contender.name} | {contender.seconds():.2f} | {min(contender.epochs):.2f} -"
                   f" {max(contender.epochs):.2f} | {100 * contender.stall():.1f} % |"
                   f" {contender.seconds() / ours:.2f} | {contender.memory / 1e6:.0f} |")
    report.say("")
    own, paper, none = contenders[:3]
    report.goal(none.stall() >= 0.9, f"staging alone stalls {100 * none.stall():.1f} %, at least "
                                     "90 %")
    report.goal(own.stall() <= 0.02, f"stoker stalls {100 * own.stall():.2f} %, at most 2 %")
    report.goal(paper.seconds() / ours >= 1.5,
                f"paper takes {paper.seconds() / ours:.2f} x as long, at least 1.5")
    if len(contenders) > 3:
        best = min(contenders[3:], key=lambda contender: contender.seconds())
        report.goal(best.seconds() / ours >= 5.4,
                    f"{best.name} takes {best.seconds() / ours:.2f} x as long, at least 5.4")


# ---- one slow rank -----------------------------------------------------------------------------


def slow_command(volume, kind, caches, is_slow):
    def command(rank, _):
        cache = os.path.join(caches, str(rank))
        os.makedirs(cache)
        shape = ["--ssd-shape", "rbps=20M"] if is_slow and rank == 1 else []
        ram_bytes = kind.ram_bytes(5)
        return [STOKER, "bench", "load", volume.data(rank), "--format", "folder", "--index",
                volume.index(rank), "--layout", "raw", "--batch", str(kind.batch), "--seed", "1",
                "--epochs", "10", "--tiers-per-rank", "--tier", f"ram:{ram_bytes}",
                "--ram-bytes", str(ram_bytes), "--tier", f"ssd:{cache}:{volume.bytes}",
                "--staging-bytes",
                str(kind.staging_bytes()), "--compute-us", str(kind.compute_us()), "--json",
                "--quiet", *shape]
    return command


def slow(report, volume, kind):
    report.say(f"\n### {kind.name}: most of it on SSDs, one of them of 20 MB/s\n")
    found = {}
    for is_slow in (False, True):
        caches = tempfile.mkdtemp(prefix="caches-", dir=WORK)
        try:
            volume.mount(*FAST)
            results, _ = run_ranks(slow_command(volume, kind, caches, is_slow))
        finally:
            shutil.rmtree(caches)
        epochs = [max(result["epochs"][at]["seconds"] for result in results)
                  for at in range(len(results[0]["epochs"]))]
        found[is_slow] = epochs
        report.say(f"- seconds of each epoch, {'one slow' if is_slow else 'all alike'}: " +
                   " ".join(f"{seconds:.2f}" for seconds in epochs))
        report.goal(total(results, "origin_bytes") == volume.bytes,
                    f"the origin gave {total(results, 'origin_bytes') / volume.bytes:.4f} x the "
                    "data set")
    before, after = found[True][1], statistics.median(found[True][-3:])
    report.goal(before / after >= 1.5, f"relieved, an epoch takes 1 / {before / after:.2f} of "
                                       "before")
    alike = statistics.median(found[False][-3:])
    report.goal(after / alike <= 1.2, f"{after / alike:.2f} x what it takes where all are alike, "
                                      "at most 1.2")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("counts", "times", "slow"))
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    asked = parser.parse_args()
    kinds = asked.kinds or list(KINDS)
    if not set(kinds) <= set(KINDS):
        parser.error(f"KIND is one of {' '.join(KINDS)}")
    if os.geteuid() != 0 or not os.access(CGROUPS, os.W_OK):
        sys.exit("bench/ranks.py: needs root and memory cgroups of version 1")
    if not os.access(os.path.join(BUILD, "bench", "slowdisk"), os.X_OK):
        sys.exit("bench/ranks.py: needs slowdisk, which is built where libfuse3 is")
    os.makedirs(WORK, exist_ok=True)
    report = Report()
    for name in kinds:
        kind = KINDS[name]
        volume = Volume(name, kind.count, kind.sample_bytes)
        try:
            if asked.only in (None, "counts"):
                counts(report, volume, kind)
            else:
                volume.metadata_bytes() # makes the indexes
            if asked.only in (None, "times"):
                times(report, volume, kind, asked.rounds)
            if asked.only in (None, "slow") and name == "small":
                slow(report, volume, kind)
        finally:
            volume.remove()
    report.say(f"\n{report.missed} goals missed" if report.missed else "\nall goals met")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
