#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes over UCX: killed, stopped, cut off, and in network namespaces where root is.

    comm_hosts.py COMM_RANK

Two hosts are two network namespaces; without root (or without ip) all ranks are on the loopback,
and what needs a link to cut is left out.
"""

import os
import signal
import socket
import subprocess
import sys
import time

from hosts import Hosts

RANK = sys.argv[1]
SECRET = "of the test"


class Rank:
    def __init__(self, hosts, rank, world, port, secret=SECRET, transports="tcp"):
        self.rank = rank
        command = hosts.at(rank % 2) + [
            RANK, str(rank), str(world), hosts.address, str(port), secret, transports]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline().split()
        assert line, f"rank {self.rank} has ended: {self.process.wait()}"
        return line

    def ask(self, line):
        self.say(line)
        return self.hear()

    def get(self, peer, n_bytes, count, ms=3000):
        """(how many came, how many did not, the last code, the longest in ms)"""
        words = self.ask(f"get {peer} {n_bytes} {count} {ms}")
        assert words[0] == "got" and words[5] == "0", f"wrong bytes: {words}"
        return int(words[1]), int(words[3]), int(words[7]), int(words[9])

    def quit(self):
        self.say("quit")
        assert self.hear() == ["closed"]
        assert self.process.wait() == 0

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Job:
    next_port = 12000 + os.getpid() % 20000

    def __init__(self, hosts, world, **options):
        if hosts.names:
            Job.next_port += 1
            port = Job.next_port
        else:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        self.ranks = [Rank(hosts, rank, world, port, **options) for rank in range(world)]

    def __enter__(self):
        self.opened = [rank.hear() for rank in self.ranks]
        return self.ranks

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.end()


def sizes(hosts):
    with Job(hosts, 3) as ranks:
        for n_bytes in (0, 1, 1000, 8192, 108000, 1 << 20, 16 << 20):
            for at in range(3):
                assert ranks[at].get((at + 1) % 3, n_bytes, 20)[:2] == (20, 0), n_bytes
        for rank in ranks:
            rank.say("gather 3000")
        for rank in ranks:
            assert rank.hear()[:2] == ["gather", "0"]
        for at, rank in enumerate(ranks):
            rank.say(f"vote 7 {int(at != 2)} 0 3000")
        for rank in ranks:
            assert rank.hear() == ["vote", "-1", "rank", "2"]
        for rank in ranks:
            rank.say("wakes 300")  # what was due a moment ago
        for rank in ranks:
            rank.hear()
        time.sleep(3)
        for rank in ranks:
            rank.say("wakes 3000")
        wakes = [int(rank.hear()[1]) for rank in ranks]
        assert max(wakes) <= 20, f"idle ranks wake up: {wakes}"
        for rank in ranks:
            rank.quit()


def shared_memory(hosts):
    with Job(hosts, 4, transports="all") as ranks:
        assert ranks[0].get(2, 108000, 200)[:2] == (200, 0)
        assert ranks[3].get(1, 16 << 20, 8)[:2] == (8, 0)
        os.kill(pid_of(ranks[2]), signal.SIGKILL)
        n_good, n_bad, _, longest_ms = ranks[0].get(2, 1 << 20, 20, 1000)
        assert n_good == 0 and n_bad == 20 and longest_ms < 3000, (n_good, longest_ms)
        ranks[1].get(3, 108000, 10)
        for at in (0, 1, 3):
            ranks[at].quit()


def pid_of(rank):
    """The rank itself; ip netns exec becomes what it runs."""
    return rank.process.pid


def killed(hosts):
    with Job(hosts, 4) as ranks:
        for at in (0, 2, 3):
            assert ranks[at].get(1, 108000, 20)[:2] == (20, 0)
        for at in (0, 2, 3):
            ranks[at].say("get 1 1000000 400 2000")
        time.sleep(0.2)
        os.kill(pid_of(ranks[1]), signal.SIGKILL)
        for at in (0, 2, 3):
            words = ranks[at].hear()
            assert words[0] == "got" and words[5] == "0", words
            assert int(words[9]) < 5000, f"a dead peer held a request for {words[9]} ms"
        assert ranks[0].get(1, 1000, 8, 1000)[1] == 8
        for at, other in ((0, 2), (2, 3), (3, 0)):
            assert ranks[at].get(other, 108000, 20)[:2] == (20, 0)
        for at in (0, 2, 3):
            ranks[at].say("vote 1 1 0 1500")
        for at in (0, 2, 3):
            assert ranks[at].hear() == ["vote", "-110", "rank", "1"]
        for at in (0, 2, 3):
            ranks[at].quit()


def stopped(hosts):
    with Job(hosts, 3) as ranks:
        for at in (0, 2):
            assert ranks[at].get(1, 108000, 20)[:2] == (20, 0)
        os.kill(pid_of(ranks[1]), signal.SIGSTOP)
        n_good, n_bad, _, longest_ms = ranks[0].get(1, 4 << 20, 12, 500)
        assert n_good == 0 and n_bad == 12 and longest_ms < 2500, (n_good, n_bad, longest_ms)
        assert ranks[0].get(2, 1 << 20, 20)[:2] == (20, 0)
        os.kill(pid_of(ranks[1]), signal.SIGCONT)
        again(ranks[0], 1)
        again(ranks[1], 0)
        assert ranks[2].get(1, 108000, 20)[:2] == (20, 0)
        for rank in ranks:
            rank.quit()


def again(rank, peer):
    """A peer that is back is used again, and gives the right bytes."""
    until = time.monotonic() + 15
    while rank.get(peer, 1 << 20, 4, 1000)[0] < 4:
        assert time.monotonic() < until, f"rank {rank.rank} does not find rank {peer} again"
        time.sleep(0.2)


def cut(hosts):
    if not hosts.names:
        print("no link to cut")
        return
    with Job(hosts, 3) as ranks:
        assert ranks[0].get(1, 108000, 20)[:2] == (20, 0)
        hosts.link("down")
        n_good, n_bad, _, longest_ms = ranks[0].get(1, 1 << 20, 12, 700)
        assert n_good == 0 and n_bad == 12 and longest_ms < 2500, (n_good, n_bad, longest_ms)
        assert ranks[0].get(2, 1 << 20, 20)[:2] == (20, 0)
        hosts.link("up")
        again(ranks[0], 1)
        again(ranks[1], 0)
        again(ranks[1], 2)
        for rank in ranks:
            rank.quit()


def strangers(hosts):
    """Without a secret, who comes from another machine is not let in."""
    if not hosts.names:
        print("no other machine")
        return
    job = Job(hosts, 2, secret="")
    try:
        words = job.ranks[1].hear()
        assert words[:2] == ["failed", "-13"] and "secret," in words, words
    finally:
        for rank in job.ranks:
            rank.end()


def environment(hosts):
    """What the environment says to UCX does not reach these ranks."""
    os.environ.update(UCX_TLS="rc", UCX_NET_DEVICES="none0", UCX_HANDLE_ERRORS="debug,freeze")
    try:
        with Job(hosts, 2) as ranks:
            assert ranks[0].get(1, 108000, 20)[:2] == (20, 0)
            for rank in ranks:
                rank.quit()
    finally:
        for name in [name for name in os.environ if name.startswith("UCX_")]:
            del os.environ[name]


def main():
    hosts = Hosts("stkh", "10.97.0")
    print("hosts:", hosts.names or "the loopback", flush=True)
    try:
        for test in (sizes, killed, stopped, cut, strangers, environment):
            started = time.monotonic()
            test(hosts)
            print(f"{test.__name__}: {time.monotonic() - started:.1f} s", flush=True)
    finally:
        hosts.remove()
    started = time.monotonic()
    shared_memory(hosts)
    print(f"shared_memory: {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
