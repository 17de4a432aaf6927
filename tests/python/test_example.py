# SPDX-License-Identifier: Apache-2.0
"""The example of the README, on both kinds of data sets."""

import os
import pathlib
import subprocess
import sys
import unittest

from support import IMAGE, IMAGES, PACKAGE, RECORDS, DataTest, item

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "loader.py"


class Example(DataTest):
    def run_example(self, path):
        return subprocess.run([sys.executable, EXAMPLE, path], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=PACKAGE), timeout=60, check=False)

    def test_fixed(self):
        images, _ = self.make_idx()
        done = self.run_example(images)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        n_bytes = 3 * IMAGES * IMAGE[0] * IMAGE[1]
        self.assertIn(f"{n_bytes} bytes in 3 batches, {n_bytes // 3} from the origin", done.stdout)

    def test_raw(self):
        self.make_folder()
        for path in (self.folder / "tree").glob("*/*"):
            path.rename(path.with_suffix(".png"))
        done = self.run_example(self.folder / "tree")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        n_bytes = 3 * sum(len(item(sample)) for sample in range(RECORDS))
        self.assertIn(f"{n_bytes} bytes in 6 batches", done.stdout)

    def test_error(self):
        done = self.run_example(self.folder / "missing")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith("loader.py: [ENOENT]"), done.stderr)


if __name__ == "__main__":
    unittest.main()
