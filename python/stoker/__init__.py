# SPDX-License-Identifier: Apache-2.0
"""Stoker, an I/O engine for deep-learning training: data sets, orders and batches.

    with stoker.Engine("ram:8G") as engine:
        data = stoker.Dataset(engine, "/data/train")
        for batch in stoker.Loader(engine, data, batch_size=64, epochs=3, seed=7):
            ...  # batch.data, batch.labels, or batch.items
"""

from stoker._core import (
    E_BORROW,
    E_CORRUPT,
    E_INFEASIBLE,
    E_MISMATCH,
    E_SAMPLE,
    E_STALE,
    E_VERSION,
    Array,
    Batch,
    Checkpoints,
    Dataset,
    Engine,
    Loader,
    Order,
    Tensors,
    View,
    __version__,
)
from stoker._errors import Error
from stoker._open import open
from stoker._ranks import Comm, Holding

__all__ = [
    "Array",
    "Batch",
    "Checkpoints",
    "Comm",
    "Dataset",
    "E_BORROW",
    "E_CORRUPT",
    "E_INFEASIBLE",
    "E_MISMATCH",
    "E_SAMPLE",
    "E_STALE",
    "E_VERSION",
    "Engine",
    "Error",
    "Holding",
    "Loader",
    "Order",
    "Tensors",
    "View",
    "__version__",
    "open",
]
