# SPDX-License-Identifier: Apache-2.0
"""What a save has in common with the one before, recognised and not made again.

From save to save mostly nothing changes but what is in the memory of tensors, and a few numbers. So
each part's nodes are walked beside its new tree. Where the tree has the same keys and types, and
the very same tensors with the same memory, only the texts of numbers are made again; else the part
is made anew, and with it those behind it, whose names and shared tensors depend on it.

Invariant: what is saved is what a Kept that knows nothing would save.

A tensor is known by its identity for as long as it lives: it is referred to weakly, and when it
ends its part is forgotten. What is kept of it is its memory, until then or until it has other
memory at the next save.
"""

import operator
import weakref

import torch

import stoker
from stoker.torch import _dtypes
from stoker.torch._tree import MAPPINGS, PLAIN, Group, Leaf, Once, Writer, dumps, memory_of, \
    stored_array

# What .data = and what changes a tensor's shape in place may change of one that stays the same
# object. What is read where it lies is contiguous, so that its strides follow from its shape; it is
# kept, so that its address says its device; and only complex ones are ever to be conjugated.
_LOOKS = (torch.Tensor.data_ptr, operator.attrgetter("shape"), operator.attrgetter("dtype"),
          torch.Tensor.is_contiguous, torch.Tensor.is_neg)


def _look_at(leaves, places_of_copied):
    looks = [list(map(look, leaves)) for look in _LOOKS]
    looks.append([leaves[place].device for place in places_of_copied])
    if any([dtype.is_complex for dtype in set(looks[2])]):
        looks.append([leaf.is_conj() for leaf in leaves])
    return looks


COPIED_MAX = 64 << 10  # bytes of a tensor that is copied rather than waited for


class _Changed(Exception):
    """A part is not what it was."""


class _Part:
    """A part as it was saved last."""

    def __init__(self, name, node, writer, sharing):
        self.name, self.node, self.sharing = name, node, sharing
        self.holdings = writer.holdings
        self.seen, self.copied = writer.seen, writer.copied
        self.names = {*writer.tensors, *writer.loose, *writer.absent}
        self.blob_names = set(writer.blobs)
        self.tensors = stoker.Tensors(writer.tensors, stable=writer.stable)
        self.buffers, self.stable, self.large = writer.tensors, writer.stable, None
        self.ids = list(map(id, writer.leaves))
        self.known = set(self.ids)
        self.places = [place for _, place, _ in writer.copied]
        self.looks = _look_at(writer.leaves, self.places)
        own = weakref.ref(self)

        def forget(_):
            part = own()
            if part is not None:
                part.ids = part.tensors = part.buffers = part.large = None

        self.lives = [weakref.ref(leaf, forget) for leaf in writer.leaves]

    def is_of(self, leaves):
        return self.ids == list(map(id, leaves)) and \
            self.looks == _look_at(leaves, self.places)


    def apart(self):
        """(what is to be copied now, a stoker.Tensors of what waits for the fence)."""
        is_large = {name: name in self.stable and content and len(content) > COPIED_MAX
                    for name, (_, _, content) in self.buffers.items()}
        if self.large is None:
            self.large = stoker.Tensors({name: given for name, given in self.buffers.items()
                                         if is_large[name]}, stable=True)
        return {name: given for name, given in self.buffers.items() if not is_large[name]}, \
            self.large


class _Walk:
    """A part's nodes beside its new tree; has what a Writer has of it."""

    def __init__(self, capture):
        self.leaves, self.blobs, self.loose = [], {}, {}
        self._capture = capture

    def is_along(self, part, thing):
        """Whether the part is what it was, its texts renewed."""
        try:
            self._renew(part.node, thing)
        except _Changed:
            return False
        if not part.is_of(self.leaves):
            return False
        for name, place, n_bytes in part.copied:
            leaf = self.leaves[place]
            memory, _ = memory_of(leaf, n_bytes, self._capture)
            self.loose[name] = (_dtypes.STORED[leaf.dtype][1], tuple(leaf.shape), memory)
        return True

    def _renew(self, node, thing):
        """Renews the texts of plain things; returns whether any has changed."""
        kind = type(thing)
        if kind is not node.kind or type(node) is Once:
            raise _Changed
        if type(node) is Group:
            return self._renew_group(node, thing, kind)
        if type(node) is Leaf:
            self.leaves.append(thing)
        elif kind in PLAIN:
            before, node.value, node.text = node.text, thing, dumps(thing)
            return node.text != before
        elif kind in (bytes, bytearray):
            self.blobs[node.value] = bytes(thing)
        elif kind in (torch.dtype, torch.device):
            if thing != node.value:
                raise _Changed
        else:
            self._array(node, thing)
        return False

    def _renew_group(self, node, thing, kind):
        values = thing
        if kind in MAPPINGS:
            if list(thing) != node.keys or list(map(type, thing)) != node.key_types:
                raise _Changed
            values = thing.values()
            extra = None if kind is dict else getattr(thing, "_metadata", None)
            if extra is not None:
                values = [*values, extra]
        if len(values) != len(node.nodes):
            raise _Changed
        if node.is_of_leaves:
            self.leaves += values
            return False
        has_changed = False
        for inner, value in zip(node.nodes, values):
            if type(inner) is Leaf:
                self.leaves.append(value)  # its identity says the rest
            elif (value is not inner.value or type(value) is not inner.kind) and \
                    self._renew(inner, value):
                has_changed = True
        if has_changed:
            node.compose()
        return has_changed

    def _array(self, node, thing):
        name, like = node.value
        if (thing.dtype.str, list(thing.shape)) != like:
            raise _Changed
        self.loose[name] = stored_array(thing)


