# SPDX-License-Identifier: Apache-2.0
"""Types of elements as torch, NumPy and safetensors call them; tensors as buffers."""

import ctypes
import math

import torch

_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
# dtype to (its name in torch, in safetensors, bytes of an element)
STORED = {getattr(torch, name): (name, stored, torch.empty((), dtype=getattr(torch, name))
                                 .element_size())
          for name, stored in _NAMES.items() if hasattr(torch, name)}
BY_NAME = {name: dtype for dtype, (name, _, _) in STORED.items()}

_NUMPY = {"b1": "BOOL", "u1": "U8", "i1": "I8", "i2": "I16", "u2": "U16", "i4": "I32", "u4": "U32",
          "i8": "I64", "u8": "U64", "f2": "F16", "f4": "F32", "f8": "F64", "c8": "C64"}
_BYTES = ctypes.c_char


def stored_array(array):
    """(safetensors type, shape) that a NumPy array is stored with: as bytes where there is none."""
    text = array.dtype.str
    stored = _NUMPY.get(text[1:]) if text[0] != ">" else None
    return (stored, array.shape) if stored else ("U8", (array.nbytes,))


def memory_of(tensor, n_bytes):
    """The memory of a contiguous tensor on the CPU as a writable buffer that keeps it."""
    shown = (_BYTES * n_bytes).from_address(tensor.data_ptr())
    # Not the tensor itself: a parameter may be given other memory (Module.to(), .data = ...).
    shown.owner = tensor.detach()
    return shown


def empty(name, shape):
    """A new tensor on the CPU of a type by torch's name, and its memory."""
    dtype = BY_NAME.get(name)
    if dtype is None:
        raise TypeError(f"the checkpoint has tensors of type {name}, which torch "
                        f"{torch.__version__} does not have")
    tensor = torch.empty(shape, dtype=dtype)
    n_bytes = math.prod(shape) * STORED[dtype][2]
    return tensor, memory_of(tensor, n_bytes) if n_bytes else bytearray()
