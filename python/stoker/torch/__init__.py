# SPDX-License-Identifier: Apache-2.0
"""Stoker behind PyTorch's own interface: change the import, keep the loss curve.

    from stoker.torch import Checkpointer, DataLoader

    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8)
    checkpointer = Checkpointer("/lustre/run1")

docs/python.md tells what is the same, what differs, how far ahead each order is known, and what a
checkpoint holds.
"""

from stoker.torch._checkpointer import Checkpointer
from stoker.torch._loader import DataLoader

__all__ = ["Checkpointer", "DataLoader"]
