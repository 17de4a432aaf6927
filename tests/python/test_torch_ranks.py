# SPDX-License-Identifier: Apache-2.0
"""Checkpointer in ranks: DistributedDataParallel, fully_shard() and FullyShardedDataParallel, saved
by two and four, gone on with by one, two and four; ranks that die, differ or cannot."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

from torch_support import DataTest, VERSION, stoker, support, torch

RANK = """
import os, sys, time
import torch, torch.distributed as dist
sys.path.insert(0, os.environ["STOKER_PYTHON_PACKAGE"])
import stoker
from stoker.torch import Checkpointer, DataLoader

kind, what, folder, meeting = sys.argv[1:5]
rank, world = map(int, sys.argv[5:])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(*[torch.nn.Sequential(
            torch.nn.Linear(33, 33), torch.nn.LayerNorm(33), torch.nn.GELU()) for _ in range(3)])
        self.norm = torch.nn.BatchNorm1d(33) if kind == "ddp" else torch.nn.Identity()
        self.head = torch.nn.Linear(33, 5)
        self.tied = self.head  # two names
        self.register_buffer("whose", torch.zeros(3))

    def forward(self, x):
        return self.tied(self.norm(self.blocks(x)))

def make_mesh():
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", (world,)) if world != 4 else \
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))

def make_fsdp1(model, **more):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    strategy = ShardingStrategy.HYBRID_SHARD if world == 4 else ShardingStrategy.FULL_SHARD
    return FullyShardedDataParallel(
        model, sharding_strategy=strategy, device_id=torch.device("cpu"),
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Sequential}),
        use_orig_params=kind == "fsdp1-orig", **more)

def make(seed):
    torch.manual_seed(seed)
    model = Model()
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard
        mesh = make_mesh()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        run = model
    elif kind.startswith("fsdp1"):
        run = model = make_fsdp1(model, device_mesh=make_mesh())
    else:
        run = torch.nn.parallel.DistributedDataParallel(model)
    return model, run, torch.optim.AdamW(model.parameters(), lr=0.01)

def train(run, optimizer, steps):
    # Every rank has the whole batch, so that the mean of gradients is that of one rank.
    losses = []
    for step in steps:
        x = torch.randn(16, 33, generator=torch.Generator().manual_seed(step))
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses

def whole(model):
    # detached: what is compared later is what is now; of FSDP 1 the whole comes by itself
    return {name: (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor)
            .detach().clone() for name, tensor in model.state_dict().items()}

def parts(model, optimizer, loader):
    return {"model": model, "optimizer": optimizer, "loader": loader}

def close(one, other):
    return abs(one / other - 1) < 1e-4

run_dir = folder + "/run"
model, run, optimizer = make(1 if what != "load" else 2)
loader = DataLoader(list(range(64)), batch_size=4, shuffle=True, seed=5, world=world, rank=rank)
if what == "save":
    train(run, optimizer, range(3))
    with torch.no_grad():
        model.whose.fill_(rank + 10)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    torch.manual_seed(100 + rank)
    saved = Checkpointer(run_dir, vote_timeout=60, check_replicas=True, keep=0,
                         chunk_bytes=4096, slot_bytes=1 << 16)
    saved.save(1, **parts(model, optimizer, loader),
               note={"rank": rank, "x": torch.full((2,), rank)})
    at_save, drawn = whole(model), torch.rand(4)
    losses = train(run, optimizer, range(3, 6))
    saved.save(2, **parts(model, optimizer, loader))
    later = train(run, optimizer, range(6, 8))
    saved.wait(60)
    assert saved.latest() == 2 and saved.status()["durable"] == 2
    rest = [batch.tolist() for batch in batches]
    torch.save({"at_save": at_save, "losses": losses, "later": later, "drawn": drawn,
                "rest": rest}, f"{folder}/expected{rank}")
    saved.close()
elif what == "load":
    worlds = len([name for name in os.listdir(folder) if name.startswith("expected")])
    expected = torch.load(f"{folder}/expected0")
    own = torch.load(f"{folder}/expected{rank if rank < worlds else 0}")
    for together in (False, True):
        model, run, optimizer = make(2)
        with Checkpointer(run_dir) as saved:
            targets = parts(model, optimizer, loader)
            if world != worlds:
                del targets["loader"]
            done = saved.load(1, strict=True, together=together, **targets)
        assert done["step"] == 1
        assert done["note"]["rank"] == (rank if rank < worlds else 0), done
        assert done["note"]["x"].tolist() == [done["note"]["rank"]] * 2, done
        assert torch.equal(torch.rand(4), own["drawn"])
        found = whole(model)
        assert found.keys() == expected["at_save"].keys()
        for name, tensor in expected["at_save"].items():
            assert torch.equal(found[name], tensor), (rank, name)
        assert found["whose"].tolist() == [10] * 3
        if kind == "fsdp" and world > 1:
            weight = model.blocks[0][0].weight
            assert weight.to_local().numel() < weight.numel()
        if world == worlds:
            assert [batch.tolist() for batch in loader] == own["rest"]
        losses = train(run, optimizer, range(3, 6))  # the moments are right only if these are
        assert all(map(close, losses, expected["losses"])), (losses, expected["losses"])
