# SPDX-License-Identifier: Apache-2.0
"""stoker.open(): file objects for whoever brings a format of their own."""

import builtins
import io
import os
import warnings

from stoker import _core

READ_BUFFER_BYTES = 1 << 20

_shared = None  # (process, engine): one for all files that are not given one


def shared_engine():
    """The process's own engine, started when it is first asked for."""
    global _shared
    if _shared is None or _shared[0] != os.getpid():
        _shared = (os.getpid(), _core.Engine())
    return _shared[1]


class Writer(io.RawIOBase):
    """A file that is there, whole and durable, when it is closed, and before that is not.

    An exception in a with block, discard(), or losing the last reference without close() leaves
    what was there before.
    """

    def __init__(self, path, engine=None):
        super().__init__()
        self._file = None
        self.name = os.fspath(path)
        self.mode = "wb"
        self._n_bytes = 0
        # What a link leads to is replaced, as by the built-in open, and not the link.
        self._file = _core.File(engine or shared_engine(), os.path.realpath(self.name))

    def writable(self):
        self._check()
        return True

    def write(self, data, /):
        self._check()
        n_bytes = self._file.write(data)
        self._n_bytes += n_bytes
        return n_bytes

    def tell(self):
        self._check()
        return self._n_bytes

    def flush(self):
        """Nothing: what has been written is under way or waits for more."""

    def close(self):
        """Makes the file durable and gives it its name. Raises what has gone wrong since."""
        file, self._file = self._file, None
        try:
            if file is not None:
                file.commit()
        finally:
            if file is not None:
                file.close()
            super().close()

    def discard(self):
        """Gives the file up; nothing is left of it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        super().close()

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self):
        # The base class's would close it, as if all had been written.
        if getattr(self, "_file", None) is not None:
            warnings.warn(f"{self.name!r} was not closed, so nothing of it is there",
                          ResourceWarning, source=self, stacklevel=2)
            self.discard()

    def _check(self):
        if self._file is None:
            raise ValueError("I/O operation on closed file")


def open(path, mode="rb", *, engine=None):
    """A file object: "wb" writes at the speed of the device, and the file is there, whole and
    durable, when it is closed; "rb" reads.

        with stoker.open("model.pt", "wb") as file:
            torch.save(model.state_dict(), file)

    Writing takes 32 MiB of memory, is from the beginning to the end (no seek), by one thread at a
    time, and replaces the file in one step when it is closed; an exception in the block leaves
    what was there. engine: a stoker.Engine to use; default: one that the process's files share.
    """
    if mode == "wb":
        return Writer(path, engine)
    if mode == "rb":
        return builtins.open(path, "rb", buffering=READ_BUFFER_BYTES)
    raise ValueError(f"mode is 'rb' or 'wb', not {mode!r}")
