# SPDX-License-Identifier: Apache-2.0
"""FSDP (fully_shard) over stoker.torch.dcp: saved by two ranks, gone on with by one, two, four."""

import os
import subprocess
import sys
import unittest

from torch_support import DataTest, VERSION, support, torch

if VERSION < (2, 6):
    print(f"skipped: fully_shard() with torch.distributed.checkpoint, as it is used here, is of "
          f"torch 2.6, this is {torch.__version__}")
    sys.exit(77)

RANK = """
import os, sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
sys.path.insert(0, os.environ["STOKER_PYTHON_PACKAGE"])
from stoker.torch.dcp import Reader, Writer

what, path, meeting = sys.argv[1:4]
rank, world = map(int, sys.argv[4:])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))

def make(seed):
    torch.manual_seed(seed)
    layers = [torch.nn.Sequential(torch.nn.Linear(33, 33), torch.nn.LayerNorm(33), torch.nn.GELU())
              for _ in range(3)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(33, 5))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)

def train(model, optimizer, steps):
    # Every rank has the whole batch, so that the sum of gradients' means is that of one rank.
    losses = []
    for step in steps:
        x = torch.randn(16, 33, generator=torch.Generator().manual_seed(step))
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses

def state_of(model, optimizer):
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer}

def whole(state):
    return {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            for name, tensor in state["model"].items()}

if what == "save":
    model, optimizer = make(1)
    train(model, optimizer, range(3))
    dcp.save(state_of(model, optimizer), storage_writer=Writer(path))
    at_save = whole(state_of(model, optimizer))
    losses = train(model, optimizer, range(3, 7))
    if rank == 0:
        torch.save({"at_save": at_save, "losses": losses}, path + ".expected")
else:
    expected = torch.load(path + ".expected")
    for reader in (Reader(path), dcp.FileSystemReader(path)):
        model, optimizer = make(2)  # other weights, and no moments yet
        state = state_of(model, optimizer)
        assert not torch.equal(whole(state)["0.0.weight"], expected["at_save"]["0.0.weight"])
        dcp.load(state, storage_reader=reader)
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
        found = whole(state_of(model, optimizer))
        assert found.keys() == expected["at_save"].keys()
        for name, tensor in expected["at_save"].items():
            assert torch.equal(found[name], tensor), (rank, name)
        assert model[0][0].weight.to_local().numel() < model[0][0].weight.numel() or world == 1
        losses = train(model, optimizer, range(3, 7))  # the moments are right only if these are
        assert all(abs(one / other - 1) < 1e-4
                   for one, other in zip(losses, expected["losses"])), (losses, expected["losses"])
dist.barrier()
dist.destroy_process_group()
"""


@unittest.skipUnless(torch.distributed.is_available() and
                     torch.distributed.is_gloo_available(), "needs gloo")
class Fsdp(DataTest):
    def run_ranks(self, what, world):
        program = self.folder / "rank.py"
        program.write_text(RANK, encoding="utf-8")
        meeting = self.folder / f"meeting{world}{what}"
        ranks = [subprocess.Popen([sys.executable, program, what, self.folder / "saved", meeting,
                                   str(rank), str(world)],
                                  env=dict(os.environ, GLOO_SOCKET_IFNAME="lo",
                                           STOKER_PYTHON_PACKAGE=support.PACKAGE))
                 for rank in range(world)]
        return [rank.wait(timeout=200) for rank in ranks]

    def test_other_numbers_of_ranks(self):
        self.assertEqual(self.run_ranks("save", 2), [0, 0])
        parts = [name for name in os.listdir(self.folder / "saved") if name.endswith(".distcp")]
        self.assertEqual(len(parts), 2)
        for world in (1, 2, 4):
            with self.subTest(world):
                self.assertEqual(self.run_ranks("load", world), [0] * world)


if __name__ == "__main__":
    unittest.main()
