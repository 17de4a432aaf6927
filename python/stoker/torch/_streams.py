# SPDX-License-Identifier: Apache-2.0
"""Supplies over the streams of _files.py: batches as they are, or decoded by threads.

Threads that decode take batches from the stream themselves, each its task and the batch that
belongs to it under one lock: so tasks and batches stay in step, and nobody stands between.
"""

import collections
import queue
import threading

from stoker.torch import _random, _threads
from stoker.torch._files import Listed


class _Pushed:
    """The batches of an iteration that a stream has been told of: all, or a window of ids."""

    def __init__(self, stream, indices):
        self.stream, self.indices = stream, indices
        self.is_listed = isinstance(stream, Listed)
        self.ready = collections.deque()
        self.has_ended, self.failure = False, None

    def fill(self, told, n_taken=0):
        """Takes ids ahead and tells them to told(ids); n_taken have been and are not out yet."""
        limit = self.indices.limit
        if limit is None:
            limit, n_taken = getattr(self.stream, "ahead", 0), 0
        while self.is_listed and len(self.ready) + n_taken < limit and not self.has_ended:
            try:
                ids = self.indices.take()
            except StopIteration:
                self.has_ended = True
                return
            except Exception as error:  # of the sampler: raised behind what it has given
                self.has_ended, self.failure = True, error
                return
            told(ids)
            self.ready.append(ids)

    def take(self):
        if not self.is_listed:
            return self.indices.take()
        if not self.ready:
            failure, self.failure = self.failure, None
            raise failure or StopIteration
        return self.ready.popleft()


class Direct:
    """Batches as the stream has them, without a copy while the stream can lend more."""

    is_broken = False

    def __init__(self, files, stream, collate, borrow_max):
        """collate: None for the data set's own."""
        self.files, self.stream, self.collate = files, stream, collate
        self.borrow_max = borrow_max

    def begin(self, indices, base, is_first, batch):
        self.indices, self.again = indices, None
        self.pushed = _Pushed(self.stream, indices)

    def prime(self):
        self.indices.prime()
        self._fill()

    def _fill(self):
        if self.pushed.is_listed:
            self.pushed.fill(self.stream.push)

    def next(self):
        value = self._next()
        if self.indices.limit != 1:
            self._fill()
        return value

    def _next(self):
        self._fill()
        place, self.again = self.again, None
        real = None
        if place is None:
            place = self.pushed.take()
            real = self.indices.hand_out(place)
        if real is not None:
            self.stream.rest()
            self.pushed.ready.clear()
            self.pushed.has_ended = False
            return self._read(real)
        try:
            batch = self.stream.take(place)
        except KeyboardInterrupt:
            self.again = place  # it is still to be taken
            raise
        return self._read(self.stream.ids(place)) if batch is None else self._make(batch)

    def _make(self, batch):
        if self.collate is not None:
            samples = self.files.samples(batch)
            batch.release()
            return self.collate(samples)
        is_last = self.stream.loader.borrowed >= self.borrow_max
        value = self.files.batch(batch, is_copied=is_last)
        if is_last:
            batch.release()
        return value

    def _read(self, ids):
        """Without the stream."""
        samples = [self.files[sample] for sample in ids]
        return (self.collate or self.files.collate)(samples)

    def rest(self):
        self.stream.rest()
        self.indices = self.pushed = None

    def close(self):
        self.stream.close()


class _Task:
    __slots__ = ("batch", "place", "base", "done", "value", "error", "is_dropped")

    def __init__(self, batch, place, base):
        self.batch, self.place, self.base = batch, place, base
        self.done = threading.Lock()
        self.done.acquire()
        self.value = self.error = None
        self.is_dropped = False


