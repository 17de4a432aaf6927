# SPDX-License-Identifier: Apache-2.0
"""Data sets that Stoker reads: as map-style data sets, whose samples can be had one by one, and as
streams, whose batches come in order and ahead of time."""

import array
import collections
import errno
import math
import os

import torch

import stoker

BATCHES_AHEAD = 32  # pushed beyond those taken, and no more ids than
IDS_AHEAD = 1 << 18
IDS_MAX = 1 << 20  # that the library lets wait
REFUSED_MAX = 16  # batches that are read without the stream before it is opened anew

_DTYPES = {"u1": torch.uint8, "i1": torch.int8, "i2": torch.int16, "i4": torch.int32,
           "i8": torch.int64, "f2": torch.float16, "f4": torch.float32, "f8": torch.float64,
           "c8": torch.complex64, "c16": torch.complex128, "b1": torch.bool}
for _name in ("uint16", "uint32", "uint64"):  # since torch 2.3
    if hasattr(torch, _name):
        _DTYPES[f"u{int(_name[4:]) // 8}"] = getattr(torch, _name)


def _dtype_of(text, path):
    dtype = _DTYPES.get(text[1:])
    if dtype is None or text[0] == ">":
        raise TypeError(f"{path} has elements of NumPy's type {text!r}, which torch "
                        f"{torch.__version__} does not have; stoker.Loader gives them as NumPy "
                        "arrays")
    return dtype


class Files:
    """A data set of Stoker's, map-style: samples are tensors, or pairs of a tensor and a label."""

    stoker_thread_safe = True

    def __init__(self, engine, path, options):
        self.engine = engine
        if isinstance(path, stoker.Dataset):
            self.data = path
        else:
            self.data = stoker.Dataset(engine, path, **(options or {}))
        self.info = self.data.info()
        first = self.data.locate(0)
        self.path = first[0]
        self.has_labels = first[3] != -1
        self.is_fixed = self.info["record_bytes"] > 0
        self.dtype, self.shape = torch.uint8, None
        if self.info["dtype"] is not None:
            self.dtype = _dtype_of(self.info["dtype"], self.path)
            self.shape = self.info["shape"]

    @property
    def classes(self):
        return list(self.data.classes)

    def __len__(self):
        return len(self.data)

    def read(self, sample):
        """(bytes, label), read here and now."""
        path, offset, n_bytes, label = self.data.locate(sample)
        content = bytearray(n_bytes)
        with open(path, "rb", buffering=0) as file:
            n_read = os.preadv(file.fileno(), [content], offset)
        if n_read != n_bytes:
            raise OSError(errno.EIO, f"sample {sample} ends after {n_read} of {n_bytes} bytes",
                          path)
        return content, label

    def __getitem__(self, sample):
        sample = range(len(self))[sample]  # from the end, and refusals, as a list has them
        content, label = self.read(sample)
        tensor = bytes_as_tensor(content)
        if self.shape is not None:
            tensor = tensor.view(self.dtype).reshape(self.shape)
        return (tensor, label) if self.has_labels else tensor

    def batch(self, batch, is_copied):
        """What is handed out for a batch of a stream: the batch's own memory, or a copy of it."""
        if self.is_fixed:
            memory = batch.data
            tensor = torch.frombuffer(memory, dtype=self.dtype).view(memory.shape)
            tensor = tensor.clone() if is_copied else tensor
        else:
            tensor = [bytes_as_tensor(bytearray(item)) for item in batch.items]
        return [tensor, labels_of(batch)] if self.has_labels else tensor

    def collate(self, samples):
        """The same from samples: what torch's default does, where sizes may differ."""
        if self.is_fixed:
            return torch.utils.data.default_collate(samples)
        if not self.has_labels:
            return list(samples)
        return [[tensor for tensor, _ in samples], torch.tensor([label for _, label in samples])]

    def samples(self, batch):
        """A batch of a stream as a list of samples, copied: a collate function may keep them."""
        whole = self.batch(batch, is_copied=True)
        if not self.has_labels:
            return list(whole)
        return list(zip(whole[0], whole[1].tolist()))


def bytes_as_tensor(content):
    return torch.frombuffer(content, dtype=torch.uint8) if len(content) else \
        torch.empty(0, dtype=torch.uint8)


def labels_of(batch):
    return torch.frombuffer(bytearray(batch.labels), dtype=torch.int64)


# ---- streams ------------------------------------------------------------------------------


