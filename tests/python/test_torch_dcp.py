# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint over Stoker's files, in one process and in ranks."""

import os
import signal
import subprocess
import sys
import textwrap
import unittest

from torch_support import DataTest, VERSION, support, torch

if VERSION < (2, 6):
    print(f"skipped: torch.distributed.checkpoint as it is used here is of torch 2.6, "
          f"this is {torch.__version__}")
    sys.exit(77)

import torch.distributed.checkpoint as dcp  # noqa: E402 - only where there is one

from stoker.torch.dcp import Reader, Writer  # noqa: E402


def make(fill):
    model = torch.nn.Sequential(torch.nn.Linear(50, 300), torch.nn.BatchNorm1d(300))
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.fill_(fill)
    return {"model": model.state_dict(), "step": fill, "list": [fill, {"a": "b"}],
            "half": torch.full((3, 4), fill, dtype=torch.bfloat16), "empty": torch.empty(0, 3)}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


RANKS = """
import os, sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
sys.path.insert(0, os.environ["STOKER_PYTHON_PACKAGE"])
from stoker.torch.dcp import Reader, Writer

rank, path, other = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(1001.0 * 8).view(1001, 8)

def make(factor, dim):
    return {"w": distribute_tensor(whole * factor, mesh, [Shard(dim)]), "step": factor}

for step in (1, 2):  # over itself: names of its own, then the others are removed
    dcp.save(make(step, 0), storage_writer=Writer(path))
    dcp.save(make(step, 0), storage_writer=dcp.FileSystemWriter(other))
for reader in (Reader(path), dcp.FileSystemReader(path), Reader(other)):
    found = make(0, 1)  # cut the other way
    dcp.load(found, storage_reader=reader)
    assert torch.equal(found["w"].full_tensor(), whole * 2), rank
    assert found["step"] == 2
dist.barrier()
assert len([name for name in os.listdir(path) if name.endswith(".distcp")]) == 2
dist.destroy_process_group()
"""

KILLED = """
import os, sys
sys.path[:0] = [os.environ["STOKER_PYTHON_PACKAGE"], sys.argv[2]]
import test_torch_dcp as test
for fill in range(2, 10_000):
    test.dcp.save(test.make(fill), storage_writer=test.Writer(sys.argv[1]))
    print(fill, flush=True)
"""


class Dcp(DataTest):
    def load(self, reader):
        found = make(0)
        dcp.load(found, storage_reader=reader)
        return found

    def test_either_reads_the_other(self):
        path, other = self.folder / "deep" / "own", self.folder / "torch"
        dcp.save(make(3), storage_writer=Writer(path))
        dcp.save(make(3), storage_writer=dcp.FileSystemWriter(other))
        for reader in (Reader(path), dcp.FileSystemReader(path), Reader(other)):
            self.assertTrue(same(self.load(reader), make(3)))
        self.assertTrue(same(self.load(Reader(str(path))), make(3)))

    def test_options(self):
        for number, options in enumerate(({"thread_count": 3}, {"single_file_per_rank": False},
                                          {"sync_files": True, "overwrite": True})):
            path = self.folder / str(number)
            dcp.save(make(4), storage_writer=Writer(path, **options))
            self.assertTrue(same(self.load(Reader(path)), make(4)))
        for name in ("sync_files", "overwrite"):
            with self.assertRaisesRegex(ValueError, name):
                Writer(self.folder / "no", **{name: False})

    def test_asynchronously(self):
        path = self.folder / "own"
        state = make(5)
        saving = dcp.async_save(state, storage_writer=Writer(path))
        state["model"]["0.weight"].fill_(6)
        saving.result()
        self.assertTrue(same(self.load(Reader(path)), make(5)))

    def test_a_save_that_fails_leaves_the_last(self):
        path = self.folder / "own"
        dcp.save(make(1), storage_writer=Writer(path))
        before = sorted(os.listdir(path))
        with self.assertRaises(dcp.api.CheckpointException):
            state = dict(make(2), z=lambda: None)  # cannot be pickled, behind all the rest
            dcp.save(state, storage_writer=Writer(path))
        self.assertTrue(same(self.load(Reader(path)), make(1)))
        self.assertEqual(sorted(os.listdir(path)), before)
        dcp.save(make(3), storage_writer=Writer(path))
        self.assertTrue(same(self.load(Reader(path)), make(3)))
        self.assertEqual(len(os.listdir(path)), len(before))

    def test_killed_at_any_moment(self):
        path = self.folder / "own"
        dcp.save(make(1), storage_writer=Writer(path))
        for at in range(4):
            child = subprocess.Popen([sys.executable, "-c", KILLED, str(path),
                                      os.path.dirname(os.path.abspath(__file__))],
                                     stdout=subprocess.PIPE, text=True)
            for _ in range(at + 1):
                told = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            child.wait()
            told = max([told, *map(int, child.stdout.read().split())])
            child.stdout.close()
            found = self.load(Reader(path))
            self.assertGreaterEqual(found["step"], told)
            self.assertTrue(same(found, make(found["step"])))

    @unittest.skipUnless(torch.distributed.is_available() and
                         torch.distributed.is_gloo_available(), "needs gloo")
    def test_ranks(self):
        command = [sys.executable, "-c", textwrap.dedent(RANKS)]
        ranks = [subprocess.Popen(command + [str(rank), *(str(self.folder / name) for name in
                                                          ("own", "torch", "meeting"))],
                                  env=dict(os.environ, GLOO_SOCKET_IFNAME="lo",
                                           STOKER_PYTHON_PACKAGE=support.PACKAGE))
                 for rank in range(2)]
        self.assertEqual([rank.wait(timeout=200) for rank in ranks], [0, 0])


if __name__ == "__main__":
    unittest.main()
