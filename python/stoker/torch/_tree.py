# SPDX-License-Identifier: Apache-2.0
"""State dicts as a text and tensors, without pickle.

The text is JSON. What JSON has stands for itself; a list of a letter and more is anything else:
["d", [[key, value], ...]] a dict, ["t", [...]] a tuple, ["T", name, dtype, device] a tensor, and so
on, as Writer and _DECODE have them. Tensors that are one tensor are stored once, and are one again
when they are loaded.

What is written is kept as nodes, so that a later save can tell what has not changed (_kept.py).
"""

import collections
import json
import pickle
import re
import sys

import torch

import stoker
from stoker.torch import _dtypes, _shards
from stoker.torch._ranks import ALL, FIRST, OWN

FORM = "stoker.torch"  # the blob that the text is, and what says that there is one

PLAIN = (type(None), bool, int, float, str)
MAPPINGS = {dict: "d", collections.OrderedDict: "o", collections.Counter: "C"}
SEQUENCES = {list: "l", tuple: "t", torch.Size: "s"}
_KEYS = {str, int, bool}
_TENSORS = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)}

_OWN_NAME = re.compile(r"@\d+(#\d+)?$")  # of what each rank has for itself

dumps = json.JSONEncoder(separators=(",", ":")).encode


class Node:
    """A place in a tree: the type of what was there, and the text that it is saved as.

    value   a plain thing itself; the name of a blob; of an array its name and type
    """

    __slots__ = ("kind", "text", "value")

    def __init__(self, kind, text, value=None):
        self.kind, self.text, self.value = kind, text, value


class Leaf(Node):
    """A tensor's place; one tensor may have several."""

    __slots__ = ()


class Once(Node):
    """Something that must be made anew in each save, with all of its part."""

    __slots__ = ()


class Group(Node):
    """What holds others.

    letter  in the text
    keys    of a mapping, their types and their texts
    nodes   what is held; then a mapping's attribute _metadata, if it has one
    is_of_leaves   nothing else is held
    """

    __slots__ = ("letter", "nodes", "is_of_leaves", "keys", "key_types", "key_texts")

    def __init__(self, kind, letter, nodes, keys=None, key_texts=None):
        super().__init__(kind, None)
        self.letter, self.nodes, self.keys, self.key_texts = letter, nodes, keys, key_texts
        self.key_types = None if keys is None else list(map(type, keys))
        self.is_of_leaves = all(type(node) is Leaf for node in nodes)
        self.compose()

    def compose(self):
        """The text from those of what it holds."""
        texts = [node.text for node in self.nodes]
        if self.keys is None:
            self.text = f'["{self.letter}",[{",".join(texts)}]]'
            return
        pairs = ",".join([f"[{key},{text}]" for key, text in zip(self.key_texts, texts)])
        extra = "," + texts[-1] if len(texts) > len(self.keys) else ""
        self.text = f'["{self.letter}",[{pairs}]{extra}]'


