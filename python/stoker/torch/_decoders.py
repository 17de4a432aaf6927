# SPDX-License-Identifier: Apache-2.0
"""Who makes batches of the bytes that Stoker reads: the thread that has taken them, or a process
for each such thread, since threads share Python's lock.

The processes are started afresh by the system: one that imports torch, and is forked as often as is
wanted before it has run anything else. They never import the program: what is of its main module
cannot be sent to them. What they are sent is not the data set but what it does with a sample, once,
and then bytes, in memory that goes with them.
"""

import multiprocessing.spawn
import multiprocessing.util
import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref

from stoker.torch import _random, _transport, _worker

END_WAIT_S = 1.0
CODE = ("import sys; n = int(sys.argv[1]); sys.path[:] = sys.argv[2 + n:]; "
        "from stoker.torch import _decode_worker; "
        "_decode_worker.main([int(file) for file in sys.argv[2:2 + n]])")


class Here:
    """Decodes in the thread that calls it."""

    def __init__(self, files, collate):
        self.files, self.collate = files, collate
        self.own = _random.ThreadGenerator()

    def __call__(self, content, base, batch, setup=None):
        """content: [(bytes, sample)] of a batch. setup: what pack() gave, for processes."""
        samples = []
        for place, (item, sample) in enumerate(content):
            self.own.generator.manual_seed(_random.sample_seed(base, batch, place, sample))
            with self.own:
                samples.append(self.files.decode(item, sample))
        return self.collate(samples)


def pack(files, collate, init):
    """What a process is to do, as bytes. TypeError where it cannot be sent."""
    try:
        setup = pickle.dumps((files.decoder(), collate, init), protocol=5)
    except Exception as error:
        raise TypeError(f"the transforms, collate_fn or worker_init_fn cannot be sent to a worker "
                        f"process: {error}") from error
    if b"__main__" in setup:
        raise TypeError("the transforms, collate_fn or worker_init_fn are of the main program, "
                        "which worker processes do not import: put them into a module")
    return setup


def _end(pid, sockets, process):
    """Ends the processes, at once if they are not in somebody's code."""
    if os.getpid() != pid:  # a fork's child: they are not its own
        return
    for sock in sockets:
        try:
            sock.shutdown(socket.SHUT_RDWR)  # a thread that waits for an answer comes out
        except OSError:
            pass  # it has ended
        sock.close()
    try:
        process.wait(END_WAIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Team:
    """count processes, each behind a socket. They begin at once."""

    def __init__(self, count):
        pairs = [socket.socketpair() for _ in range(count)]
        self.sockets = [ours for ours, _ in pairs]
        files = [theirs.fileno() for _, theirs in pairs]
        command = [multiprocessing.spawn.get_executable(),
                   *multiprocessing.util._args_from_interpreter_flags(), "-c", CODE, str(count),
                   *map(str, files), *sys.path]
        try:
            # A session of its own: Ctrl-C is for the program, and all can be ended together.
            self.process = subprocess.Popen(command, pass_fds=files, stdin=subprocess.DEVNULL,
                                            start_new_session=True)
        except BaseException:
            for sock in self.sockets:
                sock.close()
            raise
        finally:
            for _, theirs in pairs:
                theirs.close()
        self.close = weakref.finalize(self, _end, os.getpid(), self.sockets, self.process)


class Elsewhere:
    """Has a process of a team decode for the thread that calls it."""

    def __init__(self, files, sock, number, count):
        self.files, self.sock, self.number, self.count = files, sock, number, count
        self.setup = None  # what the process has been told last

    def __call__(self, content, base, batch, setup):
        try:
            if setup is not self.setup:
                _worker.send(self.sock, ("setup", setup, self.number, self.count, base))
                self.setup = setup
            self._ask(content, base, batch)
            head, answers = _worker.read_with_files(self.sock, _worker.ANSWER.size)
        except OSError as error:
            raise Ended(self._how()) from error
        if head is None:
            raise Ended(self._how())
        try:
            thing = _transport.unpack(answers[0])
        finally:
            _worker.close(answers)
        if _worker.ANSWER.unpack(head)[1] == _worker.BATCH:
            return thing
        error, text = thing
        raise error from _worker.Raised(f"in worker process {self.number} of the DataLoader:\n"
                                        f"{text}")

    def _ask(self, content, base, batch):
        targets = [self.files.target(sample) for _, sample in content]
        file = _transport.pack(([pickle.PickleBuffer(item) for item, _ in content],
                                [sample for _, sample in content], targets, base, batch))
        content.clear()  # the stream has its memory back
        try:
            _worker.send(self.sock, ("decode",), [file])
        finally:
            os.close(file)

    def _how(self):
        return (f"DataLoader worker process {self.number} has ended: it was killed, left by its "
                "transforms, or could not import torch and what it was sent")


class Ended(RuntimeError):
    """A process is not there any more."""
