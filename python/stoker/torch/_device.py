# SPDX-License-Identifier: Apache-2.0
"""What is asked of torch.cuda while a checkpoint is taken, and nothing else of it.

A device has streams: the caller's, which is whatever is current when it is asked for, and one of
its own that copies into pinned memory. All that waits here is a stream, but in finish().
"""

import torch


class Cuda:
    """The GPUs of this process."""

    def __init__(self):
        self._own = {}  # a copying stream by device

    def holds(self, tensor):
        """Whether a tensor's memory is a device's."""
        return tensor.is_cuda

    def pinned(self, n_bytes):
        """Memory of the host that a device copies into on its own."""
        return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)

    def follow(self, device):
        """Has the copying stream wait for what the caller's has been told so far."""
        if device not in self._own:
            self._own[device] = torch.cuda.Stream(device)
        self._own[device].wait_stream(torch.cuda.current_stream(device))

    def copy(self, device, target, source):
        """Has the copying stream copy a tensor to memory of pinned()."""
        with torch.cuda.stream(self._own[device]):
            target.copy_(source, non_blocking=True)

    def mark(self, device):
        """The place in the copying stream behind all that it has been told so far."""
        event = torch.cuda.Event()
        event.record(self._own[device])
        return event

    def hold_back(self, device, mark):
        """Has the caller's stream wait until the copying one is at a mark."""
        torch.cuda.current_stream(device).wait_event(mark)

    def finish(self, mark):
        """Waits until the copying stream is at a mark; other threads run meanwhile."""
        mark.synchronize()