class Ordered:
    """A stream in an order that the library makes itself: the whole run is known.

    A place is (epoch, step). One that is not the next is sought; where that cannot be, because
    tensors of earlier batches are held, the answer is None, and the batch is to be read without it.
    """

    def __init__(self, files, order, batch_size, drop_last, epochs, options):
        self.files, self.order, self.options = files, order, options
        self.batch_size, self.drop_last = batch_size, drop_last
        self.epochs = epochs
        self.ids_of = stoker.Order(len(files), **order)
        self.n_steps = len(self.ids_of) / batch_size
        self.n_steps = math.floor(self.n_steps) if drop_last else math.ceil(self.n_steps)
        self.at = (0, 0)
        self.n_refused = 0
        self.loader = None

    def _open(self):
        self.loader = stoker.Loader(self.files.engine, self.files.data, self.batch_size,
                                    self.epochs, drop_last=self.drop_last, order=self.ids_of,
                                    **self.options)
        self.at, self.n_refused = (0, 0), 0

    def _go(self, place):
        if self.loader is None or (self.epochs is not None and place[0] >= self.epochs):
            if self.loader is not None:  # longer than was said
                self.loader.close()
                self.epochs = None
            self._open()
        if self.at == place:
            return True
        try:
            self.loader.seek(*place)
        except stoker.Error as error:
            if error.errno != errno.EBUSY:
                raise
            self.n_refused += 1
            if self.n_refused < REFUSED_MAX:
                return False
            self.loader.close()  # for those who hold on: its memory goes with the last of them
            self._open()
            return self._go(place)
        self.at, self.n_refused = place, 0
        return True

    def take(self, place):
        if not self._go(place):
            return None
        try:
            batch = next(self.loader)
        except stoker.Error as error:
            if error.code == stoker.E_SAMPLE:
                self.at = self._behind(place)
            raise
        self.at = self._behind(place)
        return batch

    def _behind(self, place):
        epoch, step = place
        return (epoch, step + 1) if step + 1 < self.n_steps else (epoch + 1, 0)

    def ids(self, place):
        first = place[1] * self.batch_size
        count = min(self.batch_size, len(self.ids_of) - first)
        return self.ids_of.ids(place[0], first, count).tolist()

    def close(self):
        if self.loader is not None:
            self.loader.close()


class Steps:
    """An iteration's places in an Ordered stream; an Indices to those who take them."""

    limit = None

    def __init__(self, epoch, first, n_steps):
        self.places = ((epoch, step) for step in range(first, n_steps))

    def prime(self):
        """Nothing is drawn."""

    def take(self):
        return next(self.places)

    def hand_out(self, place):
        """None: there is one order."""

    def end(self):
        """Nothing is drawn behind the last batch either."""

    def state(self):
        return {"is_primed": True}


class Pushed(list):
    """Ids that a stream of lists is told of: known by who it is, not by what is in it."""

    is_wanted = True


class Listed:
    """A stream of what is pushed: lists of ids, taken in that order.

    Ids cannot be taken back. What lies before the one that is taken is not wanted any more; it is
    read and dropped.
    """

    def __init__(self, files, batch_size, options):
        self.files, self.options, self.batch_size = files, options, batch_size
        self.ahead = max(1, min(BATCHES_AHEAD, IDS_AHEAD // batch_size))
        self.loader = None
        self.queue = collections.deque()  # what has been pushed and not been read
        self.n_waiting = 0  # ids in it

    def push(self, pushed):
        if not pushed.is_wanted:
            return
        if self.loader is None:
            self.loader = stoker.Loader(self.files.engine, self.files.data, self.batch_size, None,
                                        order="list", **self.options)
        ids = array.array("q", pushed)
        if min(ids) < 0:  # as a list counts
            ids = array.array("q", [range(len(self.files))[sample] for sample in ids])
        while self.n_waiting + len(ids) > IDS_MAX and not self.queue[0].is_wanted:
            self._drop()
        self.loader.push(ids, end_epoch=len(ids) < self.batch_size)
        self.queue.append(pushed)
        self.n_waiting += len(ids)

    def take(self, pushed):
        while self.queue[0] is not pushed:
            self._drop()
        return self._next()

    def _drop(self):
        try:
            self._next().release()
        except stoker.Error as error:
            if error.code != stoker.E_SAMPLE:
                raise

    def _next(self):
        try:
            batch = next(self.loader)
        except stoker.Error as error:
            if error.code == stoker.E_SAMPLE:
                self._has_come()
            raise
        self._has_come()
        return batch

    def _has_come(self):
        self.n_waiting -= len(self.queue.popleft())

    def ids(self, pushed):
        return pushed

    def close(self):
        if self.loader is not None:
            self.loader.close()