elif what == "load model":  # of another kind
    expected = torch.load(f"{folder}/expected0")
    with Checkpointer(run_dir, read_only=True) as saved:
        assert saved.load(1, model=model)["step"] == 1
    found = whole(model)
    assert all(torch.equal(found[name], one) for name, one in expected["at_save"].items())
elif what == "killed":
    saved = Checkpointer(run_dir, vote_timeout=3)
    saved.save(1, **parts(model, optimizer, loader))
    saved.wait(60)
    if rank == 1:
        os._exit(9)
    train_alone = torch.optim.SGD(model.parameters(), lr=0.1)
    saved.save(2, **parts(model, optimizer, loader))
    try:
        saved.wait(60)
        sys.exit("a save without rank 1 is there")
    except stoker.Error as error:
        assert "1" in str(error), error
    assert saved.latest() == 1
    os._exit(0)  # the process group has lost one
elif what == "wrong":
    saved = Checkpointer(run_dir, vote_timeout=60, check_replicas=True, unique=("model.own.*",))
    def expect(step, text, **more):
        try:
            saved.save(step, model=model, **more)
            saved.wait(60)
            sys.exit(f"{step} was saved")
        except (stoker.Error, TypeError) as error:
            assert text in str(error), error
    expect(1, "state" if rank == 1 else "rank 1", **({"state": object()} if rank == 1 else {}))
    with torch.no_grad():
        model.head.bias[2] = rank
    expect(2, "model.head.bias")
    with torch.no_grad():
        model.head.bias[2] = 0
    model.own = torch.nn.Linear(4, 4)
    torch.nn.init.constant_(model.own.weight, rank)
    saved.save(3, model=model)
    saved.wait(60)
    torch.nn.init.constant_(model.own.weight, 7)
    assert saved.load(model=model)["step"] == 3
    assert model.own.weight.unique().tolist() == [rank]
    for options in ({"engine": stoker.Engine()},):
        try:
            Checkpointer(run_dir, **options)
            sys.exit("an engine without a comm was taken")
        except ValueError as error:
            assert "alone=True" in str(error), error
    with Checkpointer(f"{folder}/own{rank}", alone=True) as alone:
        alone.save(5, model=model.head)
        alone.wait(60)
        assert alone.list()[0]["world"] == 1
    saved.close()
elif what == "captured":
    from stoker.torch._capture import Arena
    class Device:  # whose memory is the host's, and which copies at once
        def holds(self, tensor):
            return tensor.numel() > 0
        def pinned(self, n_bytes):
            return torch.empty(n_bytes, dtype=torch.uint8)
        def copy(self, device, target, source):
            target.copy_(source)
        def follow(self, *_):
            pass
        mark = hold_back = follow
        is_broken = False
        def finish(self, mark):
            if self.is_broken:
                raise RuntimeError("the device is lost")
    saved = Checkpointer(run_dir, vote_timeout=60, check_replicas=True, keep=0)
    saved._device = device = Device()
    saved._arena = Arena(device)
    for step in (1, 2):
        train(run, optimizer, [step])
        saved.save(step, **parts(model, optimizer, loader))
        expected = whole(model)
    saved.wait(60)
    device.is_broken = rank == 1
    saved.save(3, model=model, optimizer=optimizer)
    try:
        saved.wait(60)
        sys.exit("what was not copied was saved")
    except (stoker.Error, RuntimeError) as error:
        assert "the device is lost" in str(error), error
    device.is_broken = False
    train(run, optimizer, [4])
    saved.save(4, model=model, optimizer=optimizer)
    saved.wait(60)
    assert [one["step"] for one in saved.list()] == [4, 2, 1]
    assert saved.load(2, model=model)["step"] == 2
    assert all(torch.equal(one, expected[name]) for name, one in whole(model).items())
    saved.close()
elif what == "missing" and rank == 0:
    from stoker.torch import _ranks
    _ranks.START_S = 2
    try:
        Checkpointer(run_dir)
        sys.exit("the other rank was not missed")
    except TimeoutError as error:
        assert "2 ranks" in str(error) and "alone=True" in str(error), error
    with Checkpointer(run_dir, alone=True) as saved:
        saved.save(1, model=model)
    with Checkpointer(run_dir, read_only=True) as saved:
        assert saved.load(model=model)["step"] == 1
