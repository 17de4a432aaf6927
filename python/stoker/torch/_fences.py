# SPDX-License-Identifier: Apache-2.0
"""What only an optimizer writes, and the fence before it does.

Memory is stable until the fence if it is that of a parameter of an optimizer that is saved, or of
its state: nothing but its step() writes there, and step() fences first. It is known by its address,
so a copy such as a moving average has none of it, whatever it is called.
"""

import functools
import types
import weakref

import torch


def _steps_in_backward(parameter):
    """Whether its optimizer may step while gradients are made, before anybody calls step()."""
    return bool(getattr(parameter, "_post_accumulate_grad_hooks", None)) or \
        hasattr(parameter, "_in_backward_optimizers")


class Stable:
    """The memory of optimizers: by address, how many bytes from there."""

    def __init__(self, optimizers):
        self.bytes_at = {}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if not _steps_in_backward(parameter):
                        self._add(parameter)
                        self._add_tree(optimizer.state.get(parameter))

    def _add(self, tensor):
        if tensor.is_cpu and tensor.layout is torch.strided:
            self.bytes_at[tensor.data_ptr()] = tensor.numel() * tensor.element_size()

    def _add_tree(self, state):
        if isinstance(state, dict):
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self._add(value)

    def __call__(self, pointer, n_bytes):
        return self.bytes_at.get(pointer, 0) >= n_bytes


class Fences:
    """Has optimizers call a function before they step, from now on until end()."""

    def __init__(self, fence):
        # Not the checkpointer itself: an optimizer that is kept would keep it.
        self._fence = weakref.WeakMethod(fence)
        self._hooked = weakref.WeakKeyDictionary()

    def add(self, optimizer):
        if optimizer in self._hooked:
            return
        fence = self._fence

        def before(*_):
            call = fence()
            if call is not None:
                call()

        if hasattr(optimizer, "register_step_pre_hook"):  # since torch 2.0
            self._hooked[optimizer] = optimizer.register_step_pre_hook(before).remove
        else:
            self._hooked[optimizer] = _wrap(optimizer, before)

    def end(self):
        for remove in list(self._hooked.values()):
            remove()
        self._hooked.clear()


def _wrap(optimizer, before):
    """Replaces the object's step by one that calls before() first. A bound method, and with the
    marks of the old one: schedulers look for both."""
    inner = optimizer.step.__func__ if hasattr(optimizer.step, "__func__") else \
        (lambda _self, *args, step=optimizer.step, **kwargs: step(*args, **kwargs))
    is_ended = []

    @functools.wraps(optimizer.step)
    def step(self, *args, **kwargs):
        if not is_ended:
            before()
        return inner(self, *args, **kwargs)

    optimizer.step = types.MethodType(step, optimizer)
    return lambda: is_ended.append(True)
