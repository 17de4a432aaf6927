# SPDX-License-Identifier: Apache-2.0
"""What bench/ranks.py runs: a volume that several ranks read, each by a mount of its own, and
ranks as processes, each in a memory cgroup of its own."""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(HERE, "..", "build")))
WORK = os.environ.get("WORK", "/var/tmp/stoker-bench-ranks")
PYTHON = os.environ.get("PYTHON", "python3")
STOKER = os.path.join(BUILD, "cli", "stoker")
CGROUPS = "/sys/fs/cgroup/memory"
WORLD = 4
LIMIT_S = 600


class Volume:
    """A slow volume with a data set of files, mounted anew for each run: no cache is warm."""

    def __init__(self, name, count, sample_bytes):
        self.name = name
        self.count = count
        self.sample_bytes = sample_bytes
        self.bytes = count * sample_bytes
        self.mounts = []
        self.loops = []
        self.began_bytes = 0
        self.run("down")
        files = self.run("up", str(self.bytes + count * 8192 + 200000000)).strip()
        subprocess.run([os.path.join(BUILD, "bench", "make_files"), os.path.join(files, "set"),
                        str(count), str(sample_bytes)], check=True)

    def run(self, command, *words):
        environment = {**os.environ, "VOLUMES": os.path.join(WORK, "volumes"),
                       "SLOWDISK": os.path.join(BUILD, "bench", "slowdisk")}
        return subprocess.run([os.path.join(HERE, "volume.sh"), command, self.name, *words],
                              check=True, stdout=subprocess.PIPE, text=True,
                              env=environment).stdout

    def mount(self, *limits):
        """Every rank's mount and device, and with them empty caches."""
        lines = self.run("share", str(WORLD), *limits).splitlines()
        self.loops = [os.path.basename(line.split()[0]) for line in lines]
        self.mounts = [line.split()[1] for line in lines]
        self.began_bytes = self.count_bytes() # a loop device counts on from its last use

    def device_bytes(self):
        """What all mounts have read from their devices since they were mounted."""
        return self.count_bytes() - self.began_bytes

    def count_bytes(self):
        total = 0
        for loop in self.loops:
            with open(f"/sys/block/{loop}/stat", encoding="ascii") as file:
                total += int(file.read().split()[2]) * 512
        return total

    def data(self, rank):
        return os.path.join(self.mounts[rank], "set")

    def list_path(self, rank):
        """Where the list of a rank's files is, for torch_loader.py: as its index, made once."""
        return os.path.join(WORK, f"{self.name}.{rank}.list")

    def list(self, rank):
        found = sorted(os.path.join(folder, name) for folder, _, names in os.walk(self.data(rank))
                       for name in names if name.endswith(".bin"))
        with open(self.list_path(rank), "w", encoding="utf-8") as file:
            file.writelines(name + "\n" for name in found)

    def index(self, rank):
        return os.path.join(WORK, f"{self.name}.{rank}.index")

    def metadata_bytes(self):
        """Makes the ranks' indexes and lists; returns what the devices give for opening each file
        once on each mount: what no reader can do without."""
        self.mount()
        for rank in range(WORLD):
            run_json([STOKER, "bench", "load", self.data(rank), "--format", "folder", "--index",
                      self.index(rank), "--rebuild", "--steps", "1", "--layout", "raw", "--json",
                      "--quiet", "--alone"])
            self.list(rank)
        self.mount()
        for rank in range(WORLD):
            with open(self.list_path(rank), encoding="utf-8") as paths:
                for path in paths:
                    os.close(os.open(path.rstrip("\n"), os.O_RDONLY))
        return self.device_bytes()

    def remove(self):
        self.run("down")
        for rank in range(WORLD):
            for path in (self.index(rank), self.list_path(rank)):
                if os.path.exists(path):
                    os.unlink(path)


class Cgroup:
    """A memory cgroup (version 1) for one rank."""

    def __init__(self, rank, limit_bytes=None):
        self.folder = os.path.join(CGROUPS, f"stoker-bench-{os.getpid()}-{rank}")
        os.mkdir(self.folder)
        if limit_bytes:
            self.write("memory.limit_in_bytes", limit_bytes)

    def write(self, name, value):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def most_bytes(self):
        with open(os.path.join(self.folder, "memory.max_usage_in_bytes"), encoding="ascii") as file:
            return int(file.read())

    def remove(self):
        for _ in range(50): # the last process may still be going
            try:
                os.rmdir(self.folder)
                return
            except OSError:
                time.sleep(0.1)
        print(f"{self.folder} cannot be removed", file=sys.stderr)


def run_json(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


next_port = 21000 + os.getpid() % 20000


def run_ranks(command_of, limit_bytes=None):
    """Runs a command for each rank at the same time, as a launcher would; command_of(rank, cgroup).
    limit_bytes: of a rank's memory, page cache included. Their JSON, and the most that any cgroup
    was charged."""
    global next_port
    next_port += 1
    groups, ranks = [], []
    try:
        for rank in range(WORLD):
            group = Cgroup(rank, limit_bytes)
            groups.append(group)
            words = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1",
                     "STOKER_PORT": str(next_port), "STOKER_SECRET": "of the bench",
                     "OMP_NUM_THREADS": "1"}
            enter = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group.folder]
            ranks.append(subprocess.Popen(enter + command_of(rank, group.folder),
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={**os.environ, **words}))
        results, until = [], time.monotonic() + LIMIT_S
        for rank in ranks:
            out, err = rank.communicate(timeout=max(1, until - time.monotonic()))
            if rank.returncode != 0:
                sys.exit(f"{' '.join(map(str, rank.args))}\n{err}")
            results.append(json.loads(out))
        return results, max(group.most_bytes() for group in groups)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
        for group in groups:
            group.remove()
