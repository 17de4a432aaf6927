# SPDX-License-Identifier: Apache-2.0
"""Where an iteration's batches come from. Each supply is used by one iteration at a time:

begin() starts one, prime() draws and fetches what torch would by then, next() gives a batch or
raises StopIteration, rest() gives up what is left of it. One that is_broken is not used again.
"""

import collections


class Inline:
    """Fetches a batch in the caller's thread when it is asked for, as torch without workers."""

    is_broken = False

    def __init__(self, fetch):
        self.fetch = fetch

    def begin(self, indices, base, is_first, batch):
        self.indices = indices

    def prime(self):
        self.indices.prime()

    def next(self):
        index = self.indices.take()
        real = self.indices.hand_out(index)
        return self.fetch(index if real is None else real)

    def rest(self):
        self.indices = None

    def close(self):
        """Holds nothing."""


class Window:
    """Fetches ahead with threads or processes, at most as many batches as those take."""

    def __init__(self, workers, timeout):
        self.workers = workers
        self.timeout = timeout
        self.jobs = collections.deque()  # (index, job) in the order of the batches

    def begin(self, indices, base, is_first, batch):
        self.indices, self.base, self.batch = indices, base, batch
        self.has_ended, self.failure = False, None
        self.is_handed_out = False  # the order has been told that the first job is asked for
        self.workers.begin(base, is_first)

    def prime(self):
        self.indices.prime()
        self._fill()

    def _fill(self):
        limit = self.indices.limit
        depth = self.workers.depth if limit is None else limit
        while len(self.jobs) < depth and not self.has_ended:
            try:
                index = self.indices.take()
            except StopIteration:
                self.has_ended = True
                return
            except Exception as error:  # of the sampler: raised behind what it has given
                self.has_ended, self.failure = True, error
                return
            self.jobs.append((index, self.workers.submit(self.batch, index, self.base)))
            self.batch += 1

    def _redo(self, real):
        """The sampler has gone another way than was foreseen: begins again from there."""
        self.workers.cancel([job for _, job in self.jobs])
        self.batch -= len(self.jobs)
        self.jobs.clear()
        self.has_ended = False
        self.jobs.append((real, self.workers.submit(self.batch, real, self.base)))
        self.batch += 1

    def next(self):
        if not self.jobs:
            self._fill()
        if not self.jobs:
            failure, self.failure = self.failure, None
            raise failure or StopIteration
        if not self.is_handed_out:
            real = self.indices.hand_out(self.jobs[0][0])
            self.is_handed_out = True
            if real is not None:
                self._redo(real)
        try:
            value = self.workers.result(self.jobs[0][1], self.timeout)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._advance()
            raise
        self._advance()
        return value

    def _advance(self):
        self.jobs.popleft()
        self.is_handed_out = False
        if self.indices.limit != 1:  # one alone is drawn when it is asked for
            self._fill()

    @property
    def is_broken(self):
        return self.workers.is_broken

    def rest(self):
        self.workers.cancel([job for _, job in self.jobs])
        self.jobs.clear()
        self.indices = None

    def close(self):
        self.rest()
        self.workers.close()
