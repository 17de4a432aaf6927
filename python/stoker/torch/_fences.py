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

from stoker.torch._shards import locals_of

_HAS_HOOKS = hasattr(torch.Tensor, "_post_accumulate_grad_hooks")  # since torch 2.1


def _steps_in_backward(parameter):
    """Whether its optimizer may step while gradients are made, before anybody calls step()."""
    return _HAS_HOOKS and bool(parameter._post_accumulate_grad_hooks) or \
        "_in_backward_optimizers" in parameter.__dict__


def _written_by(optimizer):
    """The tensors that nothing but its step() writes to: parameters, and what it keeps for them;
    of DTensors this rank's parts."""
    parameters = {id(parameter): parameter for group in optimizer.param_groups
                  for parameter in group["params"] if not _steps_in_backward(parameter)}
    tensors = list(parameters.values())
    for parameter, state in optimizer.state.items():
        if id(parameter) in parameters and isinstance(state, dict):
            tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return locals_of(tensors)


def _place(tensor):
    """(address, bytes) of what can be read where it lies or copied by a device, else None."""
    if (tensor.is_cpu or tensor.is_cuda) and tensor.layout is torch.strided:
        return tensor.data_ptr(), tensor.numel() * tensor.element_size()
    return None


class Stable:
    """The memory of optimizers: by address, how many bytes from there."""

    def __init__(self, optimizers):
        self.tensors = []
        for optimizer in optimizers:
            self.tensors += _written_by(optimizer)
        self.ids = list(map(id, self.tensors))

    def places(self, known):
        """Where the tensors are whose ids are not known: equal ones give equal answers."""
        if known.issuperset(self.ids):
            return []
        return [_place(tensor) for tensor in self.tensors if id(tensor) not in known]

    @functools.cached_property
    def bytes_at(self):
        return dict(filter(None, map(_place, self.tensors)))

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
