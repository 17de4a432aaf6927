# SPDX-License-Identifier: Apache-2.0
"""Objects as files in memory, so that a process gives another one its tensors with one copy.

A file holds the tensors' and arrays' bytes, then a table of where they are, then a pickle of the
rest. It has no name: the descriptor is passed on and closed when the file has been mapped, and the
memory goes with the last tensor that was made of it.
"""

import ctypes
import io
import os
import pickle
import struct

import torch

ALIGN = 64
TABLE_ROW = struct.Struct("<QQ")
HEAD = struct.Struct("<QQQ")  # where the table is, its rows, and the pickle's bytes


def _shown(pointer, n_bytes, owner):
    """Memory as a writable buffer that keeps its owner."""
    shown = (ctypes.c_char * n_bytes).from_address(pointer)
    shown.owner = owner
    return shown


def _rebuild_tensor(buffer, dtype, shape, stride):
    tensor = torch.frombuffer(buffer, dtype=dtype)
    return tensor.view(shape) if stride is None else tensor.as_strided(shape, stride)


def _rebuild_empty(dtype, shape):
    return torch.empty(shape, dtype=dtype)


def _is_dense(tensor):
    """Whether its elements fill their memory, in whatever order of the dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


class _Pickler(pickle.Pickler):
    """Gives out the memory of tensors as it does that of arrays."""

    def reducer_override(self, thing):
        if type(thing) is not torch.Tensor or thing.device.type != "cpu" or \
                thing.layout is not torch.strided or thing.requires_grad or thing.is_quantized:
            return NotImplemented
        if thing.is_conj() or thing.is_neg():
            thing = thing.resolve_conj().resolve_neg()
        if thing.numel() == 0:
            return _rebuild_empty, (thing.dtype, tuple(thing.shape))
        stride = None
        if not thing.is_contiguous():
            if _is_dense(thing):
                stride = thing.stride()
            else:
                thing = thing.contiguous()
        n_bytes = thing.numel() * thing.element_size()
        buffer = pickle.PickleBuffer(_shown(thing.data_ptr(), n_bytes, thing))
        return _rebuild_tensor, (buffer, thing.dtype, tuple(thing.shape), stride)


def _write(file, data, at):
    view = memoryview(data).cast("B")
    while view:
        n_written = os.pwrite(file, view, at)
        view, at = view[n_written:], at + n_written


def pack(thing):
    """Writes an object into a file of its own. Returns its descriptor."""
    out, buffers = io.BytesIO(), []
    _Pickler(out, protocol=5, buffer_callback=buffers.append).dump(thing)
    table, end = [], ALIGN
    raws = [buffer.raw() for buffer in buffers]
    for raw in raws:
        table.append(TABLE_ROW.pack(end, raw.nbytes))
        end += -(-raw.nbytes // ALIGN) * ALIGN
    tail = b"".join(table)
    file = os.memfd_create("stoker-batch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, end + len(tail) + out.tell())
        at = ALIGN
        for raw in raws:
            if raw.nbytes:
                _write(file, raw, at)
            at += -(-raw.nbytes // ALIGN) * ALIGN
        _write(file, tail + out.getvalue(), end)
        _write(file, HEAD.pack(end, len(table), out.tell()), 0)
    except BaseException:
        os.close(file)
        raise
    return file


def unpack(file, is_shared=True):
    """The object that pack() wrote. Its tensors are the file's memory (is_shared) or, where they
    are written to, copies of that. The descriptor stays the caller's."""
    # torch's own mapping: Python's would keep a descriptor for as long as the memory lives.
    whole = torch.from_file(f"/proc/self/fd/{file}", shared=is_shared,
                            size=os.fstat(file).st_size, dtype=torch.uint8)
    start = whole.data_ptr()
    table, n_rows, n_pickle = HEAD.unpack(ctypes.string_at(start, HEAD.size))
    buffers = []
    for row in range(n_rows):
        at, n_bytes = TABLE_ROW.unpack(
            ctypes.string_at(start + table + row * TABLE_ROW.size, TABLE_ROW.size))
        buffers.append(_shown(start + at, n_bytes, whole) if n_bytes else bytearray())
    text = ctypes.string_at(start + table + n_rows * TABLE_ROW.size, n_pickle)
    return pickle.loads(text, buffers=buffers)