class _Shared:
    """What the threads know: no loader, no iteration."""

    def __init__(self, files, stream, collate):
        self.files, self.stream, self.collate = files, stream, collate
        self.turn = threading.Lock()
        self.tasks = collections.deque()
        self.tokens = queue.SimpleQueue()  # one for each task; nobody waits for one in its turn
        self.untold = collections.deque()  # ids that the stream is to be told of
        self.failure = None  # why it could not be: tasks and batches are out of step

    def put(self, task):
        self.tasks.append(task)
        self.tokens.put(True)

    def take(self):
        """The next task and its content: [(bytes, sample)]; None at the end."""
        if not self.tokens.get():
            self.tokens.put(False)  # for the others
            return None, None
        with self.turn:
            task = self.tasks.popleft()
            if task.is_dropped:
                return task, None
            try:
                self._tell()
                batch = self.stream.take(task.place)
                ids = self.stream.ids(task.place)
            except BaseException as error:
                task.error = error
                return task, None
        if batch is None:
            return task, [(self.files.read(sample)[0], sample) for sample in ids]
        return task, list(zip(batch.items, ids))


    def _tell(self):
        try:
            while self.untold:
                self.stream.push(self.untold.popleft())
        except BaseException as error:
            self.failure = error
        if self.failure is not None:
            raise self.failure


def _decode(shared):
    own = _random.ThreadGenerator()
    while True:
        task, content = shared.take()
        if task is None:
            return
        try:
            if content is not None:
                task.value = _decode_batch(shared, task, content, own)
        except BaseException as error:
            task.error = error
        task.done.release()
        del task, content


def _decode_batch(shared, task, content, own):
    samples = []
    for place, (item, sample) in enumerate(content):
        own.generator.manual_seed(_random.sample_seed(task.base, task.batch, place, sample))
        with own:
            samples.append(shared.files.decode(item, sample))
    return shared.collate(samples)


class Decoded:
    """Batches whose samples are decoded by threads, which read nothing themselves."""

    @property
    def is_broken(self):
        return self.shared.failure is not None

    def __init__(self, files, stream, collate, count, timeout):
        self.stream, self.timeout = stream, timeout
        self.depth = count + 2
        self.shared = _Shared(files, stream, collate)
        self.threads = [threading.Thread(target=_decode, args=(self.shared,), daemon=True,
                                         name=f"stoker-decode-{number}") for number in range(count)]
        for thread in self.threads:
            thread.start()
        self.tasks = collections.deque()
        _threads.end_at_exit(self)

    def begin(self, indices, base, is_first, batch):
        self.indices, self.base, self.batch = indices, base, batch
        self.pushed = _Pushed(self.stream, indices)
        self.is_handed_out = False

    def prime(self):
        self.indices.prime()
        self._fill()

    def _fill(self):
        self.pushed.fill(self.shared.untold.append, len(self.tasks))
        while len(self.tasks) < self.depth and (self.pushed.ready or not self.pushed.is_listed):
            try:
                place = self.pushed.take()
            except StopIteration:
                return
            task = _Task(self.batch, place, self.base)
            self.batch += 1
            self.tasks.append(task)
            self.shared.put(task)

    def next(self):
        if not self.tasks:
            self._fill()
        if not self.tasks:
            self.pushed.take()  # raises what the order has ended by
        task = self.tasks[0]
        if not self.is_handed_out:
            real = self.indices.hand_out(task.place)
            self.is_handed_out = True
            if real is not None:
                return self._redo(real)
        is_done = task.done.acquire(timeout=self.timeout or -1)
        self._advance()
        if not is_done:
            raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds")
        if task.error is not None:
            error, task.error = task.error, None
            try:
                raise error
            finally:
                del error
        return task.value

    def _advance(self):
        self.tasks.popleft()
        self.is_handed_out = False
        if self.indices.limit != 1:
            self._fill()

    def _redo(self, real):
        """The sampler has gone another way than was foreseen."""
        batch = self.tasks[0].batch
        self._drop()
        self.batch = batch + 1
        self.is_handed_out = self.pushed.has_ended = False
        if self.indices.limit != 1:
            self._fill()
        files = self.shared.files
        return self.shared.collate([files.decode(files.read(sample)[0], sample)
                                    for sample in real])

    def _drop(self):
        for task in self.tasks:
            task.is_dropped = True
        self.tasks.clear()
        with self.shared.turn:
            self.shared.untold.clear()
            self.stream.rest()
        self.pushed.ready.clear()

    def rest(self):
        self._drop()
        self.indices = self.pushed = None

    def close(self):
        for task in self.tasks:
            task.is_dropped = True
        self.shared.tokens.put(False)
        self.stream.close()  # a thread that waits in it comes out

    def __del__(self):
        if hasattr(self, "tasks"):
            self.close()
