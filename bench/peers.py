#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast a rank fetches samples of 108 KB that a peer holds, against UCX's benchmark.

    bench/peers.py [--rounds N] [--busy] [LINK...]      default: 5 rounds, tcp shm

tcp: two network namespaces joined by a pair of interfaces (root, iproute2), over TCP alone.
shm: two processes of one machine, over shared memory.

Of the two ranks, one has memory for the whole data set and the other for hardly more than what it
stages: it fetches from its peer nearly all that it reads, batch by batch, checksums compared.
The contender is `ucx_perftest -t ucp_am_bw` with messages of the same size over the same
transports (Debian: ucx-utils): as it is, where the same message goes on from one cache to another;
out of and into as much memory as the samples fill (ucx_walk.c); and with its -e, which asks UCX to
tell of peers that are lost as Stoker does, and rules some transports out. Runs are interleaved;
medians are printed, and the shares. --busy keeps one core busy beside all.

BUILD build directory (release), WORK where the data set lies (in memory: /dev/shm)."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BUILD", os.path.join(HERE, "..", "build"))
WORK = os.path.join(os.environ.get("WORK", "/dev/shm"), f"stoker-bench-peers-{os.getpid()}")
STOKER = os.path.join(BUILD, "cli", "stoker")
SAMPLE = 108000
SAMPLES = 2000
EPOCHS = 21
TAG = f"stkpeers{os.getpid() % 10000}"
ADDRESS = "10.96.0.{}"


class Link:
    """Where the two ends run, and what they may use."""

    def __init__(self, name):
        self.name = name
        self.hosts = []
        self.address = "127.0.0.1"
        # "shm": all by which processes of one machine share memory; they meet over TCP.
        self.transports = "tcp" if name == "tcp" else "shm,tcp"
        if name == "tcp":
            self.make()

    def make(self):
        def ip(*words):
            subprocess.run(["ip", *words], check=True)

        for at in range(2):
            ip("netns", "add", f"{TAG}{at}")
            self.hosts.append(f"{TAG}{at}")
        ip("-n", self.hosts[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0",
           "netns", self.hosts[1])
        for at, host in enumerate(self.hosts):
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "addr", "add", ADDRESS.format(at + 1) + "/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
        self.address = ADDRESS.format(1)
        time.sleep(2)  # until the link is up

    def remove(self):
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host], check=False)

    def start(self, at, command, more):
        prefix = ["ip", "netns", "exec", self.hosts[at]] if self.hosts else []
        return subprocess.Popen(prefix + command, env={**os.environ, **more},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, limit_s=120):
    out, err = process.communicate(timeout=limit_s)
    if process.returncode != 0:
        sys.exit(f"{process.args}: {err}")
    return out


next_port = 21000 + os.getpid() % 20000


def free_port():
    global next_port
    next_port += 1
    return str(next_port)


def run_stoker(link):
    """MB/s that come from the peer, from the second epoch on."""
    port = free_port()
    ranks = []
    for rank in range(2):
        room = SAMPLES * SAMPLE + SAMPLE if rank == 0 else 2 * SAMPLE
        ranks.append(link.start(rank, [
            STOKER, "bench", "load", os.path.join(WORK, "set"), "--format", "record",
            "--record-bytes", str(SAMPLE), "--layout", "raw", "--batch", "16", "--seed", "5",
            "--epochs", str(EPOCHS), "--tier", "ram:1G", "--ram-bytes",
            str(room), "--staging-bytes", str(64 * SAMPLE), "--json", "--quiet"],
            {"RANK": str(rank), "WORLD_SIZE": "2", "STOKER_ADDR": link.address,
             "STOKER_PORT": port, "STOKER_SECRET": "of the bench",
             "STOKER_TRANSPORTS": link.transports}))
    results = [json.loads(finish(rank)) for rank in ranks]
    later = results[1]["epochs"][1:]
    n_bytes = sum(epoch["source_bytes"]["peer"] for epoch in later)
    assert n_bytes > 0.85 * sum(epoch["bytes"] for epoch in later), "it does not fetch"
    return n_bytes / sum(epoch["seconds"] for epoch in later) / 1e6


def run_ucx(link, *options, walks=False):
    """MB/s of UCX's own benchmark."""
    port = free_port()
    more = {"UCX_TLS": link.transports, "UCX_WARN_UNUSED_ENV_VARS": "n"}
    if walks:
        more["LD_PRELOAD"] = os.path.join(BUILD, "bench", "ucx_walk.so")
        more["WALK_BYTES"] = str(SAMPLES * SAMPLE)
    if link.hosts:
        more["UCX_NET_DEVICES"] = "eth0"
    command = ["ucx_perftest", "-t", "ucp_am_bw", "-s", str(SAMPLE), "-n", "20000", "-w", "500",
               "-p", port, "-f", "-v", *options]
    server = link.start(0, command, more)
    time.sleep(0.3)
    client = link.start(1, command[:1] + [link.address] + command[1:], more)
    lines = finish(client).strip().splitlines()
    server.communicate(timeout=60)
    return float(lines[-1].split(",")[5]) * 1.048576  # its average bandwidth is in 2^20


def busy():
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def measure(link, rounds, is_busy):
    runs = {"stoker": lambda: run_stoker(link), "ucx_perftest": lambda: run_ucx(link),
            "of as much memory": lambda: run_ucx(link, walks=True),
            "told of losses (-e)": lambda: run_ucx(link, "-e")}
    rates = {name: [] for name in runs}
    for _ in range(rounds):
        beside = busy() if is_busy else None
        try:
            for name, run in runs.items():
                rates[name].append(run())
        finally:
            if beside:
                beside.kill()
                beside.wait()
    ours = statistics.median(rates["stoker"])
    print(f"{link.name}{' beside a busy core' if is_busy else ''}")
    for name, seen in rates.items():
        middle = statistics.median(seen)
        print(f"  {name:20} {middle:6.0f} MB/s  {100 * ours / middle:4.0f} %  "
              f"({' '.join(f'{rate:.0f}' for rate in seen)})", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("links", nargs="*", default=["tcp", "shm"], metavar="LINK")
    asked = parser.parse_args()
    if not shutil.which("ucx_perftest"):
        sys.exit("bench/peers.py: ucx_perftest is needed (ucx-utils)")
    os.makedirs(WORK)
    try:
        with open(os.path.join(WORK, "set"), "wb") as file:
            for _ in range(SAMPLES // 100):
                file.write(os.urandom(100 * SAMPLE))
        for name in asked.links:
            link = Link(name)
            try:
                measure(link, asked.rounds, asked.busy)
            finally:
                link.remove()
    finally:
        shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