class Writer:
    """What a part of a save consists of, beside the parts before it.

    before     the parts that have been made
    is_stable  (pointer, bytes): whether that memory waits for the fence
    capture    a Capture, which takes the tensors of devices
    sharing    of ranks: a Sharing; None: this rank holds all
    """

    def __init__(self, before, is_stable, may_pickle, capture, sharing=None):
        self.tensors = {}  # name: (type, shape, buffer), as stoker.Checkpoints.save() takes them
        self.blobs = {}
        self.loose = {}  # the same as tensors, of what must be made again in each save
        self.stable = set()
        self.holdings = {}  # as stoker.Checkpoints.save() takes them
        self.absent = set()  # names of what other ranks give
        self.leaves = []  # tensors in the order of the walk; held, so that none ends meanwhile
        self.copied = []  # (name, place in leaves, bytes) of those that are copied on their way
        self.seen = {}  # by memory and shape: the text
        self._all_seen = [*(part.seen for part in before), self.seen]
        self._names = [self.tensors, self.loose, self.absent, *(part.names for part in before)]
        self._blob_names = [self.blobs, {FORM}, *(part.blob_names for part in before)]
        self._is_stable, self._may_pickle, self._capture = is_stable, may_pickle, capture
        self._sharing = sharing

    def encode(self, thing, path):
        """The node of a tree. path: of names and keys, for names and messages."""
        kind = type(thing)
        if kind in PLAIN:
            return Node(kind, dumps(thing), thing)
        if self._sharing is not None and _shards.is_sharded(thing):
            return self._sharded(thing, path)
        if kind in _TENSORS:
            return self._tensor(thing, path)
        if kind in MAPPINGS:
            return self._mapping(thing, path)
        if kind in SEQUENCES:
            return Group(kind, SEQUENCES[kind], [self.encode(one, path + (at,))
                                                 for at, one in enumerate(thing)])
        return self.other(thing, path)

    def _mapping(self, thing, path):
        kind, keys, nodes = type(thing), list(thing), []
        texts = [dumps(key) if type(key) is str else self.encode(key, path + (key,)).text
                 for key in keys]
        for key, value in thing.items():
            nodes.append(self.encode(value, path + (key,)))
        # A module's state says in an attribute which versions its parts are of.
        extra = None if kind is dict else getattr(thing, "_metadata", None)
        if extra is not None:
            nodes.append(self.encode(extra, path + ("_metadata",)))
        node = Group(kind, MAPPINGS[kind], nodes, keys, texts)
        # Of other keys it is not known whether equal ones have one text.
        return node if _KEYS.issuperset(node.key_types) else Once(kind, node.text)

    def other(self, thing, path):
        """What is neither plain nor holds others."""
        kind = type(thing)
        numpy = sys.modules.get("numpy")
        if isinstance(thing, (bytes, bytearray)):
            name = self._blob(bytes(thing), path)
            return Node(kind, dumps(["B" if kind is bytes else "b", name]), name)
        if kind is complex:
            return Once(kind, dumps(["c", thing.real, thing.imag]))
        if isinstance(thing, torch.dtype):
            return Node(kind, dumps(["dtype", str(thing)[len("torch."):]]), thing)
        if isinstance(thing, torch.device):
            return Node(kind, dumps(["device", str(thing)]), thing)
        if numpy and isinstance(thing, (numpy.ndarray, numpy.generic)) and \
                not numpy.asarray(thing).dtype.hasobject and kind is not numpy.void and \
                not numpy.asarray(thing).dtype.names:
            return self._array(thing, path)
        if kind.__name__ == "ShardedTensor":
            raise TypeError(f"{show(path)} is a ShardedTensor: give FullyShardedDataParallel a "
                            "device_mesh, so that its state is of DTensors, or save it by "
                            "stoker.torch.dcp")
        if self._may_pickle:
            return Once(kind, dumps(["P", self._blob(pickle.dumps(thing), path)]))
        raise TypeError(f"{show(path)} is a {kind_of(thing)}, which a checkpoint does not hold: it "
                        "takes tensors, NumPy arrays, numbers, strings, bytes, None, and lists, "
                        "tuples and dicts of these. Make it one of them, or give pickle=True here "
                        "and in load()")

    def _name(self, path, taken):
        base = name = ".".join(map(str, path))
        number = 1
        while not name or any(name in names for names in taken):
            number += 1
            name = f"{base}#{number}"
        return name

    def _blob(self, content, path):
        name = self._name(path, self._blob_names)
        self.blobs[name] = content
        return name

    def _tensor(self, tensor, path):
        known = _dtypes.STORED.get(tensor.dtype)
        if known is None:
            if tensor.dtype != torch.complex128:
                raise TypeError(f"{show(path)} is a tensor of {tensor.dtype}, which a checkpoint "
                                "does not hold; save what it is made of")
            inner = self._tensor(torch.view_as_real(tensor.detach().resolve_conj()), path)
            return Once(type(tensor), f'["Z",{inner.text}]')
        if tensor.layout is not torch.strided or tensor.is_meta:
            raise TypeError(f"{show(path)} is a {'meta' if tensor.is_meta else tensor.layout} "
                            "tensor, which has no memory that could be saved as it is")
        self.leaves.append(tensor)
        pointer, shape = tensor.data_ptr(), tuple(tensor.shape)
        key = (pointer, shape, tensor.stride(), known, tensor.is_conj(), tensor.is_neg(),
               None if tensor.is_cpu else str(tensor.device))
        if pointer:
            for seen in self._all_seen:
                if key in seen:
                    return Leaf(type(tensor), seen[key])
        name = self._share(path, tensor)
        form = ["T", name, known[0]] if tensor.is_cpu else ["T", name, known[0], str(tensor.device)]
        if name not in self.absent:
            self._add(name, tensor, known, shape)
        self.seen[key] = dumps(form)
        return Leaf(type(tensor), self.seen[key])

    def _share(self, path, tensor):
        """The name of a tensor that is not sharded; says who holds it."""
        sharing = self._sharing
        holder = ALL if sharing is None else sharing.holder(tensor, ".".join(map(str, path)))
        if holder == OWN:
            return self._own_name(path)
        name = self._name(path, self._names)
        if holder == FIRST and sharing.rank == 0:
            self.holdings[name] = stoker.Holding((0,))
        elif holder == FIRST:
            self.absent.add(name)
        return name

    def _own_name(self, path):
        """A name that no other rank gives to anything."""
        name = self._name(path[:-1] + (f"{path[-1]}@{self._sharing.rank}",), self._names)
        self.holdings[name] = stoker.Holding((self._sharing.rank,))
        return name

    def _sharded(self, tensor, path):
        """A DTensor, which is stored as the whole that the ranks' parts make."""
        part = _shards.local(tensor)
        known = _dtypes.STORED.get(part.dtype)
        if known is None:
            raise TypeError(f"{show(path)} is a DTensor of {part.dtype}, which a checkpoint does "
                            "not hold in shards")
        # Not by its memory, of which a rank's part may have none. A part that has one is made anew
        # in each save, so nothing that has ended is looked for.
        key = "sharded", id(tensor)
        for seen in self._all_seen:
            if key in seen:
                return Once(type(tensor), seen[key])
        name = self._name(path, self._names)
        holding = _shards.holding_of(tensor, show(path))
        if tensor.numel() == 0 and self._sharing.rank == 0:
            part = torch.empty(tensor.shape, dtype=part.dtype)
            holding = stoker.Holding((0,))
        elif tensor.numel() == 0:
            holding = None
        if holding is None:
            self.absent.add(name)
        else:
            self.leaves.append(part)
            self.holdings[name] = holding
            self._add(name, part, known, tuple(part.shape))
        form = ["T", name, known[0]] if part.is_cpu else ["T", name, known[0], str(part.device)]
        self.seen[key] = dumps(form)
        return Once(type(tensor), self.seen[key])

    def _add(self, name, tensor, known, shape):
        n_bytes = tensor.numel() * known[2]
        if n_bytes == 0:
            self.tensors[name] = (known[1], shape, b"")
            return
        memory, is_copy = memory_of(tensor, n_bytes, self._capture)
        # A copy that nobody else has is not changed by anybody.
        if is_copy or self._is_stable(tensor.data_ptr(), n_bytes):
            self.stable.add(name)
        if is_copy:
            self.copied.append((name, len(self.leaves) - 1, n_bytes))
        place = self.loose if is_copy else self.tensors
        place[name] = (known[1], shape, memory)

    def _array(self, thing, path):
        name = self._name(path, self._names) if self._sharing is None else self._own_name(path)
        self.loose[name] = stored_array(thing)
        letter = "N" if isinstance(thing, sys.modules["numpy"].generic) else "A"
        like = (thing.dtype.str, list(thing.shape))
        return Node(type(thing), dumps([letter, name, *like]), (name, like))


