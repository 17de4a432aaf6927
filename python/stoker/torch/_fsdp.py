# SPDX-License-Identifier: Apache-2.0
"""FSDP 1 (FullyShardedDataParallel), whose own state is pieces of flattened parameters: what is
saved and loaded instead is what torch makes of it, DTensors under the names of the whole model.

Making that is communication of all ranks, in save() and in load(), and copies this rank's part.
"""

import torch

from stoker.torch._arguments import VERSION

_MARK = "_fsdp_flattened"  # of every parameter that FSDP 1 has flattened, whatever it looks like


def _is_of_fsdp(parameter):
    return getattr(parameter, _MARK, False)


def _parameters(part):
    if isinstance(part, torch.nn.Module):
        return part.parameters()
    if isinstance(part, torch.optim.Optimizer):
        return (one for group in part.param_groups for one in group["params"])
    return ()


class Model:
    """A module's state_dict() and load_state_dict() as the whole model's."""

    def __init__(self, module):
        self._module = module

    def state_dict(self):
        from torch.distributed.checkpoint.state_dict import get_model_state_dict
        return get_model_state_dict(self._module)

    def load_state_dict(self, state, strict=True):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
        set_model_state_dict(self._module, state, options=StateDictOptions(strict=strict))


class Optimizer:
    """The same of its optimizer."""

    def __init__(self, module, optimizer):
        self._module, self._optimizer = module, optimizer

    def state_dict(self):
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
        return get_optimizer_state_dict(self._module, self._optimizer)

    def load_state_dict(self, state):
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict
        set_optimizer_state_dict(self._module, self._optimizer, state)


def _module_of(optimizer, parts, name):
    wanted = {id(one) for one in _parameters(optimizer)}
    for part in parts.values():
        if isinstance(part, torch.nn.Module) and \
                wanted.issuperset(id(one) for one in part.parameters() if _is_of_fsdp(one)) and \
                not wanted.isdisjoint(map(id, part.parameters())):
            return part
    raise TypeError(f"{name} is an optimizer of a FullyShardedDataParallel's parameters, whose "
                    "state is pieces of flattened ones: give that module beside it")


def wholes(parts, is_aware):
    """parts, those of FSDP 1 as objects whose states are the whole model's, in shards."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return parts
    found = [name for name, part in parts.items() if any(map(_is_of_fsdp, _parameters(part)))]
    if not found:
        return parts
    if not is_aware or VERSION < (2, 6):
        what = f"torch {torch.__version__} gives no DTensors of" if is_aware else \
            "without torch.distributed, or with alone=True, no rank has the whole of"
        raise TypeError(f"{found[0]} is of a FullyShardedDataParallel: {what} its parameters")
    made = dict(parts)
    for name in found:
        part = parts[name]
        made[name] = Model(part) if isinstance(part, torch.nn.Module) else \
            Optimizer(_module_of(part, parts, name), part)
    return made
