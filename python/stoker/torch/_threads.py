# SPDX-License-Identifier: Apache-2.0
"""Batches fetched by threads of this process, each batch cut among them.

The threads know the queue and nothing else, so that whoever owns it can be dropped at any moment;
they are daemons, and the end of the process waits a moment for those that are at work.
"""

import atexit
import queue
import threading
import time
import weakref

from stoker.torch import _random

PART_SAMPLES = 4  # a part of a batch has at least so many: handing over one costs some 10 us
END_WAIT_S = 1.0

_open: weakref.WeakSet = weakref.WeakSet()


def end_at_exit(pool):
    """Has a pool, of threads and with a close(), end before the interpreter does."""
    _open.add(pool)


class Job:
    """One batch under way. Done when its lock can be had."""

    __slots__ = ("batch", "index", "base", "parts", "errors", "n_left", "guard", "done", "value",
                 "is_dropped")

    def __init__(self, batch, index, base, cuts):
        self.batch, self.index, self.base = batch, index, base
        self.parts = [None] * (len(cuts) - 1)
        self.errors = {}
        self.n_left = len(self.parts)
        self.guard = threading.Lock()
        self.done = threading.Lock()
        self.done.acquire()
        self.value = None
        self.is_dropped = False

    def run(self, part, low, high, fetch, own):
        """Fetches samples low .. high; who is last makes the batch."""
        if self.is_dropped:
            return
        index = self.index if high is None else self.index[low:high]
        try:
            self.parts[part] = self._samples(index, low, fetch, own)
        except BaseException as error:  # also the caller's SystemExit: it is raised where it waits
            self.errors[part] = error
        with self.guard:
            self.n_left -= 1
            is_last = self.n_left == 0
        if not is_last:
            return
        try:
            if not self.errors:
                self.value = self._collate(fetch)
        except BaseException as error:
            self.errors[0] = error
        self.parts = None
        self.done.release()

    def _samples(self, index, low, fetch, own):
        with own:
            return fetch.seeded(index, self.base, self.batch,
                                lambda seed: own.generator.manual_seed(seed), low)

    def _collate(self, fetch):
        samples = self.parts[0]
        if len(self.parts) > 1:
            samples = [sample for part in self.parts for sample in part]
        return fetch.collate(samples)


def _work(tasks, fetch):
    own = _random.ThreadGenerator()
    while True:
        task = tasks.get()
        if task is None:
            return
        job, part, low, high = task
        job.run(part, low, high, fetch, own)
        del task, job  # while it waits for the next, the batch is the caller's alone


class Threads:
    """Fetches batches; see Job."""

    is_broken = False

    def __init__(self, fetch, count):
        self.fetch = fetch
        self.count = count
        self.depth = count + 2  # batches under way or ready
        self.tasks = queue.SimpleQueue()
        self.threads = [threading.Thread(target=_work, args=(self.tasks, fetch), daemon=True,
                                         name=f"stoker-fetch-{number}") for number in range(count)]
        for thread in self.threads:
            thread.start()
        end_at_exit(self)

    def begin(self, base, is_first):
        """A new iteration, its batches keyed by base."""

    def submit(self, batch, index, base):
        """Begins a batch; result() waits for it."""
        cuts = self._cut(index)
        job = Job(batch, index, base, cuts)
        for part, (low, high) in enumerate(zip(cuts, cuts[1:])):
            self.tasks.put((job, part, low, high))
        return job

    def _cut(self, index):
        if not self.fetch.is_batched or getattr(self.fetch.dataset, "__getitems__", None):
            return [0, None]
        n_samples = len(index)
        n_parts = max(1, min(self.count, n_samples // PART_SAMPLES))
        return [n_samples * part // n_parts for part in range(n_parts + 1)]

    def result(self, job, timeout):
        """The batch, or what its data set or collate function raised."""
        if not job.done.acquire(timeout=timeout or -1):
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        if job.errors:
            error = job.errors[min(job.errors)]
            job.errors = None
            try:
                raise error
            finally:
                del error  # its traceback knows this frame
        return job.value

    def follow(self, base):
        """What is submitted from here on is of another iteration."""

    def cancel(self, jobs):
        """Leaves out what is not begun yet of jobs that nobody waits for."""
        for job in jobs:
            job.is_dropped = True

    forget = cancel

    def close(self):
        try:
            while True:
                self.tasks.get_nowait()
        except queue.Empty:
            pass
        for _ in self.threads:
            self.tasks.put(None)

    def __del__(self):
        if hasattr(self, "threads"):
            self.close()


@atexit.register
def _end_all():
    """Lets threads come out of the data sets' code before the interpreter is taken down."""
    threads = []
    for pool in list(_open):
        pool.close()
        threads += pool.threads
    deadline = time.monotonic() + END_WAIT_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
