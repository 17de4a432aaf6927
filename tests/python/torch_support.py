# SPDX-License-Identifier: Apache-2.0
"""What the tests against PyTorch share: finding one, data sets, and running both loaders.

A test runs with the interpreter that STOKER_TORCH_PYTHON names, or that of the build, or the
system's: whichever has a torch. Without any, the test is skipped (77).
"""

import os
import sys


def _try_other_python():
    """Runs the test again with the next interpreter that may have a torch."""
    if os.environ.setdefault("STOKER_TORCH_TRIED", "no") == "yes":
        return
    os.environ["STOKER_TORCH_TRIED"] = "yes"
    other = os.environ.get("STOKER_TORCH_PYTHON", "/usr/bin/python3")
    if os.access(other, os.X_OK):
        os.execv(other, [other] + sys.argv)


if __name__ != "__mp_main__" and os.environ.get("STOKER_TORCH_PYTHON") and \
        os.environ.get("STOKER_TORCH_TRIED") != "yes":
    _try_other_python()
try:
    import torch
except ImportError as missing:
    _try_other_python()
    print(f"skipped: no torch can be imported: {missing}")
    sys.exit(77)

import warnings  # noqa: E402 - only where there is a torch

import support  # noqa: E402
from stoker.torch import DataLoader  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
TorchLoader = torch.utils.data.DataLoader
DataTest, run_script, stoker = support.DataTest, support.run_script, support.stoker

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="This DataLoader will create")
warnings.filterwarnings("ignore", message="Length of split")


class Squares(torch.utils.data.Dataset):
    """Sample i is (i, i * i)."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, sample):
        if not -self.count <= sample < self.count:
            raise IndexError(sample)
        return sample, torch.tensor([sample * sample])


class SafeSquares(Squares):
    stoker_thread_safe = True


class Noisy(Squares):
    """Adds a random number of torch's, Python's and, where it is, NumPy's."""

    def __getitem__(self, sample):
        import random
        values = [float(sample), torch.rand(()).item(), random.random(),
                  torch.empty(1).uniform_(0, 9).item()]
        if support.numpy:
            values.append(support.numpy.random.rand())
        return torch.tensor(values, dtype=torch.float64)


class SafeNoisy(torch.utils.data.Dataset):
    """Random by torch alone, in all the ways that torchvision has."""

    stoker_thread_safe = True

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, sample):
        return torch.cat([torch.tensor([float(sample)]), torch.rand(2),
                          torch.empty(1).uniform_(3, 4), torch.randint(0, 99, (1,)).float(),
                          torch.randperm(5).float(), torch.zeros(1).normal_()])


class Failing(Squares):
    """Sample 5 cannot be had."""

    def __getitem__(self, sample):
        if sample == 5:
            return self.break_down(sample)
        return super().__getitem__(sample)

    def break_down(self, sample):
        raise ZeroDivisionError(f"sample {sample} breaks down here")


class SafeFailing(Failing):
    stoker_thread_safe = True


def same(one, other):
    """Whether two batches are equal to the bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and \
            one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    return one == other


def default_state():
    return torch.get_rng_state().tolist()
