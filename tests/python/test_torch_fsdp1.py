# SPDX-License-Identifier: Apache-2.0
"""Checkpointer in ranks of FSDP 1 (FullyShardedDataParallel): the same as test_torch_ranks.py."""

import sys
import unittest

import test_torch_ranks as ranks
from torch_support import VERSION, torch

if VERSION < (2, 6):
    print(f"skipped: FSDP 1 gives DTensors, as they are used here, since torch 2.6, this is "
          f"{torch.__version__}")
    sys.exit(77)


class Flat(ranks.Ranks):
    """The optimizer has flattened parameters."""

    kind = "fsdp1"
    test_two = None

    def test_what_would_be_pieces(self):
        self.check_ranks("pieces", 2)


class Originals(ranks.Ranks):
    """use_orig_params=True: what the optimizer has looks like the model's parameters."""

    kind = "fsdp1-orig"
    test_four = None

    def test_two(self):
        super().test_two()
        self.check_ranks("load model", 3, "fsdp")

    def test_what_would_be_pieces(self):
        self.check_ranks("pieces", 2)


if __name__ == "__main__":
    unittest.main()
