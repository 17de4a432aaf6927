# SPDX-License-Identifier: Apache-2.0
"""DTensors (fully_shard(), tensor parallelism): which box of the whole this rank has, and who else
has the same one; and new ones of the same placement, as they are loaded."""

import sys

import torch

import stoker


def _kind():
    """DTensor, looked for where somebody has imported it."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())


def is_sharded(thing):
    """Whether it is a DTensor."""
    return isinstance(thing, _kind())


def local(tensor):
    """This rank's part, the same object each time; a plain tensor itself."""
    return tensor._local_tensor if is_sharded(tensor) else tensor


def locals_of(tensors):
    """The same of many."""
    kind = _kind()
    return [one._local_tensor if isinstance(one, kind) else one for one in tensors]


def _is_replicate(placement, path):
    from torch.distributed.tensor import Replicate, Shard
    if type(placement) not in (Replicate, Shard):
        raise TypeError(f"{path} is a DTensor placed as {placement}, of which a rank's part is not "
                        "one box of the whole; stoker.torch.dcp saves it")
    return type(placement) is Replicate


def holding_of(tensor, path):
    """The stoker.Holding of this rank's part; None where it has none to give."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    mesh = tensor.device_mesh
    place = mesh.get_coordinate()
    replicated = [_is_replicate(placement, path) for placement in tensor.placements]
    if place is None:
        return None
    alike = tuple(slice(None) if is_replicate else at
                  for is_replicate, at in zip(replicated, place))
    ranks = sorted(mesh.mesh[alike].flatten().tolist())
    if all(replicated):
        return stoker.Holding(ranks)
    shape, start = compute_local_shape_and_global_offset(tensor.shape, mesh, tensor.placements)
    if 0 in shape:
        return None
    return stoker.Holding(ranks, tuple(tensor.shape), tuple(start))


def box_of(like):
    """(start, shape) of this rank's part of a DTensor."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    shape, start = compute_local_shape_and_global_offset(like.shape, like.device_mesh,
                                                         like.placements)
    return tuple(start), tuple(shape)


def made_like(like, part):
    """A DTensor placed as another one, of this rank's part."""
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(part.to(local(like).device), like.device_mesh, like.placements,
                              run_check=False, shape=like.shape, stride=like.stride())


# ---- what is loaded into ---------------------------------------------------------------


def likes_of(form, part):
    """The DTensors that the tensors of a form are loaded into, by the names that they are stored
    with."""
    likes = {}
    if isinstance(part, torch.nn.Module):
        _match(form, part.state_dict(keep_vars=True), likes)
    elif isinstance(part, torch.optim.Optimizer):
        parameters = [parameter for group in part.param_groups for parameter in group["params"]]
        for key, state in _pairs(dict(_pairs(form)).get("state")):
            if type(key) is int and key < len(parameters) and is_sharded(parameters[key]):
                for _, one in _pairs(state):
                    if type(one) is list and one[0] == "T":
                        likes[one[1]] = parameters[key]
    elif callable(getattr(part, "load_state_dict", None)):
        _match(form, getattr(part, "state_dict", dict)(), likes)
    return likes


def _pairs(form):
    if type(form) is not list or form[0] not in ("d", "o"):
        return []
    return [pair for pair in form[1] if type(pair[0]) is not list]


def _match(form, state, likes):
    for key, one in _pairs(form):
        inner = state.get(key)
        if is_sharded(inner) and type(one) is list and one[0] == "T":
            likes[one[1]] = inner
        elif isinstance(inner, dict):
            _match(one, inner, likes)
