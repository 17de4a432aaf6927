# SPDX-License-Identifier: Apache-2.0
"""Tensors of a device in checkpoints: with a device whose streams are threads that dawdle, and a
GPU where there is one."""

import copy
import gc
import queue
import threading
import time
import unittest
import weakref
from unittest import mock

from torch_support import DataTest, stoker, torch

from stoker.torch import Checkpointer
from stoker.torch._capture import PIECE_BYTES, Arena
from stoker.torch._device import Cuda

WIDTH = 300


class Stream:
    """Does what it is told, one thing after the other, a little later."""

    def __init__(self, delay):
        self.delay = delay
        self.told = queue.SimpleQueue()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            thing = self.told.get()
            if thing is None:
                return
            time.sleep(self.delay)
            thing()
            del thing

    def tell(self, thing):
        self.told.put(thing)

    def mark(self):
        event = threading.Event()
        self.told.put(event.set)
        return event


class Device:
    """As stoker.torch._device.Cuda. Its memory is that of the host, of tensors that are put()
    there; kernels run on the caller's stream."""

    def __init__(self, copy_delay=0.0, kernel_delay=0.0):
        self.current, self.own = Stream(kernel_delay), Stream(copy_delay)
        self.storages = set()
        self.n_pinned = self.n_finished = 0

    def put(self, module):
        for tensor in module.state_dict().values():
            self.storages.add(tensor.data_ptr())
        return module

    def kernel(self, function):
        self.current.tell(function)

    def synchronize(self):
        self.current.mark().wait()
        self.own.mark().wait()

    def end(self):
        for stream in (self.current, self.own):
            stream.tell(None)

    def holds(self, tensor):
        return tensor.data_ptr() in self.storages

    def pinned(self, n_bytes):
        self.n_pinned += n_bytes
        return torch.full((n_bytes,), 0xAA, dtype=torch.uint8)

    def follow(self, device):
        event = self.current.mark()
        self.own.tell(event.wait)

    def copy(self, device, target, source):
        self.own.tell(lambda: target.copy_(source))

    def mark(self, device):
        return self.own.mark()

    def hold_back(self, device, mark):
        self.current.tell(mark.wait)

    def finish(self, mark):
        mark.wait()
        self.n_finished += 1


class DoesNotHoldBack(Device):
    def hold_back(self, device, mark):
        pass


class DoesNotFollow(Device):
    def follow(self, device):
        pass


class DoesNotFinish(Device):
    def finish(self, mark):
        pass


class Memory(bytearray):
    """That can be referred to weakly."""


class Optimizer(torch.optim.Optimizer):
    """Steps by a kernel."""

    def __init__(self, parameters, device):
        super().__init__(parameters, {})
        self.device = device

    def step(self):
        def kernel():
            with torch.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.add_(1)
        self.device.kernel(kernel)


