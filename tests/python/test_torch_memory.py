# SPDX-License-Identifier: Apache-2.0
"""Memory over many saves of stoker.torch.Checkpointer: it does not grow with each of them."""

import unittest

from torch_support import DataTest, support, torch

from stoker.torch import Checkpointer
from stoker.torch._capture import Arena
from test_torch_capture import Device, Model, Optimizer
from test_torch_checkpoint import make, train


class Many(DataTest):
    def check(self, save, settle=lambda: None):
        torch.manual_seed(1)
        support.run_parts(save, settle).check(self, support.PART)

    def test_a_training(self):
        parts = make()
        for _ in range(400):  # what training by itself comes to need
            train(*parts)
        with Checkpointer(self.folder / "run", keep=1) as saved:

            def save(step):
                train(*parts)
                saved.save(step, model=parts[0], optimizer=parts[1], scheduler=parts[2],
                           average=parts[3])

            self.check(save, saved.wait)

    def test_states_that_are_new_each_time(self):
        """Nothing of a save can be kept for the next."""
        with Checkpointer(self.folder / "run", keep=1, outstanding=2) as saved:

            def save(step):
                model = torch.nn.Linear(20, 20)
                optimizer = torch.optim.SGD(model.parameters(), lr=1, momentum=0.5)
                model(torch.ones(1, 20)).sum().backward()
                optimizer.step()
                saved.save(step, model=model, optimizer=optimizer, tree={str(step): [step, b"1"]})
                optimizer.step()

            self.check(save, saved.wait)

    def test_tensors_of_a_device(self):
        device = Device()
        self.addCleanup(device.end)
        model = device.put(Model(device))
        optimizer = Optimizer(model.parameters(), device)
        with Checkpointer(self.folder / "run", keep=1) as saved:
            saved._device, saved._arena = device, Arena(device)

            def save(step):
                optimizer.step()
                saved.save(step, model=model, optimizer=optimizer)

            def settle():
                saved.wait()
                device.synchronize()

            self.check(save, settle)

    def test_loads(self):
        parts = make()
        train(*parts)
        with Checkpointer(self.folder / "run", keep=1) as saved:
            saved.save(1, model=parts[0], optimizer=parts[1])

            def load(step):
                saved.load(model=parts[0], optimizer=parts[1])
                saved.load()

            self.check(load)

    def test_a_leak_shows(self):
        lost = []
        with self.assertRaises(AssertionError):
            self.check(lambda step: lost.append(torch.ones(20)))


if __name__ == "__main__":
    support.run_without_thread_caches()
    unittest.main()
