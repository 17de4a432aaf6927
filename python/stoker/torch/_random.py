# SPDX-License-Identifier: Apache-2.0
"""Random numbers of transforms: keyed per sample, so that no count of workers changes them.

In a worker process the global generators are the process's own and are set anew for each sample.
In a thread they are everybody's: there, what is asked of torch's default generator is answered by
one of the thread's own. Python's and NumPy's global generators have no such door; a data set that
uses them belongs in worker processes.
"""

import operator
import random
import sys

import torch
from torch.overrides import TorchFunctionMode

try:
    import numpy  # noqa: F401 - so that it is there to be seeded
except ImportError:
    pass

MASK = (1 << 64) - 1


def mix(base, number):
    """A seed of 64 bits from two numbers (Steele et al., SplitMix64)."""
    value = (base + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def sample_seed(base, batch, place, index):
    """The seed of a sample: by its id, or by its place where it has no number."""
    try:
        return mix(base, operator.index(index))
    except TypeError:
        return mix(mix(base, batch + (1 << 63)), place)


def seed_process(seed):
    """Sets the global generators of this process."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)


def seed_worker(base, worker):
    """Sets them as torch sets those of a worker."""
    from torch.utils.data._utils import worker as torchs
    seed = base + worker
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules and hasattr(torchs, "_generate_state"):
        sys.modules["numpy"].random.seed(torchs._generate_state(base, worker))
    return seed


def _takers():
    """The functions of torch that take a generator."""
    functions = "rand randn randint randperm bernoulli normal multinomial poisson".split()
    methods = ("bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial "
               "normal_ random_ uniform_").split()
    return frozenset([getattr(torch, name) for name in functions] +
                     [getattr(torch.Tensor, name) for name in methods])


class ThreadGenerator(TorchFunctionMode):
    """While it is entered, this thread's draws come from a generator of its own."""

    takers = _takers()

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in self.takers and (kwargs is None or kwargs.get("generator") is None):
            kwargs = dict(kwargs or {}, generator=self.generator)
        return func(*args, **(kwargs or {}))
