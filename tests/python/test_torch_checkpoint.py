# SPDX-License-Identifier: Apache-2.0
"""stoker.torch.Checkpointer: the state when it was saved, whatever the training does meanwhile."""

import collections
import copy
import gc
import os
import random
import signal
import subprocess
import sys
import unittest
import weakref

from torch_support import DataTest, stoker, support, torch

from stoker.torch import Checkpointer, DataLoader

numpy = support.numpy
WIDTH = 64


def make(seed=0, kind=torch.optim.Adam, **options):
    """A model with buffers, its optimizer, a scheduler and an average of its weights."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH),
                                torch.nn.Dropout(0.1), torch.nn.Linear(WIDTH, 4))
    optimizer = kind(model.parameters(), **dict({"lr": 0.01}, **options))
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5, 5])
    return model, optimizer, scheduler, copy.deepcopy(model)


class Memory(bytearray):
    """That can be referred to weakly."""


def train(model, optimizer, scheduler, average):
    model(torch.randn(16, WIDTH)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    with torch.no_grad():
        for mean, now in zip(average.state_dict().values(), model.state_dict().values()):
            if mean.is_floating_point():
                mean.lerp_(now, 0.1)


def states(*parts):
    return copy.deepcopy([part.state_dict() for part in parts])


def same(one, other):
    """Equal to the bit and of the same types, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape or one.numel() == 0:
            return one.dtype == other.dtype and one.shape == other.shape
        return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8)
                             for each in (one, other)))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if numpy and isinstance(one, (numpy.ndarray, numpy.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and \
            one.tobytes() == other.tobytes()
    return one == other or one != one


class Checkpoints(DataTest):
    def open(self, **options):
        saved = Checkpointer(self.folder / "run", **options)
        self.addCleanup(saved.close)
        return saved

    def test_the_state_when_it_was_saved(self):
        kinds = [(torch.optim.Adam, {}), (torch.optim.SGD, {"momentum": 0.9}),
                 (torch.optim.AdamW, {"amsgrad": True})]
        for kind, options in kinds:
            saved = Checkpointer(self.folder / kind.__name__, keep=0, outstanding=3)
            parts = make(1, kind, **options)
            told = {}
            for step in range(8):
                train(*parts)
                told[step] = states(*parts)
                saved.save(step, model=parts[0], optimizer=parts[1], scheduler=parts[2],
                           average=parts[3])
            saved.wait()
            for step, expected in told.items():
                found = saved.load(step)
                self.assertEqual(list(found),
                                 ["step", "model", "optimizer", "scheduler", "average", "rng"])
                for name, state in zip(("model", "optimizer", "scheduler", "average"), expected):
                    self.assertTrue(same(found[name], state), (kind, step, name))
                self.assertEqual(found["model"]._metadata, expected[0]._metadata)
                self.assertEqual(saved.verify(step), step)
            saved.close()

    def test_a_step_waits_for_the_save(self):
        saved = self.open(slots=2, slot_bytes=1 << 16, chunk_bytes=1 << 16)
        weight = torch.nn.Parameter(torch.zeros(8 << 20))
        weight.grad = torch.ones(8 << 20)
        for late in (False, True):
            optimizer = torch.optim.SGD([weight], lr=1, momentum=0.9)
            if late:  # schedulers replace step() in torch 1.13
                torch.optim.lr_scheduler.ConstantLR(optimizer)
            for step in range(2):
                before = weight.detach().clone()
                saved.save(2 * late + step, weight=weight, optimizer=optimizer)
                if not late:
                    torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
                optimizer.step()
                saved.wait()
                self.assertTrue(torch.equal(saved.load()["weight"], before))
                self.assertFalse(torch.equal(weight, before))

    def test_memory_that_is_replaced_meanwhile(self):
        saved = self.open(slots=2, slot_bytes=1 << 16, chunk_bytes=1 << 16)
        model = torch.nn.Linear(4000, 2000)
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        before = copy.deepcopy(model.state_dict())
        saved.save(1, model=model, optimizer=optimizer)
        model.double()
        filled = [torch.full((2000, 4000), float(number)) for number in range(3)]
        self.assertTrue(same(saved.load()["model"], before), filled[0][0, 0])

    def test_what_is_stable(self):
        saved = self.open()
        parts = make()
        train(*parts)
        seen = {}
        inner = saved._saved

        class Spy:
            def __getattr__(self, name):
                return getattr(inner, name)

            def save(self, step, tensors, **options):
                loose, *kept = tensors
                stable = dict.fromkeys(loose, False)
                stable.update(dict.fromkeys(options["stable"], True))
                for one in kept:
                    stable.update(one.names())
                seen.update(stable={name for name in stable if stable[name]}, tensors=set(stable))
                inner.save(step, tensors, **options)

        saved._saved = Spy()
        saved.save(1, model=parts[0], optimizer=parts[1], average=parts[3])
        saved._saved = inner
        parameters = {f"model.{name}" for name, _ in parts[0].named_parameters()}
        in_optimizer = {name for name in seen["tensors"] if name.startswith("optimizer.state")}
        self.assertEqual(seen["stable"], parameters | in_optimizer)
        self.assertIn("model.1.running_mean", seen["tensors"])
        # What is copied may be changed at once, what is stable once step() has been called.
        expected = parts[0].state_dict()["1.running_mean"].clone()
        parts[0].state_dict()["1.running_mean"].fill_(7)
        saved.wait()
        self.assertTrue(same(saved.load(1)["model"]["1.running_mean"], expected))

    def test_changed_between_saves(self):
        """A Checkpointer that has saved before saves what a new one would."""
        parts, tree = make(), {"a": 1}
        train(*parts)
        model, optimizer = parts[:2]
        turn = torch.arange(12.0)
        alias = torch.nn.Module()
        alias.register_buffer("weight", model[0].weight.detach())
        changes = [
            lambda: None,
            lambda: optimizer.param_groups[0].update(lr=0.5),
            lambda: optimizer.param_groups[0].update(lr=-0.0),
            lambda: optimizer.param_groups[0].update(lr=0.0),
            lambda: tree.update(a=True), lambda: tree.update(a=None), lambda: tree.update(a="d"),
            lambda: tree.update(a={"d": 1}), lambda: tree.update(a={"d": None}),
            lambda: tree.update(a=None), lambda: tree.update(a={}),
            lambda: tree.update(b=turn), lambda: tree.update(c=turn), lambda: tree.pop("b"),
            lambda: turn.resize_(3, 4), lambda: turn.t_(),
            lambda: setattr(turn, "data", turn.data.t().contiguous().view(torch.int32)),
            lambda: tree.update(d=model[0].weight), lambda: tree.pop("c"),
            lambda: setattr(model[0].weight, "data", model[0].weight.data.clone()),
            lambda: setattr(model[0].weight, "data", model[0].weight.data.t()),
            lambda: setattr(model[0].weight, "data", torch.ones(2, 2)),
            lambda: tree.update(e=torch.tensor([1 + 2j])),
            lambda: setattr(tree["e"], "data", tree["e"].data.conj()),
            lambda: tree.update(f=torch.tensor([1 + 2j]).cdouble()),
            lambda: tree.update(g=b"1"), lambda: tree.update(g=b"22"),
            lambda: tree.update(h=[torch.float16]), lambda: tree["h"].append(torch.device("cpu")),
            lambda: tree.update(h=[torch.float32]), lambda: tree.update(h=(torch.float32,)),
            lambda: tree.update({1: 2}), lambda: (tree.pop(1), tree.update({True: 2})),
            lambda: tree.update({0.0: 1}), lambda: (tree.pop(0.0), tree.update({-0.0: 1})),
            lambda: optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(5))]}),
            lambda: optimizer.state.clear(),
            lambda: model[1].register_buffer("more", torch.ones(3)),
            lambda: model.state_dict()["1.running_mean"].fill_(3),
            lambda: model.double(), lambda: tree.clear(),
        ]
        if numpy:
            array = numpy.arange(4)
            changes += [lambda: tree.update(i=array), lambda: array.__setitem__(0, 9),
                        lambda: tree.update(i=array.astype("f4")), lambda: tree.update(i=array[1]),
                        lambda: tree.update(i=numpy.float64(2)), lambda: tree.update(i=2.0)]
        saved = self.open(keep=1)
        for step, change in enumerate(changes):
            change()
            # The tree before what it shares with, and behind it.
            given = {"a": tree, "alias": alias, "model": model, "optimizer": optimizer,
                     "z": [tree, model[0].bias]}
            saved.save(step, **given)
            saved.wait()
            with Checkpointer(self.folder / f"new{step}") as new:
                new.save(step, **given)
                expected, found = new.load(), saved.load()
                stable = [[part.tensors is not None and part.tensors.names()
                           for part in one._kept._parts]
                          for one in (new, saved)]
            self.assertEqual(*stable, step)
            texts = []
            for name in ("run", f"new{step}"):
                with stoker.Checkpoints(stoker.Engine(), self.folder / name,
                                        read_only=True).open() as view:
                    texts.append((view.blob("stoker.torch"), sorted(view.tensors().items())))
            self.assertEqual(*texts, step)
            self.assertEqual(repr(found["a"]), repr(expected["a"]), step)
            self.assertTrue(same(found, expected), step)

    def test_nothing_is_kept_of_what_has_gone(self):
        saved = self.open()
        model = torch.nn.Linear(10, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        for step in range(2):
            saved.save(step, model=model, optimizer=optimizer)
        saved.wait()
        memory = Memory(400_000)
        base = torch.frombuffer(memory, dtype=torch.float32)
        state = {"one": base[:50_000], "other": base[50_000:]}
        storage = weakref.ref(memory)
        saved.save(2, state=state)
        saved.wait()
        self.assertIsNotNone(storage())
        del memory, base, state
        gc.collect()
        self.assertIsNone(storage())

    @unittest.skipUnless(hasattr(torch.Tensor, "register_post_accumulate_grad_hook"),
                         "needs torch 2.1")
    def test_optimizer_in_backward(self):
        saved = self.open(keep=0)
        model = torch.nn.Linear(300, 300)
        optimizers = {one: torch.optim.SGD([one], lr=0.1) for one in model.parameters()}

        def step(parameter):
            with torch.no_grad():
                parameter -= 1  # nobody's step(): no fence
            optimizers[parameter].step()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        told = {}
        for number in range(10):
            told[number] = copy.deepcopy(model.state_dict())
            saved.save(number, model=model,
                       **{f"optimizer{at}": one for at, one in enumerate(optimizers.values())})
            model(torch.ones(2, 300)).sum().backward()
        saved.wait()
        for number, expected in told.items():
            self.assertTrue(same(saved.load(number)["model"], expected))

    def test_trees(self):
        tied = torch.arange(6.0)
        tree = {"none": None, "true": True, "int": 1 << 80, "float": [0.1, float("inf"), -0.0],
                "nan": float("nan"), "text": "ü\0\ud800", "bytes": b"\0\1", "complex": 1 + 2j,
                "nested": ({"a": [()]}, [[]]), 3: {None: 1, True: 2, 2.5: 3, ("k", 1): 4},
                "counter": collections.Counter({3: 2}), "ordered": collections.OrderedDict(b=1),
                "dtype": torch.bfloat16, "device": torch.device("cpu"), "size": torch.Size([1, 2]),
                "array": bytearray(b"x"), "tied": [tied, tied, tied.view(2, 3)],
                "turned": torch.arange(6).view(2, 3).t(), "part": torch.arange(100)[3:90:7],
                "conj": torch.tensor([1 + 2j]).conj(), "c128": torch.tensor([1 + 2j]).cdouble(),
                "expanded": torch.ones(1).expand(5), "empty": torch.empty(0, 3),
                "scalar": torch.tensor(3), "requires": torch.ones(3, requires_grad=True)}
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                      torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
            tree[str(dtype)] = torch.tensor([0, 1, 5]).to(dtype)
        if numpy:
            tree.update(f8=numpy.arange(6.0).reshape(2, 3), big=numpy.arange(3, dtype=">i4"),
                        text_array=numpy.array(["a", "bc"]), fortran=numpy.ones((2, 3), order="F"),
                        scalar_f8=numpy.float64(0.1), scalar_i4=numpy.int32(3),
                        c16=numpy.ones(2, "c16"), zero=numpy.zeros((0, 2)), point=numpy.array(2.0))
        saved = self.open()
        saved.save(1, tree=tree, rng=False)
        saved.wait()
        found = saved.load(1)
        self.assertEqual(list(found), ["step", "tree"])
        found = found["tree"]
        self.assertEqual([str(key) for key in found], [str(key) for key in tree])
        for key, value in tree.items():
            if isinstance(value, torch.Tensor):
                value = value.detach().resolve_conj()
                self.assertFalse(found[key].requires_grad)
            self.assertTrue(same(found[key], value), (key, found[key]))
        self.assertIs(found["tied"][0], found["tied"][1])

    def test_refused_by_path(self):
        saved = self.open()

        class Own:
            pass

        for thing, words in (({"a": [1, {"b": Own()}]}, "state['a'][1]['b'] is a "),
                             ({"f": len}, "state['f'] is a builtins.builtin"),
                             ({"s": {1, 2}}, "state['s'] is a builtins.set"),
                             (torch.ones(3).to_sparse(), "state is a torch.sparse_coo tensor"),
                             ({"m": torch.ones(2, device="meta")}, "state['m'] is a meta tensor")):
            with self.assertRaises(TypeError) as caught:
                saved.save(1, state=thing)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(TypeError):
            saved.save(1, rng={}, step=2)
        self.assertIsNone(saved.latest())
        saved.save(1, state={"set": {1, 2}}, pickle=True)
        saved.wait()
        with self.assertRaises(TypeError) as caught:
            saved.load(1)
        self.assertIn("state.set was saved with pickle=True", str(caught.exception))
        self.assertEqual(saved.load(1, pickle=True)["state"], {"set": {1, 2}})

    def test_load(self):
        saved = self.open(keep=0)
        self.assertIsNone(saved.load())
        parts = make(1)
        for _ in range(3):
            train(*parts)
        saved.save(3, model=parts[0], optimizer=parts[1], scheduler=parts[2], note="three")
        numbers = [torch.rand(()).item(), random.random()]
        other = make(2)
        found = saved.load(model=other[0], optimizer=other[1], scheduler=other[2])
        self.assertEqual(found, {"step": 3, "note": "three"})
        self.assertEqual([torch.rand(()).item(), random.random()], numbers)
        self.assertTrue(same(states(*other[:3]), states(*parts[:3])))
        with self.assertRaises(KeyError) as caught:
            saved.load(model=other[0], ema=other[3])
        self.assertIn("has no part 'ema', only model, optimizer, scheduler, note",
                      str(caught.exception))
        saved.load(strict=False, rng=False, ema=other[3])
        smaller = torch.nn.Sequential(parts[0][0])
        with self.assertRaises(RuntimeError):
            saved.load(model=smaller)
        saved.load(model=smaller, strict=False)
        with self.assertRaises(TypeError):
            saved.load(note="three")
        self.assertEqual(saved.load(map_location="meta")["model"]["0.weight"].device.type, "meta")
        self.assertEqual(saved.load(map_location={"cpu": "meta"})["model"]["0.weight"].device.type,
                         "meta")
        with self.assertRaises(TypeError):
            saved.load(map_location=lambda storage, location: storage)
        with self.assertRaises(stoker.Error):
            saved.load(77)

    def test_errors_come_with_the_next_call(self):
        saved = self.open()
        parts = make()
        saved.save(1, model=parts[0], optimizer=parts[1])
        saved.wait()
        train(*parts)
        saved.save(1, model=parts[0], optimizer=parts[1])  # there is one
        before = copy.deepcopy(parts[0].state_dict())
        train(*parts)  # goes on all the same
        self.assertFalse(same(parts[0].state_dict(), before))
        with self.assertRaises(stoker.Error):
            while True:
                saved.save(2, model=parts[0], optimizer=parts[1])
        saved.save(3, model=parts[0], optimizer=parts[1])
        saved.wait()
        self.assertEqual(saved.latest(), 3)

    def test_damage(self):
        saved = self.open(keep=0)
        for step in (1, 2):
            saved.save(step, state={"t": torch.arange(100_000)})
        saved.wait()
        [part] = [path for path in (self.folder / "run").rglob("*.safetensors")
                  if "step-2" in str(path)]
        with open(part, "r+b") as file:
            file.seek(400_000)
            file.write(b"no")
        for call in (saved.verify, lambda: saved.load(2)):
            with self.assertRaises(stoker.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, stoker.E_CORRUPT)
        self.assertEqual(saved.verify(1), 1)
        with stoker.Checkpoints(stoker.Engine(), self.folder / "plain") as plain:
            plain.save(1, {"t": b"1"})
            plain.wait()
        with self.assertRaises(ValueError) as caught, Checkpointer(self.folder / "plain") as saved:
            saved.load()
        self.assertIn("was not saved by stoker.torch.Checkpointer", str(caught.exception))

    def test_several_and_ends(self):
        parts = make()
        one, two = self.open(keep=0), Checkpointer(self.folder / "two")
        for step in range(3):
            one.save(step, model=parts[0], optimizer=parts[1])
            two.save(step, model=parts[0], optimizer=parts[1])
            train(*parts)
        two.close()
        two.close()
        train(*parts)
        with Checkpointer(self.folder / "two", read_only=True) as two_again:
            self.assertTrue(same(one.load(2)["model"], two_again.load(2)["model"]))
        for call in (lambda: two.save(4, a=1), two.fence, two.latest):
            with self.assertRaises(ValueError):
                call()
        del two
        gc.collect()
        train(*parts)
        copy.deepcopy(parts[1])
        with self.assertRaises(ZeroDivisionError), Checkpointer(self.folder / "three") as three:
            three.save(1, model=parts[0], optimizer=parts[1])
            raise ZeroDivisionError

    def test_memory_is_flat(self):
        saved = self.open(keep=1)
        parts = make()
        blocks = resident = None
        for step in range(1000):
            train(*parts)
            saved.save(step, model=parts[0], optimizer=parts[1], average=parts[3])
            if step == 300:
                gc.collect()
                blocks, resident = sys.getallocatedblocks(), support.resident_bytes()
        saved.wait()
        gc.collect()
        self.assertLess(sys.getallocatedblocks() - blocks, 2000)
        self.assertLess(support.resident_bytes() - resident, 16 << 20)

    def test_torch_save(self):
        path = self.folder / "model.pt"
        model = make()[0]
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            with stoker.open(path, "wb") as file:
                torch.save(model.state_dict(), file, **options)
            with stoker.open(path) as file:
                self.assertTrue(same(dict(torch.load(file)), dict(model.state_dict())))
            torch.load(path)


JOB = """
import os, sys
import torch
from test_torch_checkpoint import make, train, DataLoader, Checkpointer
if __name__ == "__main__":
    folder, steps, pace = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    import time
    saved = Checkpointer(folder)
    model, optimizer, scheduler, average = make(3)
    data = torch.utils.data.TensorDataset(torch.arange(100.))
    loader = DataLoader(data, batch_size=3, shuffle=True)
    parts = dict(model=model, optimizer=optimizer, scheduler=scheduler, average=average,
                 loader=loader)
    done = saved.load(**parts)
    step = done["step"] if done else 0
    while step < steps:
        for [batch] in loader:
            model(torch.randn(16, 64) + batch.sum() / 100).square().mean().backward()
            optimizer.step(); optimizer.zero_grad(); scheduler.step()
            step += 1
            saved.save(step, **parts)
            print(step, flush=True)
            time.sleep(pace)
            if step == steps:
                break
    saved.close()
    sums = [value.double().sum().item() for value in model.state_dict().values()]
    print([value.hex() for value in sums])
"""


class Resume(DataTest):
    def start(self, folder, steps, pace):
        place = os.pathsep.join([support.PACKAGE, os.path.dirname(os.path.abspath(__file__))])
        program = self.folder / "job.py"
        program.write_text(JOB, encoding="utf-8")
        return subprocess.Popen([sys.executable, program, folder, str(steps), str(pace)],
                                env=dict(os.environ, PYTHONPATH=place), stdout=subprocess.PIPE,
                                text=True)

    def test_killed_and_resumed(self):
        whole = self.start(self.folder / "whole", 60, 0)
        expected = whole.communicate(timeout=120)[0].split("\n")[-2]
        self.assertEqual(whole.returncode, 0)
        n_killed = 0
        for until in (7, 20, 45):
            job = self.start(self.folder / "killed", 60, 0.02)
            for line in job.stdout:
                if int(line) >= until:
                    job.send_signal(signal.SIGKILL)
                    n_killed += 1
                    break
            job.communicate(timeout=60)
        self.assertEqual(n_killed, 3)
        last = self.start(self.folder / "killed", 60, 0)
        text = last.communicate(timeout=120)[0].split("\n")
        self.assertEqual(last.returncode, 0)
        self.assertGreater(int(text[0]), 7)
        self.assertEqual(text[-2], expected)


if __name__ == "__main__":
    unittest.main()