elif what == "pieces":  # what of FSDP 1 cannot be saved
    saved = Checkpointer(run_dir, vote_timeout=60)
    def refused(text, checkpointer=saved, **given):
        try:
            checkpointer.save(1, **given)
            sys.exit("it was saved")
        except TypeError as error:
            assert text in str(error), error
    refused("beside it", optimizer=optimizer)
    refused("beside it", optimizer=optimizer, model=torch.nn.Linear(2, 2))
    refused("device_mesh", model=make_fsdp1(Model()))
    with Checkpointer(f"{folder}/own{rank}", alone=True) as alone:
        refused("alone=True", alone, model=model)
    assert saved.latest() is None
    saved.close()
elif what == "left open":  # as programs end that do not close
    saved = Checkpointer(run_dir)
    saved.save(1, model=model, optimizer=optimizer)
dist.barrier()
dist.destroy_process_group()
"""


@unittest.skipUnless(torch.distributed.is_available() and torch.distributed.is_gloo_available()
                     and support.has_ucx(), "needs gloo and UCX")
class Ranks(DataTest):
    kind = "ddp"

    def run_ranks(self, what, world, kind=None):
        program = self.folder / "rank.py"
        program.write_text(RANK, encoding="utf-8")
        meeting = self.folder / f"meeting{world}{what}{time.monotonic_ns()}"
        with tempfile.TemporaryFile("w+") as said:
            ranks = [subprocess.Popen([sys.executable, program, kind or self.kind, what,
                                       self.folder, meeting, str(rank), str(world)],
                                      env=dict(os.environ, GLOO_SOCKET_IFNAME="lo",
                                               STOKER_PYTHON_PACKAGE=support.PACKAGE),
                                      stdout=said, stderr=said) for rank in range(world)]
            try:
                ended = [rank.wait(timeout=200) for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
                said.seek(0)
                text = said.read()
        return ended, text

    def check_ranks(self, what, world, kind=None):
        ended, text = self.run_ranks(what, world, kind)
        self.assertEqual(ended, [0] * world, text)

    def look_alone(self, world):
        """Without torch.distributed everything is a tree of whole tensors."""
        expected = torch.load(self.folder / "expected0")
        with stoker.torch.Checkpointer(self.folder / "run", read_only=True) as saved:
            self.assertEqual([one["world"] for one in saved.list()], [world] * 2)
            found = saved.load(1)
        self.assertEqual(found["model"].keys(), expected["at_save"].keys())
        for name, tensor in expected["at_save"].items():
            self.assertTrue(torch.equal(found["model"][name], tensor), name)
        tied, head = found["model"]["tied.weight"], found["model"]["head.weight"]
        self.assertTrue(torch.equal(tied, head))
        self.assertEqual(tied is head, not self.kind.startswith("fsdp1"))  # which gives two of them
        self.assertEqual(found["note"]["rank"], 0)
        state = found["optimizer"]["state"]
        first = "blocks.0.0.weight" if self.kind.startswith("fsdp1") else 0
        self.assertEqual(state[first]["exp_avg"].shape, (33, 33))

    def test_two(self):
        self.check_ranks("save", 2)
        for world in (1, 2, 4):
            with self.subTest(world):
                self.check_ranks("load", world)
        self.look_alone(2)

    def test_four(self):
        self.check_ranks("save", 4)
        for world in (2, 4):
            with self.subTest(world):
                self.check_ranks("load", world)
        self.look_alone(4)


class Failures(Ranks):
    """Of ranks of DDP."""

    test_two = test_four = None

    def test_a_rank_is_killed(self):
        ended, text = self.run_ranks("killed", 3)
        self.assertEqual(ended, [0, 9, 0], text)
        with stoker.torch.Checkpointer(self.folder / "run") as saved:
            self.assertEqual(saved.verify(), 1)

    def test_devices(self):
        self.check_ranks("captured", 2)

    def test_a_rank_that_does_not_come(self):
        self.check_ranks("missing", 2)

    def test_an_end_without_close(self):
        self.check_ranks("left open", 2)
        with stoker.torch.Checkpointer(self.folder / "run") as saved:
            self.assertEqual(saved.verify(), 1)

    def test_ranks_that_differ(self):
        self.check_ranks("wrong", 2)


@unittest.skipIf(VERSION < (2, 6), "fully_shard(), as it is used here, is of torch 2.6")
class Fsdp(Ranks):
    kind = "fsdp"


if __name__ == "__main__":
    unittest.main()
