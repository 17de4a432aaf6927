# SPDX-License-Identifier: Apache-2.0
"""State dicts as a text and tensors, without pickle.

The text is JSON. What JSON has stands for itself; a list of a letter and more is anything else:
["d", [[key, value], ...]] a dict, ["t", [...]] a tuple, ["T", name, dtype, device] a tensor, and so
on, as _ENCODE and _DECODE have them. Tensors that are one tensor are stored once, and are one
again when they are loaded.
"""

import collections
import pickle
import sys

import torch

from stoker.torch import _dtypes

FORM = "stoker.torch"  # the blob that the text is, and what says that there is one

_PLAIN = (type(None), bool, int, float, str)
_MAPPINGS = {dict: "d", collections.OrderedDict: "o", collections.Counter: "C"}
_SEQUENCES = {list: "l", tuple: "t", torch.Size: "s"}
_TENSORS = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)}


class Writer:
    """What a save consists of. stable(pointer, bytes): whether that memory waits for the fence."""

    def __init__(self, stable, may_pickle):
        self.tensors = {}  # name: (type, shape, buffer), as stoker.Checkpoints.save() takes them
        self.blobs = {FORM: b""}
        self.stable = set()
        self._is_stable, self._may_pickle = stable, may_pickle
        self._seen = {}  # by memory and shape: what stands for a tensor, and it: it must not move

    def encode(self, thing, path):
        """The text's form of a tree. path: of names and keys, for names and messages."""
        kind = type(thing)
        if kind in _PLAIN:
            return thing
        if kind in _TENSORS:
            return self._tensor(thing, path)
        if kind in _MAPPINGS:
            pairs = [[key if type(key) is str else self.encode(key, path + (key,)),
                      self.encode(value, path + (key,))] for key, value in thing.items()]
            # A module's state says in an attribute which versions its parts are of.
            extra = getattr(thing, "_metadata", None)
            if extra is not None:
                return [_MAPPINGS[kind], pairs, self.encode(extra, path + ("_metadata",))]
            return [_MAPPINGS[kind], pairs]
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], [self.encode(one, path + (at,))
                                       for at, one in enumerate(thing)]]
        return self._other(thing, path)

    def _other(self, thing, path):
        numpy = sys.modules.get("numpy")
        if isinstance(thing, (bytes, bytearray)):
            return ["B" if type(thing) is bytes else "b", self._blob(bytes(thing), path)]
        if isinstance(thing, complex) and type(thing) is complex:
            return ["c", thing.real, thing.imag]
        if isinstance(thing, torch.dtype):
            return ["dtype", str(thing)[len("torch."):]]
        if isinstance(thing, torch.device):
            return ["device", str(thing)]
        if numpy and isinstance(thing, (numpy.ndarray, numpy.generic)) and \
                not numpy.asarray(thing).dtype.hasobject and type(thing) is not numpy.void and \
                not numpy.asarray(thing).dtype.names:
            return self._array(thing, path)
        if self._may_pickle:
            return ["P", self._blob(pickle.dumps(thing), path)]
        raise TypeError(f"{show(path)} is a {kind_of(thing)}, which a checkpoint does not hold: it "
                        "takes tensors, NumPy arrays, numbers, strings, bytes, None, and lists, "
                        "tuples and dicts of these. Make it one of them, or give pickle=True here "
                        "and in load()")

    def _name(self, path, taken):
        name = ".".join(map(str, path))
        if name not in taken and name:
            return name
        number = 2
        while f"{name}#{number}" in taken:
            number += 1
        return f"{name}#{number}"

    def _blob(self, content, path):
        name = self._name(path, self.blobs)
        self.blobs[name] = content
        return name

    def _tensor(self, tensor, path):
        known = _dtypes.STORED.get(tensor.dtype)
        if known is None:
            if tensor.dtype != torch.complex128:
                raise TypeError(f"{show(path)} is a tensor of {tensor.dtype}, which a checkpoint "
                                "does not hold; save what it is made of")
            return ["Z", self._tensor(torch.view_as_real(tensor.detach().resolve_conj()), path)]
        if tensor.layout is not torch.strided or tensor.is_meta:
            raise TypeError(f"{show(path)} is a {'meta' if tensor.is_meta else tensor.layout} "
                            "tensor, which has no memory that could be saved as it is")
        pointer, shape = tensor.data_ptr(), tuple(tensor.shape)
        key = (pointer, shape, tensor.stride(), known, str(tensor.device)
               if not tensor.is_cpu else None)
        if pointer and key in self._seen:
            return self._seen[key][0]
        name = self._name(path, self.tensors)
        form = ["T", name, known[0]] if tensor.is_cpu else ["T", name, known[0], str(tensor.device)]
        self._add(name, tensor, known, shape)
        self._seen[key] = form, tensor
        return form

    def _add(self, name, tensor, known, shape):
        n_bytes = tensor.numel() * known[2]
        if n_bytes == 0:
            self.tensors[name] = (known[1], shape, b"")
            return
        own = tensor
        if not (tensor.is_cpu and tensor.is_contiguous()) or tensor.is_conj() or tensor.is_neg():
            own = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        # A copy that nobody else has is not changed by anybody.
        if own is not tensor and own.data_ptr() != tensor.data_ptr() or \
                self._is_stable(tensor.data_ptr(), n_bytes):
            self.stable.add(name)
        self.tensors[name] = (known[1], shape, _dtypes.memory_of(own, n_bytes))

    def _array(self, thing, path):
        numpy = sys.modules["numpy"]
        array = numpy.ascontiguousarray(thing).reshape(numpy.shape(thing))
        name = self._name(path, self.tensors)
        stored, shape = _dtypes.stored_array(array)
        content = array.reshape(-1).view("u1") if array.nbytes else b""
        self.tensors[name] = (stored, shape, content)
        is_scalar = isinstance(thing, numpy.generic)
        return ["N" if is_scalar else "A", name, array.dtype.str, list(array.shape)]