def memory_of(tensor, n_bytes, capture):
    """(memory of the host where a tensor's bytes are, or will be once it is captured; whether that
    is a copy)."""
    if capture.holds(tensor):
        return capture.take(tensor, n_bytes), True
    if tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return _dtypes.memory_of(tensor, n_bytes), False
    copied = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return _dtypes.memory_of(copied, n_bytes), copied.data_ptr() != tensor.data_ptr()


def stored_array(thing):
    """(type, shape, buffer) of a NumPy array or scalar."""
    numpy = sys.modules["numpy"]
    array = numpy.ascontiguousarray(thing).reshape(numpy.shape(thing))
    content = array.reshape(-1).view("u1") if array.nbytes else b""
    return (*_dtypes.stored_array(array), content)


def kind_of(thing):
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def show(path):
    """A path as it would be written in Python."""
    return str(path[0]) + "".join(f"[{key!r}]" for key in path[1:])


class Reader:
    """Makes a tree of its form.

    view      a stoker.View
    place     (tensor, device): where it is put
    rank      whose blobs
    likes     DTensors by the names of tensors, of which this rank's parts alone are read
    together  all ranks load this; what they all want is read by all of them together
    """

    def __init__(self, view, place, may_unpickle, rank=0, likes=None, together=False):
        self._view, self._place, self._may_unpickle = view, place, may_unpickle
        self._rank, self._likes, self._together = rank, likes or {}, together
        self._stored = view.tensors()
        self._made = {}  # tensors and arrays by name

    def load(self, form):
        """Reads all tensors that a form names, at once, and makes the tree."""
        targets = {}
        self._collect(form, targets)
        alike = {}
        if self._together:
            alike = {name: target for name, target in targets.items()
                     if type(target) is not tuple and not _OWN_NAME.search(name)}
            self._view.load(alike, together=True)
        self._view.load({name: target for name, target in targets.items() if name not in alike})
        return self._decode(form)

    def _collect_part(self, form, targets):
        """Of a DTensor. Returns whether that is what is loaded into."""
        like = self._likes.get(form[1])
        if like is None or self._stored[form[1]][1] != tuple(like.shape):
            return False
        start, shape = _shards.box_of(like)
        part, memory = _dtypes.empty(form[2], shape)
        if shape == tuple(like.shape):
            targets[form[1]] = memory
        elif part.numel() > 0:
            targets[form[1]] = (start, shape, memory)
        self._made[form[1]] = _shards.made_like(like, part)
        return True

    def _collect(self, form, targets):
        if type(form) is not list:
            return
        if form[0] == "T" and form[1] not in self._made:
            if not self._collect_part(form, targets):
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
        return pickle.loads(self.blob(name))

    def blob(self, name):
        return self._view.blob(name, rank=self._rank)


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
    "B": lambda self, name: self.blob(name),
    "b": lambda self, name: bytearray(self.blob(name)),
    "c": lambda self, real, imaginary: complex(real, imaginary),
    "dtype": lambda self, name: getattr(torch, name),
    "device": lambda self, name: torch.device(name),
    "P": Reader._pickled,
}
