#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small ResNet-18 on Fashion-MNIST as class folders of image files, in ranks (DDP over
gloo): first with torch's DataLoader and torch.save, then with Stoker's, and compares them.

    PYTHONPATH=build/python examples/resnet.py /tmp/resnet
    PYTHONPATH=build/python torchrun --nproc-per-node 2 examples/resnet.py /tmp/resnet

Without torchrun it starts its two ranks itself. About two minutes on two cores. The images come
from Debian's dataset-fashion-mnist (or --source) and are laid out in the folder first. Both
trainings see the same batches, so they end with the same weights; what differs is the time that
they wait, for data and for checkpoints.
"""

import argparse
import gzip
import os
import shutil
import socket
import subprocess
import sys
import time

import torch
import torch.distributed
from torch.utils import data

import stoker.torch

HEADER = b"P5\n28 28\n255\n"
PIXELS = 28 * 28
CLASSES = 10
WIDTH = 16
RANKS = 2


class Images(data.Dataset):
    """Class folders of grey images (PGM), as files."""

    def __init__(self, root):
        self.samples = [(os.path.join(folder, name), label)
                        for label, folder in enumerate(sorted(one.path for one in os.scandir(root)))
                        for name in sorted(os.listdir(folder))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, at):
        with open(self.samples[at][0], "rb") as file:
            return self.stoker_decode(at, file.read())

    # What Stoker needs to read the files ahead of time:

    def stoker_extent(self, at):
        path = self.samples[at][0]
        return path, 0, os.path.getsize(path)

    def stoker_decode(self, at, content):
        pixels = torch.frombuffer(bytearray(content[-PIXELS:]), dtype=torch.uint8)
        return pixels.view(1, 28, 28).float().div_(255), self.samples[at][1]


class Block(torch.nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.main = torch.nn.Sequential(
            torch.nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(n_out),
            torch.nn.ReLU(), torch.nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            torch.nn.BatchNorm2d(n_out))
        self.side = torch.nn.Identity() if n_in == n_out and stride == 1 else torch.nn.Sequential(
            torch.nn.Conv2d(n_in, n_out, 1, stride, bias=False), torch.nn.BatchNorm2d(n_out))

    def forward(self, x):
        return torch.relu(self.main(x) + self.side(x))


def resnet18():
    """The four stages of two blocks each, WIDTH instead of 64 channels wide."""
    layers = [torch.nn.Conv2d(1, WIDTH, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(WIDTH),
              torch.nn.ReLU()]
    n_in = WIDTH
    for stage in range(4):
        for block in range(2):
            layers.append(Block(n_in, WIDTH << stage, 2 if stage and not block else 1))
            n_in = WIDTH << stage
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                               torch.nn.Linear(n_in, CLASSES))


class PlainSaves:
    """Before: torch.save and fsync in the middle of the training."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "last.pt")

    def save(self, step, **parts):
        with open(self.path + ".tmp", "wb") as file:
            torch.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}},
                       file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".tmp", self.path)

    def wait(self):
        pass


def open_checkpoints(folder, rank):
    """The ranks save together, a share each; a Stoker without UCX has rank 0 save alone."""
    try:
        return stoker.torch.Checkpointer(folder)
    except RuntimeError as missing:
        if rank > 0:
            return None
        print(f"resnet.py: rank 0 saves alone: {missing}", file=sys.stderr)
        return stoker.torch.Checkpointer(folder, alone=True)


def train(given, dataset, is_plain):
    """Returns (seconds, of them waiting for data, and in save(); a sum over the weights)."""
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(resnet18())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = data.DistributedSampler(dataset, seed=7, drop_last=True)
    make = data.DataLoader if is_plain else stoker.torch.DataLoader
    loader = make(dataset, batch_size=given.batch, sampler=sampler, drop_last=True,
                  num_workers=given.workers)
    folder = os.path.join(given.folder, "plain" if is_plain else "stoker")
    if sampler.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    torch.distributed.barrier()
    os.makedirs(folder, exist_ok=True)
    saved = None
    if not is_plain:
        saved = open_checkpoints(folder, sampler.rank)
    elif sampler.rank == 0:
        saved = PlainSaves(folder)
    began, waiting, saving, step = time.monotonic(), 0.0, 0.0, 0
    for epoch in range(given.epochs):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        while True:
            at = time.monotonic()
            batch = next(batches, None)
            waiting += time.monotonic() - at
            if batch is None:
                break
            loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if saved and step % given.every == 0:
                at = time.monotonic()
                saved.save(step, model=model.module, optimizer=optimizer)
                saving += time.monotonic() - at
    if saved:
        saved.wait()
    seconds = time.monotonic() - began
    if saved and not is_plain:
        saved.close()
    return (seconds, waiting, saving, loss.item(),
            sum(value.double().sum().item() for value in model.module.state_dict().values()))


def lay_out(source, folder, count):
    """The first count training images as files, those that are not there yet."""
    names = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    with gzip.open(os.path.join(source, names[0])) as images, \
            gzip.open(os.path.join(source, names[1])) as labels:
        images.read(16)
        labels.read(8)
        for at in range(count):
            image, label = images.read(PIXELS), labels.read(1)[0]
            path = os.path.join(folder, str(label), f"{at:05}.pgm")
            if not os.path.exists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(HEADER + image)


def start_ranks(count):
    """Starts this program once for each rank; returns the first exit status that is not 0."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env=dict(
        os.environ, RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=port)) for rank in range(count)]
    return max(abs(rank.wait()) for rank in ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where images and checkpoints go")
    parser.add_argument("--source", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--images", type=int, default=6_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="of each rank")
    parser.add_argument("--workers", type=int, default=2, help="of each rank")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    given = parser.parse_args()
    if "RANK" not in os.environ:
        return start_ranks(RANKS)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    images = os.path.join(given.folder, "train")
    if rank == 0:
        lay_out(given.source, images, given.images)
    torch.distributed.barrier()
    dataset = Images(images)
    for is_plain in (True, False):
        seconds, waiting, saving, loss, weights = train(given, dataset, is_plain)
        if rank == 0:
            print(f"{'torch' if is_plain else 'stoker':6} {seconds:6.1f} s, of them {waiting:5.2f} "
                  f"s waiting for data and {saving:5.2f} s in save(); loss {loss:.4f}, weights "
                  f"{weights.hex()}", flush=True)
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except stoker.Error as error:
        sys.exit(f"resnet.py: {error}")
