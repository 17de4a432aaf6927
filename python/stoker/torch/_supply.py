# SPDX-License-Identifier: Apache-2.0
"""Where an iteration's batches come from. Each supply is used by one iteration at a time:

begin() starts one, prime() draws and fetches what torch would by then, next() gives a batch or
raises StopIteration, rest() gives up what is left of it. One that is_broken is not used again.
"""

from stoker.torch._foresight import Ahead


class Inline:
    """Fetches a batch in the caller's thread when it is asked for, as torch without workers."""

    is_broken = False

    def __init__(self, fetch):
        self.fetch = fetch

    def begin(self, indices, base, is_first, batch, foresee=None):
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
        self.ahead = Ahead(workers.forget)
        self.jobs = self.ahead.ready  # (index, job) in the order of the batches

    def begin(self, indices, base, is_first, batch, foresee=None):
        """foresee: None, or asked for a Foresight when the order has ended; it may have none."""
        self.base = base
        self.is_handed_out = False  # the order has been told that the first job is asked for
        self.follows = None  # the base that the workers have been told of beyond this iteration
        if not self.ahead.begin(indices, foresee, batch, base):
            self.workers.begin(base, is_first)

    def prime(self):
        self.ahead.indices.prime()
        self._fill()

    def _submit(self, index, batch, foresight):
        base = self.base if foresight is None else foresight.base
        if foresight is not None and self.follows is None:
            self.follows = base
            self.workers.follow(base)
        return self.workers.submit(batch, index, base)

    def _fill(self):
        limit = self.ahead.indices.limit
        self.ahead.fill(self.workers.depth if limit is None else limit, self._submit)

    def _redo(self, real):
        """The sampler has gone another way than was foreseen: begins again from there."""
        self.workers.cancel([job for _, job in self.jobs])
        if self.follows is not None:
            self.follows = None
            self.workers.follow(self.base)
        self.ahead.restart()
        self.ahead.add(real, self._submit)

    def next(self):
        if not self.jobs:
            self._fill()
        if not self.jobs:
            self.ahead.end()
        if not self.is_handed_out:
            real = self.ahead.indices.hand_out(self.jobs[0][0])
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
        if self.ahead.indices.limit != 1:  # one alone is drawn when it is asked for
            self._fill()

    @property
    def is_broken(self):
        return self.workers.is_broken

    def rest(self):
        self.workers.cancel([job for _, job in self.jobs])
        self.ahead.rest()

    def close(self):
        self.rest()
        self.ahead.give_up()
        self.workers.close()
