# SPDX-License-Identifier: Apache-2.0
"""The processes of _decoders.py: one imports what all need and is forked for each socket, then
waits for its children. Each ends when the other end of its socket is closed."""

import os
import pickle
import signal
import socket

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import worker as torchs

from stoker.torch import _random, _transport, _worker


class Decoder:
    def __init__(self, sock):
        self.sock = sock
        self.decode = self.collate = None
        self.broken = None  # why it has nothing to decode with

    def run(self):
        while True:
            got = _worker.receive(self.sock)
            if got is None:
                return
            message, files = got
            if message[0] == "setup":
                self.broken = None
                try:
                    self.set_up(*message[1:])
                except Exception as error:
                    self.broken = error
            else:
                try:
                    self.answer(files[0])
                finally:
                    _worker.close(files)

    def set_up(self, setup, number, count, base):
        _random.seed_worker(base, number)
        torchs._worker_info = torchs.WorkerInfo(id=number, num_workers=count, seed=base + number,
                                                dataset=None)
        self.decode, self.collate, init = pickle.loads(setup)
        if init is not None:
            init(number)

    def make(self, file):
        items, samples, targets, base, batch = _transport.unpack(file)
        if self.broken is not None:
            raise self.broken
        made = []
        for place, (item, sample, target) in enumerate(zip(items, samples, targets)):
            _random.seed_process(_random.sample_seed(base, batch, place, sample))
            made.append(self.decode(item, target))
        return _worker.collated(self.collate, made, default_collate)

    def answer(self, file):
        try:
            kind, answer = _worker.BATCH, _transport.pack(self.make(file))
        except Exception as error:
            kind, answer = _worker.ERROR, _worker.pack_error(error)
        try:
            socket.send_fds(self.sock, [_worker.ANSWER.pack(0, kind)], [answer])
        finally:
            os.close(answer)


def _serve(file):
    torch.set_num_threads(1)
    with socket.socket(fileno=file) as sock:
        try:
            Decoder(sock).run()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the parent has gone


def main(files):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as torch's workers
    for at, file in enumerate(files):
        if os.fork() == 0:
            for other in files[:at] + files[at + 1:]:
                os.close(other)
            _serve(file)
            return
    for file in files:
        os.close(file)
    for _ in files:
        os.wait()
