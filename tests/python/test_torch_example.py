# SPDX-License-Identifier: Apache-2.0
"""The GPT of examples/: told to stop and started again, it ends with the same weights."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

from torch_support import DataTest, support

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt.py"
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


if __name__ == "__main__":
    unittest.main()
