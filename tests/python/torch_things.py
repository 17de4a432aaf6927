# SPDX-License-Identifier: Apache-2.0
"""What worker processes can be sent: loaders, transforms and collate functions of a module."""
import io
import os
import random
import time

import torch
from torch.utils.data import default_collate, get_worker_info


def load_bytes(path):
    with open(path, "rb") as file:
        content = file.read()
    return torch.tensor(list(content[:3].ljust(3, b"\0")) + [len(content)])


def load_file(file):
    assert isinstance(file, io.BytesIO)
    content = file.read()
    return torch.tensor(list(content[:3].ljust(3, b"\0")) + [len(content)])


load_file.stoker_file = True


def crop(tensor):
    return tensor.float() + torch.rand(1) + torch.randint(0, 5, (4,))


def of_python(tensor):
    """Draws from Python's generator, which threads share."""
    return tensor.float() + random.random()


def refuse(tensor):
    if tensor[3] == 37 * 3:  # the length of number 3
        raise ArithmeticError("refused")
    return tensor


def whose(_tensor):
    """Which process and worker it is in."""
    info = get_worker_info()
    return torch.tensor([os.getpid()] + ([-1, -1] if info is None else [info.id, info.num_workers]))


def die(tensor):
    if tensor[3] == 37 * 3:
        os._exit(3)
    return tensor


def dawdle(tensor):
    time.sleep(0.05)
    return tensor


def add_ten(target):
    return target + 10


def collate(samples):
    things, targets = default_collate(samples)
    return {"x": things, "y": targets, "worker": get_worker_info().id}


def tell(number):
    """A worker_init_fn."""
    os.environ["STOKER_TEST_WORKER"] = str(number)


def told(_tensor):
    return torch.tensor(int(os.environ.get("STOKER_TEST_WORKER", -1)))