def kind_of(thing):
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def show(path):
    """A path as it would be written in Python."""
    return str(path[0]) + "".join(f"[{key!r}]" for key in path[1:])


class Reader:
    """Makes a tree of its form. view: a stoker.View; place(tensor, device): where it is put."""

    def __init__(self, view, place, may_unpickle):
        self._view, self._place, self._may_unpickle = view, place, may_unpickle
        self._stored = view.tensors()
        self._made = {}  # tensors and arrays by name

    def load(self, form):
        """Reads all tensors that a form names, at once, and makes the tree."""
        targets = {}
        self._collect(form, targets)
        self._view.load(targets)
        return self._decode(form)

    def _collect(self, form, targets):
        if type(form) is not list:
            return
        if form[0] == "T" and form[1] not in self._made:
            self._made[form[1]], targets[form[1]] = \
                _dtypes.empty(form[2], self._stored[form[1]][1])
        elif form[0] in "AN" and form[1] not in self._made:
            import numpy
            array = numpy.empty(form[3], form[2])
            self._made[form[1]] = array
            targets[form[1]] = memoryview(array.reshape(-1).view("u1")) if array.nbytes else \
                bytearray()
        elif form[0] in ("d", "o", "C"):
            for key, value in form[1]:
                self._collect(key, targets)
                self._collect(value, targets)
        elif form[0] in ("l", "t", "s"):
            for one in form[1]:
                self._collect(one, targets)
        elif form[0] == "Z":
            self._collect(form[1], targets)

    def _decode(self, form):
        if type(form) is not list:
            return form
        return _DECODE[form[0]](self, *form[1:])

    def _tensor(self, name, _dtype, device="cpu"):
        tensor = self._made[name]
        placed = self._place(tensor, device)
        self._made[name] = placed  # what is one tensor stays one
        return placed

    def _mapping(self, kind, pairs, extra):
        made = kind()
        for key, value in pairs:
            made[self._decode(key)] = self._decode(value)
        if extra is not None:
            made._metadata = self._decode(extra)
        return made

    def _sequence(self, kind, forms):
        return kind([self._decode(one) for one in forms])

    def _scalar(self, name, _dtype, _shape):
        return self._made[name][()]

    def _pickled(self, name):
        if not self._may_unpickle:
            raise TypeError(f"{name} was saved with pickle=True, and to load it runs whatever it "
                            "says; give load() pickle=True if you trust who wrote it")
        return pickle.loads(self._view.blob(name))


_DECODE = {
    "d": lambda self, pairs, extra=None: self._mapping(dict, pairs, extra),
    "o": lambda self, pairs, extra=None: self._mapping(collections.OrderedDict, pairs, extra),
    "C": lambda self, pairs, extra=None: self._mapping(collections.Counter, pairs, extra),
    "l": lambda self, forms: self._sequence(list, forms),
    "t": lambda self, forms: self._sequence(tuple, forms),
    "s": lambda self, forms: self._sequence(torch.Size, forms),
    "T": Reader._tensor,
    "Z": lambda self, form: torch.view_as_complex(self._decode(form)),
    "A": lambda self, name, _dtype, _shape: self._made[name],
    "N": Reader._scalar,
    "B": lambda self, name: self._view.blob(name),
    "b": lambda self, name: bytearray(self._view.blob(name)),
    "c": lambda self, real, imaginary: complex(real, imaginary),
    "dtype": lambda self, name: getattr(torch, name),
    "device": lambda self, name: torch.device(name),
    "P": Reader._pickled,
}
