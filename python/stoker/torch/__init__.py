# SPDX-License-Identifier: Apache-2.0
"""Stoker behind PyTorch's own interface: change the import, keep the loss curve.

    from stoker.torch import DataLoader

    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8)

docs/python.md tells what is the same, what differs and how far ahead each order is known.
"""

from stoker.torch._loader import DataLoader

__all__ = ["DataLoader"]
