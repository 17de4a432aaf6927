#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the levels of durability cost beside the first one, each a ratio or a difference of one run:

    levels.py [--rounds N] [--size BYTES] [SETUP...]     default: 3 rounds of 256 MB, all set-ups

    partner  two ranks on two machines (network namespaces), each with a volume of 250 MB/s:
             the time until a save is durable on the other one, too, over that until it is durable
             here. Each volume then has a write of its own, a read for the other one and a write of
             the copy: at best twice the time where it reads and writes at once ("duplex"), three
             times where the two share its rate ("shared rate").
    load     the same machines: loading what the other one has, over loading what this one has, both
             at the same time
    vote     1 .. 32 processes on this machine that save 8 KiB into memory (/dev/shm): what a save
             takes, which is what its two syncs of nothing, and its vote take

Prints Markdown, medians over ranks and rounds, the least and the most. Needs root, iproute2 and the
binaries of BUILD (../build), made for speed."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(HERE, "../build")))
STOKER = os.path.join(BUILD, "cli/stoker")
RATE = 250000000
TAG = f"stklv{os.getpid() % 100000}"
VOTE_SAVES = 200
next_port = 20000 + os.getpid() % 20000


class Machines:
    """Two network namespaces and a link between them, as fast as it goes; a volume for each."""

    def __init__(self, size, limits):
        self.names = [f"{TAG}{at}" for at in range(2)]
        self.dirs = []
        self.env = {**os.environ, "SLOWDISK": os.path.join(BUILD, "bench/slowdisk"),
                    "VOLUMES": os.environ.get("VOLUMES", "/var/tmp/stoker-volumes")}
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        ip = ["ip", "-n"]
        subprocess.run([*ip, self.names[0], "link", "add", "eth0", "type", "veth", "peer", "name",
                        "eth0", "netns", self.names[1]], check=True)
        for at, name in enumerate(self.names):
            subprocess.run([*ip, name, "link", "set", "lo", "up"], check=True)
            subprocess.run([*ip, name, "addr", "add", f"10.97.0.{at + 1}/24", "dev", "eth0"],
                           check=True)
            subprocess.run([*ip, name, "link", "set", "eth0", "up"], check=True)
            made = self.volume("up", name, str(8 * size + 300000000), *limits)
            self.dirs.append(made.strip())
        while not all(" UP " in subprocess.run(
                [*ip, name, "-br", "link", "show", "eth0"], check=True, capture_output=True,
                text=True).stdout for name in self.names):
            pass

    def volume(self, *words):
        return subprocess.run([os.path.join(HERE, "volume.sh"), *words], check=True, text=True,
                              stdout=subprocess.PIPE, env=self.env).stdout

    def prefix(self, rank):
        return ["ip", "netns", "exec", self.names[rank]]

    def remove(self):
        for name in self.names:
            self.volume("down", name)
            subprocess.run(["ip", "netns", "del", name], check=False)


def run(world, host, root_of, prefix_of, options):
    """The JSON of each rank of a job."""
    global next_port
    next_port += 1
    ranks = []
    for rank in range(world):
        given = {"RANK": str(rank), "WORLD_SIZE": str(world), "STOKER_ADDR": host,
                 "STOKER_PORT": str(next_port), "STOKER_SECRET": "of the benchmark"}
        ranks.append(subprocess.Popen(
            prefix_of(rank) + [STOKER, "bench", "save", "--json", "--quiet", "--root",
                               root_of(rank), *options.split()],
            stdout=subprocess.PIPE, text=True, env={**os.environ, **given}))
    told = [(process.communicate()[0], process.returncode) for process in ranks]
    if any(code != 0 for _, code in told):
        raise SystemExit(f"levels.py: a rank failed: {options}")
    return [json.loads(text) for text, _ in told]


def ballast():
    subprocess.run([os.path.join(BUILD, "bench/ballast"), "1024"], check=True)


def row(what, values, form="{:.2f}"):
    shown = [form.format(value) for value in (statistics.median(values), min(values), max(values))]
    print(f"| {what} | {shown[0]} | {shown[1]} .. {shown[2]} | {len(values)} |", flush=True)


def on_machines(size, limits, rounds, options, ratio_of):
    """Ratios of all ranks in all rounds."""
    machines = Machines(size, limits)
    ratios = []
    try:
        for _ in range(rounds):
            ballast()
            told = run(2, "10.97.0.1", lambda rank: machines.dirs[rank], machines.prefix,
                       f"--size {size} --unique --node-local {options}")
            ratios += [ratio_of(rank) for rank in told]
    finally:
        machines.remove()
    return ratios


DUPLEX = (f"rbps={RATE}", f"wbps={RATE}")


def partner(rounds, size):
    for name, limits in (("duplex", DUPLEX), ("shared rate", (f"bps={RATE}",))):
        ratios = on_machines(size, limits, rounds, "--partner --saves 3",
                             lambda told: told["partner_seconds"] / told["durable_seconds"])
        row(f"partner over local, {name}", ratios)


def load(rounds, size):
    ratios = on_machines(size, DUPLEX, rounds, "--saves 1 --load --load-next 1",
                         lambda told: told["load_next_seconds"] / told["load_seconds"])
    row("loading from the other machine over loading here", ratios)


def vote(rounds, _size):
    worlds = (1, 2, 4, 8, 16, 32)
    seen = {world: [] for world in worlds}
    with tempfile.TemporaryDirectory(prefix="stoker-levels-", dir="/dev/shm") as top:
        for _ in range(rounds):
            for world in worlds:
                told = run(world, "127.0.0.1", lambda rank: top, lambda rank: [],
                           f"--size 8192 --tensors 2 --saves {VOTE_SAVES} --slots 2 "
                           "--slot-bytes 64K --chunk-bytes 4K --workers 1")
                seen[world].append(
                    1e3 * statistics.median(rank["durable_seconds"] for rank in told))
    for world in worlds:
        row(f"a save of 8 KiB by {world} rank{'s' if world > 1 else ''}, ms", seen[world])


def main():
    setups = {"partner": partner, "load": load, "vote": vote}
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=256000000)
    parser.add_argument("setups", nargs="*", choices=[*setups, []], metavar="SETUP")
    args = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise SystemExit("levels.py: needs root and ip, for network namespaces and volumes")
    print("| what | median | least .. most | runs |\n|---|---|---|---|", flush=True)
    for name in args.setups or setups:
        setups[name](args.rounds, args.size)


if __name__ == "__main__":
    main()