class Made:
    """A save: texts of parts, and what stoker.Checkpoints.save() takes."""

    def __init__(self):
        self.texts, self.blobs, self.holdings = {}, {}, {}
        self.loose = {}  # tensors that are of this save alone
        self.stable = set()  # those of them that nobody changes
        self.tensors = (self.loose,)
        self.leaves = []  # so that none ends, and another begins in its place, meanwhile
        self._parts = []

    def add(self, part, source):
        """source: the Writer or the Walk that has seen it."""
        self.texts[part.name] = part.node.text
        self.tensors += part.tensors,
        self.loose.update(source.loose)
        self.stable.update([name for name, _, _ in part.copied])
        self.blobs.update(source.blobs)
        self.holdings.update(part.holdings)
        self.leaves.append(source.leaves)
        self._parts.append(part)

    def detach(self):
        """Copies what may change before the fence: the save is begun later. Returns whether there
        is more, which the fence has to wait for."""
        tensors, changing = [self.loose], {}
        for name, given in self.loose.items():
            if name not in self.stable:
                changing[name] = given
        for part in self._parts:
            small, large = part.apart()
            changing.update(small)
            if len(large) > 0:
                tensors.append(large)
        for name, (kind, shape, content) in changing.items():
            self.loose[name] = (kind, shape, bytes(content))
        self.stable.update(changing)
        self.tensors = tuple(tensors)
        return len(tensors) > 1


class Kept:
    """The parts of the last save."""

    def __init__(self):
        self.clear()

    def clear(self):
        self._parts, self._known = [], set()
        self._is_stable_by = self._may_pickle = None

    def make(self, states, is_stable, may_pickle, capture, sharings=None):
        """A save of states by name; is_stable: a Stable; capture: a Capture, not begun; sharings:
        of ranks, a Sharing for each name."""
        sharings = sharings or {}
        walks = []
        # Of the tensors of parts that have not changed it is known that they are where they were.
        if self._is_stable_by == (is_stable.ids, is_stable.places(self._known)) and \
                self._may_pickle == may_pickle:
            walks = self._walk(states, capture, sharings)
            if any(not part.known.isdisjoint(is_stable.ids) for part in self._parts[len(walks):]):
                walks = []
        parts = self._parts[:len(walks)]
        known, is_stable_by = self._known, self._is_stable_by
        is_same = len(parts) == len(self._parts) == len(states)
        self.clear()  # until all is well
        made = Made()
        for part, walk in zip(parts, walks):
            made.add(part, walk)
        for name, state in list(states.items())[len(parts):]:
            writer = Writer(parts, is_stable, may_pickle, capture, sharings.get(name))
            part = _Part(name, writer.encode(state, (name,)), writer, sharings.get(name))
            made.add(part, writer)
            parts.append(part)
        self._parts, self._may_pickle = parts, may_pickle
        if not is_same:
            known = set().union(*(part.known for part in parts))
            is_stable_by = is_stable.ids, is_stable.places(known)
        self._known, self._is_stable_by = known, is_stable_by
        return made

    def _walk(self, states, capture, sharings):
        """The walks of those parts, from the first on, that are what they were."""
        walks = []
        for part, (name, state) in zip(self._parts, states.items()):
            walk = _Walk(capture)
            if part.name != name or part.sharing != sharings.get(name) or \
                    not walk.is_along(part, state):
                break
            walks.append(walk)
        return walks
