# SPDX-License-Identifier: Apache-2.0
"""A worker process: fetches the batches that it is told, until the other end is closed.

Messages to it are a length and a pickle; an answer is a ticket and what it is, with a file in
memory. A process, not a fork: nothing of the parent's threads or locks is in it.
"""

import array
import collections
import os
import pickle
import select
import signal
import socket
import struct
import traceback

import torch
from torch.utils.data._utils import worker as torchs

from stoker.torch import _random, _transport
from stoker.torch._fetch import default_collate

ANSWER = struct.Struct("<QQ")
BATCH, ERROR = 1, 2
LENGTH = struct.Struct("<Q")


class Raised(Exception):
    """The traceback of an exception in a worker, as text: the cause of the one raised here."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text

    def __str__(self):
        return "\n" + self.text


def send(sock, message, files=()):
    """Sends an object, and descriptors with its first byte."""
    text = pickle.dumps(message, protocol=5)
    head = LENGTH.pack(len(text))
    if files:
        socket.send_fds(sock, [head], list(files))
        sock.sendall(text)
    else:
        sock.sendall(head + text)


def receive(sock):
    """(object, descriptors), or None where the other end is closed."""
    head, files = read_with_files(sock, LENGTH.size)
    if head is None:
        return None
    text = bytearray()
    n_bytes = LENGTH.unpack(head)[0]
    while len(text) < n_bytes:
        piece = sock.recv(min(1 << 20, n_bytes - len(text)))
        if not piece:
            return None
        text += piece
    return pickle.loads(text), files


def read_with_files(sock, n_bytes):
    """Exactly n_bytes and the descriptors that came with them; None where there are none."""
    data, files = b"", array.array("i")
    while len(data) < n_bytes:
        piece, extra, _, _ = sock.recvmsg(n_bytes - len(data), socket.CMSG_SPACE(4 * 4))
        for level, kind, payload in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files.frombytes(payload[:len(payload) // 4 * 4])
        if not piece:
            return None, []
        data += piece
    return data, list(files)


def close(files):
    for file in files:
        os.close(file)


class Worker:
    """What it has been told and not done yet, and the data set as it was told last."""

    def __init__(self, sock, number, count):
        self.sock, self.number, self.count = sock, number, count
        self.pending = collections.deque()
        self.fetch = self.is_keyed = None
        self.broken = None  # why there is no data set

    def read(self):
        """Takes messages in: all that are there, and where nothing waits the next one. False: the
        end."""
        while not self.pending or select.select([self.sock], [], [], 0)[0]:
            got = receive(self.sock)
            if got is None:
                return False
            message, files = got
            if message[0] == "begin":  # what waits is of an iteration that nobody reads any more
                for _, old_files in self.pending:
                    close(old_files)
                self.pending.clear()
            if message[0] == "forget":
                self.forget(message[1])
            else:
                self.pending.append((message, files))
        return True

    def forget(self, ticket):
        """Leaves out what was asked for from a ticket on."""
        self.pending = collections.deque(
            (message, files) for message, files in self.pending
            if message[0] != "fetch" or message[1] < ticket)

    def run(self):
        while self.read():
            message, files = self.pending.popleft()
            if message[0] == "begin":
                self.broken = None
                try:
                    self.begin(files, *message[1:])
                except Exception as error:
                    self.broken = error
            elif message[0] == "follow":
                self.follow(message[1])
            else:
                self.answer(*message[1:])

    def begin(self, files, base, is_keyed):
        """A new iteration; with a file, of a data set as it is now."""
        self.is_keyed = is_keyed
        if not files:
            return self.follow(base)
        try:
            self.fetch, init = _transport.unpack(files[0], is_shared=False)
        finally:
            close(files)
        _random.seed_worker(base, self.number)
        self.follow(base)
        if init is not None:
            init(self.number)

    def follow(self, base):
        """A new iteration over the same data set."""
        if self.fetch is not None:
            torchs._worker_info = torchs.WorkerInfo(
                id=self.number, num_workers=self.count, seed=base + self.number,
                dataset=self.fetch.dataset)

    def make(self, batch, index, base):
        if self.broken is not None:
            raise self.broken
        if self.is_keyed:
            samples = self.fetch.seeded(index, base, batch, _random.seed_process)
        else:
            samples = self.fetch.samples(index)
        return collated(self.fetch.collate, samples, default_collate(self.fetch.is_batched))

    def answer(self, ticket, batch, index, base):
        try:
            kind, file = BATCH, _transport.pack(self.make(batch, index, base))
        except Exception as error:
            kind, file = ERROR, pack_error(error)
        try:
            socket.send_fds(self.sock, [ANSWER.pack(ticket, kind)], [file])
        finally:
            os.close(file)


def collated(collate, samples, default):
    """A batch of samples. The default would put it into shared memory of its own in a worker."""
    if collate is not default:
        return collate(samples)
    info, torchs._worker_info = torchs._worker_info, None
    try:
        return collate(samples)
    finally:
        torchs._worker_info = info


def pack_error(error):
    """An exception and its traceback, as a file."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # it cannot be sent as it is
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return _transport.pack((error, text))


def main(sock, number, count):
    """What the process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who closes the socket
    torch.set_num_threads(1)
    try:
        Worker(sock, number, count).run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent has gone
