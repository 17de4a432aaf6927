# SPDX-License-Identifier: Apache-2.0
"""Tensors of devices, on their way into a checkpoint.

They are copied into pinned memory by a stream beside the caller's. It waits for what the caller had
begun when save() was called. The caller's stream waits for it: at once for what may be changed at
any time, and at the fence for what only an optimizer changes. No thread of the caller's waits; one
of a save's own does, and hands the memory on to the library when all has been copied.

Invariant: memory that is copied from is not written to, nor given to anybody else, before it has
been copied: a stream that would write waits, and the tensors are held.
"""

import threading

from stoker.torch import _dtypes

PIECE_BYTES = 64 << 20  # a power of two: torch rounds pinned memory up to one
ALIGN = 4096


class Arena:
    """Pinned memory that is used again by each save."""

    def __init__(self, device):
        self._device = device
        self._pieces = []
        self.reset()

    def reset(self):
        """All of it is free again."""
        self._next, self._used = 0, 0

    def take(self, n_bytes):
        """n_bytes of a piece, until reset(). The same calls after it give the same memory."""
        while self._next < len(self._pieces):
            start = self._used
            if start + n_bytes <= self._pieces[self._next].numel():
                self._used += -(-n_bytes // ALIGN) * ALIGN
                return self._pieces[self._next][start:start + n_bytes]
            if start == 0:  # an earlier save had smaller things there
                del self._pieces[self._next]
            else:
                self._next, self._used = self._next + 1, 0
        self._pieces.append(self._device.pinned(max(n_bytes, PIECE_BYTES)))
        return self.take(n_bytes)

    def trim(self):
        """Gives back what the last save had no use for."""
        del self._pieces[self._next + 1:]


class Capture:
    """The tensors of devices of one save. device: as _device.Cuda; arena: free."""

    def __init__(self, device, arena, is_stable):
        self._device, self._arena, self._is_stable = device, arena, is_stable
        self._copies = {}  # by device: [(target, source, is_stable)]
        self._marks = []  # (device, mark) behind all copies

    @property
    def is_empty(self):
        return not self._copies

    def holds(self, tensor):
        return self._device.holds(tensor)

    def take(self, tensor, n_bytes):
        """Memory of the host, as a buffer, where a tensor's bytes will be."""
        is_stable = self._is_stable(tensor.data_ptr(), n_bytes)
        source = tensor.detach().resolve_conj().resolve_neg().contiguous()
        room = self._arena.take(n_bytes)
        target = room.view(source.dtype).view(source.shape)
        self._copies.setdefault(tensor.device, []).append((target, source, is_stable))
        return _dtypes.memory_of(room, n_bytes)

    def begin(self):
        """Begins to copy, and lets the caller's streams go on behind what may change."""
        for device, copies in self._copies.items():
            self._device.follow(device)
            for target, source, is_stable in copies:
                if not is_stable:
                    self._device.copy(device, target, source)
            if not all(is_stable for _, _, is_stable in copies):
                self._device.hold_back(device, self._device.mark(device))
            for target, source, is_stable in copies:
                if is_stable:
                    self._device.copy(device, target, source)
            self._marks.append((device, self._device.mark(device)))

    def fence(self):
        """What the caller's streams are told from here on comes behind all copies."""
        for device, mark in self._marks:
            self._device.hold_back(device, mark)

    def finish(self):
        """Waits until all has been copied, and lets go of what was copied from."""
        for _, mark in self._marks:
            self._device.finish(mark)
        self._copies.clear()


class Handover:
    """A thread that waits for a capture and then begins the library's save."""

    def __init__(self, capture, save, decline):
        """save(): begins it. decline(error): it cannot be begun."""
        self._capture, self._save, self._decline, self.error = capture, save, decline, None
        # Not a daemon: a process that ends, ends with its last save begun.
        self._thread = threading.Thread(target=self._run, name="stoker-capture")
        self._thread.start()

    def _run(self):
        try:
            try:
                self._capture.finish()
            except BaseException as error:
                self._decline(error)
                raise
            self._save()
        except BaseException as error:  # told by the checkpointer's next call
            self.error = error
        finally:
            self._save = self._decline = None

    def join(self, timeout=None):
        """Whether it is done by then."""
        self._thread.join(timeout)
        return not self._thread.is_alive()
