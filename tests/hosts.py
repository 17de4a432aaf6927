# SPDX-License-Identifier: Apache-2.0
"""Two hosts and a switch between them, of network namespaces (root, iproute2); or none."""
import os
import shutil
import subprocess
import time


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL)


class Hosts:
    """names: of the hosts, [] where this machine has no namespaces. address: of the first one."""

    def __init__(self, tag, network):
        self.tag, self.network = f"{tag}{os.getpid()}", network
        self.names, self.address = [], "127.0.0.1"
        if os.geteuid() == 0 and shutil.which("ip"):
            try:
                self.make()
            except (subprocess.CalledProcessError, OSError) as error:
                print(f"no network namespaces here: {error}")
                self.remove()

    def make(self):
        """A switch: a cable that is cut takes the link of its own host alone."""
        switch = f"{self.tag}s"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "switch", "type", "bridge")
        ip("-n", switch, "link", "set", "switch", "up")
        for at in range(2):
            name = f"{self.tag}{at}"
            ip("netns", "add", name)
            self.names.append(name)
            ip("-n", switch, "link", "add", f"port{at}", "type", "veth", "peer", "name", "eth0",
               "netns", name)
            ip("-n", switch, "link", "set", f"port{at}", "master", "switch", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{self.network}.{at + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        self.address = f"{self.network}.1"
        self.wait_until_up()

    def wait_until_up(self):
        """Who starts before it is up has no address for the others."""
        for name in self.names:
            until = time.monotonic() + 10
            while " UP " not in subprocess.run(
                    ["ip", "-n", name, "-br", "link", "show", "eth0"], check=True,
                    capture_output=True, text=True).stdout:
                assert time.monotonic() < until, "the link does not come up"
                time.sleep(0.02)

    def at(self, host):
        """What a command on a host begins with."""
        return ["ip", "netns", "exec", self.names[host]] if self.names else []

    def link(self, state):
        """Cuts the second host's cable (down), or mends it (up)."""
        ip("-n", f"{self.tag}s", "link", "set", "port1", state)
        if state == "up":
            self.wait_until_up()

    def remove(self):
        for name in [*self.names, f"{self.tag}s"]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
        self.names, self.address = [], "127.0.0.1"
