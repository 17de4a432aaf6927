# SPDX-License-Identifier: Apache-2.0
"""Supplies over the streams of _files.py: batches as they are, or decoded by threads.

Threads that decode take batches from the stream themselves, each its task and the batch that
belongs to it under one lock: so tasks and batches stay in step, and nobody stands between.
"""

import collections
import queue
import threading

from stoker.torch import _decoders, _threads
from stoker.torch._files import Listed, Pushed
from stoker.torch._foresight import Ahead


def _forget(items):
    for pushed in items:
        pushed.is_wanted = False


class _Places:
    """The places of an iteration in a stream: all, or a window of ids that the stream is told of,
    and of those of the next iteration where that is foreseen."""

    def __init__(self, stream, told):
        """told(pushed): has the stream told of ids."""
        self.stream, self.told = stream, told
        self.is_listed = isinstance(stream, Listed)
        self.ahead = Ahead(_forget)
        self.ready = self.ahead.ready

    def _push(self, ids, _number, _foresight):
        pushed = Pushed(ids)
        self.told(pushed)
        return pushed

    def begin(self, indices, foresee, first):
        self.indices = indices
        self.ahead.begin(indices, foresee if self.is_listed else None, first)

    def fill(self, n_taken=0):
        """Takes ids ahead; n_taken have been and are not out yet."""
        if self.is_listed:
            limit = self.indices.limit
            self.ahead.fill(self.stream.ahead if limit is None else limit - n_taken, self._push)

    def take(self):
        if not self.is_listed:
            return self.indices.take()
        if not self.ready:
            self.ahead.end()
        return self.ready.popleft()[1]

    def give_up(self):
        """The order has gone another way than was foreseen: what was told is not wanted."""
        _forget([pushed for _, pushed in self.ready])
        self.ahead.restart()

    def rest(self, is_broken_off):
        """is_broken_off: there is more of the iteration than is in here."""
        _forget([pushed for _, pushed in self.ready])
        if is_broken_off:
            self.ahead.give_up()
        self.ahead.rest()


class Direct:
    """Batches as the stream has them, without a copy while the stream can lend more."""

    is_broken = False

    def __init__(self, files, stream, collate, borrow_max):
        """collate: None for the data set's own."""
        self.files, self.stream, self.collate = files, stream, collate
        self.borrow_max = borrow_max
        self.places = _Places(stream, stream.push if isinstance(stream, Listed) else None)

    def begin(self, indices, base, is_first, batch, foresee=None):
        self.indices, self.again = indices, None
        self.places.begin(indices, foresee, batch)

    def prime(self):
        self.indices.prime()
        self.places.fill()

    def next(self):
        value = self._next()
        if self.indices.limit != 1:
            self.places.fill()
        return value

    def _next(self):
        self.places.fill()
        place, self.again = self.again, None
        real = None
        if place is None:
            place = self.places.take()
            real = self.indices.hand_out(place)
        if real is not None:
            self.places.give_up()
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
        self.places.rest(is_broken_off=self.again is not None)
        self.indices = None

    def close(self):
        self.stream.close()


class _Task:
    __slots__ = ("batch", "place", "base", "setup", "done", "value", "error", "is_dropped")

    def __init__(self, batch, place, base, setup):
        self.batch, self.place, self.base, self.setup = batch, place, base, setup
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
            try:
                self._tell()
                if task.is_dropped:
                    return task, None
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


def _decode(shared, decode):
    while True:
        task, content = shared.take()
        if task is None:
            return
        try:
            if content is not None:
                task.value = decode(content, task.base, task.batch, task.setup)
        except BaseException as error:
            task.error = error
            if isinstance(error, _decoders.Ended):
                shared.failure = error
        task.done.release()
        del task, content


class Decoded:
    """Batches whose samples are decoded by threads, which read nothing themselves, or by a process
    for each of them."""

    @property
    def is_broken(self):
        return self.shared.failure is not None

    def __init__(self, files, stream, collate, count, timeout, team=None, init=None):
        """team: None, or count processes; init: their worker_init_fn."""
        self.stream, self.timeout = stream, timeout
        self.depth = count + 2
        self.shared = _Shared(files, stream, collate)
        self.team, self.init, self.setup = team, init, None
        self.threads = [threading.Thread(target=_decode, args=(self.shared, self._decoder(number)),
                                         daemon=True, name=f"stoker-decode-{number}")
                        for number in range(count)]
        for thread in self.threads:
            thread.start()
        self.tasks = collections.deque()
        self.places = _Places(stream, self.shared.untold.append)
        _threads.end_at_exit(self)

    def _decoder(self, number):
        if self.team is None:
            return _decoders.Here(self.shared.files, self.shared.collate)
        return _decoders.Elsewhere(self.shared.files, self.team.sockets[number], number,
                                   len(self.team.sockets))

    def begin(self, indices, base, is_first, batch, foresee=None):
        self.indices, self.base, self.batch = indices, base, batch
        self.places.begin(indices, foresee, batch)
        self.is_handed_out = False
        if self.team is not None:  # the data set may have other transforms by now
            setup = _decoders.pack(self.shared.files, self.shared.collate, self.init)
            if setup != self.setup:
                self.setup = setup

    def prime(self):
        self.indices.prime()
        self._fill()

    def _fill(self):
        self.places.fill(len(self.tasks))
        while len(self.tasks) < self.depth and (self.places.ready or not self.places.is_listed):
            try:
                place = self.places.take()
            except StopIteration:
                return
            task = _Task(self.batch, place, self.base, self.setup)
            self.batch += 1
            self.tasks.append(task)
            self.shared.put(task)
        if self.places.ahead.foreseen and self.shared.untold and not self.places.ready:
            # It has no task yet that would have the stream told.
            task = _Task(self.batch, None, self.base, self.setup)
            task.is_dropped = True
            self.shared.put(task)

    def next(self):
        if not self.tasks:
            self._fill()
        if not self.tasks:
            self.places.take()  # raises what the order has ended by
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
        self.places.give_up()
        self.batch = batch + 1
        self.is_handed_out = False
        if self.indices.limit != 1:
            self._fill()
        files = self.shared.files
        return self.shared.collate([files.decode(files.read(sample)[0], sample)
                                    for sample in real])

    def _drop(self):
        for task in self.tasks:
            task.is_dropped = True
        with self.shared.turn:  # a thread that has begun to take one takes it as it was told
            for task in self.tasks:
                if isinstance(task.place, Pushed):
                    task.place.is_wanted = False
        self.tasks.clear()

    def rest(self):
        self.places.rest(is_broken_off=bool(self.tasks))
        self._drop()
        self.indices = None

    def close(self):
        for task in self.tasks:
            task.is_dropped = True
        self.shared.tokens.put(False)
        self.stream.close()  # a thread that waits in it comes out
        if self.team is not None:
            self.team.close()

    def __del__(self):
        if hasattr(self, "tasks"):
            self.close()