class Model(torch.nn.Module):
    """A parameter, and a buffer that each forward changes."""

    def __init__(self, device=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.bias = torch.nn.Parameter(torch.zeros(7))
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("count", torch.tensor(0))
        self.device = device

    def forward(self):
        def kernel():
            self.mean.add_(1)
            self.count.add_(1)
        self.device.kernel(kernel)


class Captured(DataTest):
    def open(self, device, name="run", **options):
        saved = Checkpointer(self.folder / name, **options)
        saved._device = device
        saved._arena = Arena(device)
        self.addCleanup(device.end)
        self.addCleanup(saved.close)
        return saved

    def train(self, device, n_steps=12, name="run"):
        """The values found in the checkpoints of a training that never waits."""
        model = device.put(Model(device))
        optimizer = Optimizer(model.parameters(), device)
        saved = self.open(device, name, keep=0)
        for step in range(n_steps):
            model()
            optimizer.step()
            saved.save(step, model=model, optimizer=optimizer)
        saved.wait()
        device.synchronize()
        found = []
        for step in range(n_steps):
            state = saved.load(step)["model"]
            found.append({value for tensor in state.values()
                          for value in tensor.unique().tolist()})
        return found

    def test_no_change_leaks(self):
        """Neither of what only the optimizer changes nor of what changes at once."""
        for delays in ((0.003, 0.0), (0.0, 0.003), (0.002, 0.002), (0.0, 0.0)):
            device = Device(*delays)
            found = self.train(device, name=f"run{delays}")
            self.assertEqual(found, [{step + 1} for step in range(12)], delays)
            self.assertEqual(device.n_finished, 12)

    def test_what_each_wait_is_for(self):
        """Without any of them, wrong values are seen."""
        expected = [{step + 1} for step in range(12)]
        for kind, delays in ((DoesNotHoldBack, (0.003, 0.0)), (DoesNotFollow, (0.0, 0.003)),
                             (DoesNotFinish, (0.003, 0.0))):
            self.assertNotEqual(self.train(kind(*delays), name=kind.__name__), expected, kind)

    def test_nobody_waits(self):
        """save() and step() come back while nothing can be copied."""
        device = Device()
        model = device.put(Model(device))
        optimizer = Optimizer(model.parameters(), device)
        saved = self.open(device)
        gate = threading.Event()
        self.addCleanup(gate.set)
        device.own.tell(gate.wait)
        saved.save(1, model=model, optimizer=optimizer)
        optimizer.step()
        model()
        saved.fence()
        with self.assertRaises(TimeoutError):
            saved.wait(0.05)
        time.sleep(0.05)
        self.assertEqual(model.weight.max().item(), 0)  # the caller's stream is held back
        gate.set()
        saved.wait()
        self.assertEqual(saved.load(1)["model"]["weight"].max().item(), 0)
        device.synchronize()
        self.assertEqual([model.weight.min().item(), model.mean.min().item()], [1, 1])

    def test_memory_of_the_host_beside(self):
        """What the host changes at once is copied at once; what is stable is waited for."""
        device = Device(copy_delay=0.01)
        model = device.put(Model(device))
        host = torch.nn.Linear(WIDTH, WIDTH)
        torch.nn.init.zeros_(host.weight)
        host.register_buffer("mean", torch.zeros(100_000))
        on_device = Optimizer(model.parameters(), device)
        on_host = torch.optim.SGD(host.parameters(), lr=1)
        array = bytearray(9)
        saved = self.open(device, keep=0)
        for step in range(5):
            saved.save(step, model=model, host=host, on_device=on_device, on_host=on_host,
                       array=array, number=step)
            self.assertTrue(saved._waits_on_host)
            host.mean.add_(1)
            array[:] = bytes([step + 1]) * 9
            host.weight.grad = torch.full_like(host.weight, -1)
            on_device.step()
            on_host.step()
        saved.wait()
        for step in range(5):
            found = saved.load(step)
            self.assertEqual([found["host"]["mean"].unique().tolist(), found["array"][0],
                              found["host"]["weight"].unique().tolist(), found["number"],
                              found["model"]["weight"].unique().tolist()],
                             [[step], step, [step], step, [step]])

    def test_a_save_of_the_host_before(self):
        """What it reads is waited for, though the last save has nothing that would be."""
        device = Device()
        model = device.put(Model(device))
        weight = torch.nn.Parameter(torch.zeros(8 << 20))
        weight.grad = torch.full_like(weight, -1)
        optimizer = torch.optim.SGD([weight], lr=1)
        saved = self.open(device, keep=0, outstanding=2, slots=2, slot_bytes=1 << 16,
                          chunk_bytes=1 << 16)
        saved.save(1, weight=weight, optimizer=optimizer)
        saved.save(2, model=model)
        optimizer.step()
        saved.wait()
        self.assertEqual(saved.load(1)["weight"].unique().tolist(), [0])
        for call in (saved.close, saved.close):
            call()
        with self.assertRaises(ValueError):
            saved.fence()

    def test_memory_that_is_let_go_of(self):
        """Nobody gets memory that is still to be copied, and nobody keeps it afterwards."""
        device = Device(copy_delay=0.05)
        saved = self.open(device)
        memory = Memory(4 * WIDTH * WIDTH)
        tensor, gone = torch.frombuffer(memory, dtype=torch.float32), weakref.ref(memory)
        device.storages.add(tensor.data_ptr())
        saved.save(1, tensor=tensor)
        del tensor, memory
        self.assertIsNotNone(gone())
        saved.wait()
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(saved.load(1)["tensor"].unique().tolist(), [0])

    def test_views(self):
        """What is not contiguous, conjugated or a scalar."""
        device = Device(copy_delay=0.001)
        base = torch.arange(48.0).reshape(6, 8)
        tree = {"turned": base.t(), "part": base[1:4, ::3], "scalar": base[2, 3], "whole": base,
                "conj": torch.tensor([1 + 2j, 3 - 4j]).conj(), "none": base[:0],
                "half": base.half(), "flag": base > 3}
        for tensor in tree.values():
            device.storages.add(tensor.data_ptr())
        device.storages.discard(0)
        saved = self.open(device)
        for step in range(2):
            saved.save(step, tree=tree)
            found = saved.load(step)["tree"]
            for name, tensor in tree.items():
                self.assertTrue(torch.equal(found[name], tensor), name)

    def test_pinned_memory(self):
        device = Device()
        model = device.put(Model(device))
        saved = self.open(device)
        for step in range(30):
            saved.save(step, model=model)
        saved.wait()
        self.assertEqual(device.n_pinned, PIECE_BYTES)
        arena = Arena(Device())
        sizes = [5, PIECE_BYTES, PIECE_BYTES + 1, 1, 4096, 0, 3 * PIECE_BYTES]
        for shift in range(len(sizes)):
            arena.reset()
            taken = [arena.take(n_bytes) for n_bytes in sizes[shift:] + sizes[:shift]]
            arena.trim()
            ranges = sorted((one.data_ptr(), one.data_ptr() + one.numel()) for one in taken
                            if one.numel())
            self.assertTrue(all(one[1] <= other[0] for one, other in zip(ranges, ranges[1:])))
            self.assertLessEqual(sum(piece.numel() for piece in arena._pieces), 9 * PIECE_BYTES)

    def test_errors_come_with_the_next_call(self):
        device = Device(copy_delay=0.001)
        model = device.put(Model(device))
        optimizer = Optimizer(model.parameters(), device)
        saved = self.open(device)
        saved.save(1, model=model, optimizer=optimizer)
        saved.save(1, model=model, optimizer=optimizer)  # there is one
        optimizer.step()
        with self.assertRaises(stoker.Error):
            saved.wait()
        saved.save(2, model=model, optimizer=optimizer)
        with self.assertRaises(TypeError):
            saved.save(3, model=model, other={1, 2})
        saved.wait()
        self.assertEqual(saved.latest(), 2)

    def test_ends(self):
        for with_error in (False, True):
            device = Device(copy_delay=0.01)
            model = device.put(Model(device))
            try:
                with self.open(device, f"run{with_error}") as saved:
                    saved.save(1, model=model)
                    if with_error:
                        raise KeyError
            except KeyError:
                pass
            self.assertEqual(device.n_finished, 1)


class CallsOfCuda(unittest.TestCase):
    """What is asked of torch.cuda, with one that notes it: all that can be seen without a GPU."""

    def test_calls(self):
        with mock.patch.multiple(torch.cuda, Stream=mock.DEFAULT, Event=mock.DEFAULT,
                                 stream=mock.MagicMock(), current_stream=mock.DEFAULT) as cuda:
            own, event, current = (cuda[name].return_value
                                   for name in ("Stream", "Event", "current_stream"))
            device, target, source = Cuda(), torch.zeros(3), torch.ones(3)
            for _ in range(2):
                device.follow("cuda:1")
                device.copy("cuda:1", target, source)
            mark = device.mark("cuda:1")
            device.hold_back("cuda:1", mark)
            device.finish(mark)
            self.assertIs(mark, event)
            cuda["Stream"].assert_called_once_with("cuda:1")
            own.wait_stream.assert_called_with(current)
            torch.cuda.stream.assert_called_with(own)
            event.record.assert_called_once_with(own)
            current.wait_event.assert_called_once_with(event)
            event.synchronize.assert_called_once_with()
            self.assertEqual(target.tolist(), [1, 1, 1])
            self.assertFalse(device.holds(target))


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class OnGpu(DataTest):
    def test_a_training(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(2000, 2000), torch.nn.BatchNorm1d(2000),
                                    torch.nn.Linear(2000, 2000)).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        with Checkpointer(self.folder / "run", keep=0) as saved:
            told = []
            for step in range(10):
                model(torch.randn(64, 2000, device="cuda")).square().mean().backward()
                optimizer.step()
                told.append(copy.deepcopy((model.state_dict(), optimizer.state_dict())))
                saved.save(step, model=model, optimizer=optimizer)
            for step, (of_model, of_optimizer) in enumerate(told):
                found = saved.load(step)
                for name, tensor in of_model.items():
                    self.assertTrue(torch.equal(found["model"][name], tensor), (step, name))
                for number, state in of_optimizer["state"].items():
                    for name, tensor in state.items():
                        self.assertTrue(torch.equal(
                            found["optimizer"]["state"][number][name].cpu(), tensor.cpu()))


if __name__ == "__main__":
    unittest.main()
