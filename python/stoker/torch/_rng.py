# SPDX-License-Identifier: Apache-2.0
"""The states of the generators that a training draws from: torch's, Python's, NumPy's."""

import array
import random
import sys

import torch


class States:
    """As a tree that a checkpoint holds, the same tensor each time. NumPy's only where somebody has
    imported it."""

    def __init__(self):
        self._torch = torch.get_rng_state()

    def get(self):
        version, words, gauss = random.getstate()
        self._torch.copy_(torch.get_rng_state())
        states = {"torch": self._torch,
                  "python": [version, array.array("Q", words).tobytes(), gauss]}
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
        numpy = sys.modules.get("numpy")
        if numpy:
            states["numpy"] = list(numpy.random.get_state())
        return states


def restore(states):
    torch.set_rng_state(states["torch"].cpu())
    version, words, gauss = states["python"]
    random.setstate((version, tuple(array.array("Q", words)), gauss))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
    if "numpy" in states:
        import numpy
        numpy.random.set_state(tuple(states["numpy"]))
