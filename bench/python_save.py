#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saving a training's state from Python: Stoker's Checkpointer beside what torch has.

    PYTHONPATH=build/python bench/python_save.py FOLDER [MEGABYTES [ROUNDS]]

    sudo PYTHON=python3 bench/python_save.sh [MEGABYTES [ROUNDS]]     on a volume of 500 MB/s

The state is a model of 100 weights and Adam's two moments of each. Contenders take turns, each
round in another order. Told are medians: how long save() held the training up, beyond what
state_dict() takes; the time until the bytes were durable; processor seconds. FOLDER is on the
device that is measured; what is saved is removed.
"""

import os
import random
import resource
import shutil
import statistics
import sys
import time
import warnings

import torch

import stoker
import stoker.torch

N_WEIGHTS = 100
MIXED = (4096, 1, 1024, 3, 1024, 64, 4096, 1, 2048, 17, 512, 5)


def make(n_bytes):
    """A model and an optimizer whose state together has about n_bytes."""
    mixed = [MIXED[at % len(MIXED)] for at in range(N_WEIGHTS)]
    model = torch.nn.ParameterList(
        torch.nn.Parameter(torch.ones(max(1, n_bytes // 12 * one // sum(mixed)))) for one in mixed)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for parameter in model:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in model:
        parameter.grad = None
    return model, optimizer


def processor():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


class Contenders:
    """Each gives (seconds that save held up, seconds until durable)."""

    def __init__(self, folder, model, optimizer):
        self.folder, self.model, self.optimizer = folder, model, optimizer
        self.path = os.path.join(folder, "bench.pt")
        self.checkpointer = stoker.torch.Checkpointer(os.path.join(folder, "bench"), keep=1)
        self.step = 0

    def stoker(self):
        self.step += 1
        began = time.perf_counter()
        self.checkpointer.save(self.step, model=self.model, optimizer=self.optimizer)
        held = time.perf_counter() - began
        self.checkpointer.wait()
        return held, time.perf_counter() - began

    def _state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def torch_save(self):
        began = time.perf_counter()
        with open(self.path, "wb") as file:
            torch.save(self._state(), file)
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - began,) * 2

    def torch_save_by_stoker_open(self):
        began = time.perf_counter()
        with stoker.open(self.path, "wb") as file:
            torch.save(self._state(), file)
        return (time.perf_counter() - began,) * 2

    def distributed_checkpoint(self):
        import torch.distributed.checkpoint as dcp
        began = time.perf_counter()
        dcp.save(self._state(), checkpoint_id=os.path.join(self.folder, "bench.dcp"))
        return (time.perf_counter() - began,) * 2

    def distributed_checkpoint_by_stoker(self):
        import torch.distributed.checkpoint as dcp
        from stoker.torch.dcp import Writer
        began = time.perf_counter()
        dcp.save(self._state(), storage_writer=Writer(os.path.join(self.folder, "bench.own")))
        return (time.perf_counter() - began,) * 2

    def state_dicts(self):
        began = time.perf_counter()
        self._state()
        return (time.perf_counter() - began,) * 2


def names_of(contenders):
    """Those that this torch has."""
    names = ["stoker", "torch_save", "torch_save_by_stoker_open"]
    try:
        from torch.distributed.checkpoint import save
        names += ["distributed_checkpoint"] if callable(save) else []
        from stoker.torch import dcp
        names += ["distributed_checkpoint_by_stoker"] if dcp else []
    except ImportError:
        pass  # before torch 2.2, and 2.6
    return names


def main(folder, megabytes="1000", rounds="5"):
    os.makedirs(folder, exist_ok=True)
    warnings.filterwarnings("ignore", module="torch.distributed")  # of one process, of overwriting
    model, optimizer = make(int(megabytes) << 20)
    contenders = Contenders(folder, model, optimizer)
    names = names_of(contenders)
    found = {name: [] for name in names + ["state_dicts"]}
    for number in range(int(rounds) + 1):
        for name in random.sample(list(found), len(found)):
            os.sync()
            began = processor()
            held, durable = getattr(contenders, name)()
            if number:  # the first of each touches memory and files for the first time
                found[name].append((held, durable, processor() - began))
    contenders.checkpointer.close()
    for name in ("bench", "bench.dcp", "bench.own"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    os.remove(contenders.path)
    medians = {name: [statistics.median(column) for column in zip(*rows)]
               for name, rows in found.items()}
    own, base = medians["stoker"], medians["state_dicts"][0]
    print(f"torch {torch.__version__}, {megabytes} MB in {3 * N_WEIGHTS} tensors and {N_WEIGHTS} "
          f"counters, {rounds} rounds; "
          f"state_dict() takes {base * 1e3:.2f} ms")
    for name in names:
        held, durable, cpu = medians[name]
        print(f"{name:32} held up {(held - base) * 1e3:9.2f} ms, durable {durable:6.3f} s "
              f"(stoker's Checkpointer is {own[1] / durable:4.2f} of it), processor {cpu:5.2f} s")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
