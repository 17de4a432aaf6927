# SPDX-License-Identifier: Apache-2.0
"""Batches fetched by worker processes: batch k by worker k mod W, as torch gives them out.

Each worker answers in the order in which it was asked, so to wait for a batch is to read from one
socket; what lies in the other sockets stays there until its turn. Tickets count through all
iterations: an answer to one that was given up is known by its number.

Workers are started afresh by the system, never forked. Between iterations they stay, but are sent
the data set anew, as a new process of torch's would see it; persistent_workers leaves that out,
and so does a data set that is constant.
"""

import multiprocessing
import os
import socket
import weakref

from stoker.torch import _transport, _worker

END_WAIT_S = 1.0
START_HINT = ("; a program that starts processes must not do so while it is imported: put its "
              "main part under  if __name__ == \"__main__\":")


class Job:
    __slots__ = ("batch", "ticket")

    def __init__(self, batch, ticket):
        self.batch, self.ticket = batch, ticket


def _end(pid, packed, sockets, processes):
    """Closes the sockets, at which the workers end; who is in the data set's code is ended."""
    if os.getpid() != pid:  # a fork's child: they are not its own
        return
    _worker.close(packed)
    for sock in sockets:
        sock.close()
    for process in processes:
        process.join(END_WAIT_S)
        if process.is_alive():
            process.terminate()
            process.join(END_WAIT_S)


class Processes:
    """Fetches batches in count processes."""

    is_broken = False

    def __init__(self, fetch, count, options):
        """options: prefetch_factor, worker_init_fn, persistent_workers, is_keyed."""
        self.fetch = fetch
        self.count = count
        self.options = options
        self.depth = count * options["prefetch_factor"]
        self.n_tickets = 0
        self.pid = os.getpid()
        self.sockets, self.processes = [], []
        self.has_answered = [False] * count
        # First: what cannot be sent is refused before anything starts.
        self.packed = [self._pack_data()]  # for the first iteration
        context = multiprocessing.get_context("spawn")
        try:
            for number in range(count):
                self._start(context, number)
        except BaseException:
            _end(self.pid, self.packed, self.sockets, self.processes)
            raise
        self._stop = weakref.finalize(self, _end, self.pid, self.packed, self.sockets,
                                      self.processes)

    def _start(self, context, number):
        ours, theirs = socket.socketpair()
        self.sockets.append(ours)
        process = context.Process(target=_worker.main, args=(theirs, number, self.count),
                                  name=f"stoker-worker-{number}", daemon=True)
        try:
            process.start()
        finally:
            theirs.close()
        self.processes.append(process)

    def _pack_data(self):
        try:
            return _transport.pack((self.fetch, self.options["worker_init_fn"]))
        except Exception as error:
            raise TypeError(
                f"the data set {type(self.fetch.dataset).__name__}, collate_fn or worker_init_fn "
                f"cannot be sent to a worker process: {error}. Define them at the top of a module "
                "(no lambda, no local function), or declare the data set safe for threads with "
                "an attribute stoker_thread_safe = True") from error

    def begin(self, base, is_first):
        files = [self.packed.pop()] if self.packed else []
        if not files and not self.options["persistent_workers"]:
            files = [self._pack_data()]
        try:
            self._tell(("begin", base, self.options["is_keyed"]), files)
        finally:
            _worker.close(files)

    def submit(self, batch, index, base):
        job = Job(batch, self.n_tickets)
        self.n_tickets += 1
        number = batch % self.count
        try:
            _worker.send(self.sockets[number], ("fetch", job.ticket, batch, index, base))
        except OSError as error:
            raise self._died(number) from error
        return job

    def follow(self, base):
        """What is submitted from here on is of another iteration, over the same data set."""
        self._tell(("follow", base))

    def _tell(self, message, files=()):
        for number, sock in enumerate(self.sockets):
            try:
                _worker.send(sock, message, files)
            except OSError as error:
                raise self._died(number) from error

    def result(self, job, timeout):
        number = job.batch % self.count
        sock = self.sockets[number]
        sock.settimeout(timeout or None)
        while True:
            try:
                head, files = _worker.read_with_files(sock, _worker.ANSWER.size)
            except socket.timeout:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds") from None
            except OSError as error:
                raise self._died(number) from error
            if head is None:
                raise self._died(number)
            self.has_answered[number] = True
            ticket, kind = _worker.ANSWER.unpack(head)
            try:
                if ticket == job.ticket:
                    return self._open(kind, files[0], number)
            finally:
                _worker.close(files)

    def _open(self, kind, file, number):
        thing = _transport.unpack(file)
        if kind == _worker.BATCH:
            return thing
        error, text = thing
        raise error from _worker.Raised(f"in worker process {number} of the DataLoader:\n{text}")

    def _died(self, number):
        self.is_broken = True
        self.processes[number].join(END_WAIT_S)
        code = self.processes[number].exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        return RuntimeError(f"DataLoader worker {number} (pid {self.processes[number].pid}) "
                            f"ended {how}" + ("" if self.has_answered[number] else START_HINT))

    def cancel(self, jobs):
        """begin() tells the workers; what they had ready is thrown away when it comes."""

    def forget(self, jobs):
        """Of the jobs that were submitted last the workers leave out what is not begun yet."""
        if jobs and not self.is_broken:
            try:
                self._tell(("forget", jobs[0].ticket))
            except RuntimeError:
                pass  # one that has died is told of in its turn

    def close(self):
        self._stop()
