# SPDX-License-Identifier: Apache-2.0
"""The GPT of examples/: told to stop and started again, it ends with the same weights. The ResNet:
with Stoker's loader and checkpoints it ends with the same weights as with torch's."""

import gzip
import os
import pathlib
import random
import signal
import subprocess
import sys
import unittest

from torch_support import DataTest, support, torch

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt.py"
IMAGES = 64
DATA = EXAMPLE.parents[1] / "docs" / "design" / "simulator.md"


class Example(DataTest):
    def start(self, folder):
        command = [sys.executable, EXAMPLE, self.folder / folder, DATA, "--steps", "20", "--batch",
                   "2"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                env=dict(os.environ, PYTHONPATH=support.PACKAGE))

    def test_stopped_and_resumed(self):
        whole = self.start("whole")
        expected = whole.communicate(timeout=120)[0].split("\n")
        self.assertEqual(whole.returncode, 0)
        first = self.start("stopped")
        self.assertIn("from step 0", first.stdout.readline())
        first.send_signal(signal.SIGUSR1)
        said = first.communicate(timeout=120)[0]
        self.assertEqual(first.returncode, 75, said)
        second = self.start("stopped")
        said = second.communicate(timeout=120)[0].split("\n")
        self.assertEqual(second.returncode, 0)
        self.assertNotIn("from step 0,", said[0])
        self.assertTrue(expected[-2].startswith("weights "))
        self.assertEqual(said[-2], expected[-2])

    @unittest.skipUnless(torch.distributed.is_available() and
                         torch.distributed.is_gloo_available(), "needs gloo")
    def test_resnet_in_two_ranks(self):
        numbers = random.Random(1)
        for name, head, n_bytes in (("images-idx3", 16, IMAGES * 784), ("labels-idx1", 8, IMAGES)):
            with gzip.open(self.folder / f"train-{name}-ubyte.gz", "wb") as file:
                limit = 10 if head == 8 else 256
                file.write(bytes(head) + bytes(numbers.randrange(limit) for _ in range(n_bytes)))
        command = [sys.executable, EXAMPLE.parent / "resnet.py", self.folder / "run", "--source",
                   self.folder, "--images", str(IMAGES), "--epochs", "2", "--batch", "8", "--every",
                   "2", "--workers", "1"]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=240,
                              env=dict(os.environ, PYTHONPATH=support.PACKAGE)).stdout
        plain, own = said.splitlines()
        self.assertTrue(plain.startswith("torch") and own.startswith("stoker"))
        self.assertEqual(own.split("; ")[1], plain.split("; ")[1])  # loss and weights
        self.assertIn("step-8", os.listdir(self.folder / "run" / "stoker"))


if __name__ == "__main__":
    unittest.main()
