# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: the package, data sets, addresses."""

import ctypes
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PACKAGE = os.environ.get("STOKER_PYTHON_PACKAGE", "")
if not PACKAGE:
    print("the Python package was not built: Python.h is missing, or -Dpython=disabled")
    sys.exit(77)
sys.path.insert(0, PACKAGE)

import stoker  # noqa: E402 - only here is it to be found

try:
    import numpy
except ImportError:
    numpy = None

METHODS = os.environ.get("STOKER_TEST_METHODS", "auto sync").split()
RECORD_BYTES = 96
RECORDS = 100
IMAGES = 60
IMAGE = (4, 5)


def record(sample):
    """What is in a record of the data set that make_records() makes."""
    return bytes((sample * 7 + at * 13) % 256 for at in range(RECORD_BYTES))


def item(sample):
    """What is in a file of the data set that make_folder() makes: of many sizes, one empty."""
    return bytes((sample + at) % 256 for at in range(sample * 37 % 500))


class DataTest(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="stoker-python-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def make_records(self, count=RECORDS):
        path = self.folder / "records.bin"
        if path.exists():
            return path
        path.write_bytes(b"".join(record(sample) for sample in range(count)))
        return path

    def make_folder(self, count=RECORDS):
        for sample in range(count):
            path = self.folder / "tree" / ("even", "odd")[sample % 2] / f"{sample:04}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(item(sample))
        return self.folder / "tree"

    def make_idx(self):
        """Images of bytes with labels, as MNIST has them; returns both paths."""
        images, labels = self.folder / "images-idx3-ubyte", self.folder / "labels-idx1-ubyte"
        pixels = bytes(at % 251 for at in range(IMAGES * IMAGE[0] * IMAGE[1]))
        images.write_bytes(struct.pack(">IIII", 0x803, IMAGES, *IMAGE) + pixels)
        labels.write_bytes(struct.pack(">II", 0x801, IMAGES) + bytes(s % 10 for s in range(IMAGES)))
        return images, labels

    def open_records(self, engine, **options):
        return stoker.Dataset(engine, self.make_records(), "record", record_bytes=RECORD_BYTES,
                              **options)


def run_script(text, *arguments, timeout=60):
    """Runs a program with the package in a Python that checks itself; returns what it did."""
    place = os.pathsep.join([PACKAGE, os.path.dirname(os.path.abspath(__file__))])
    environment = dict(os.environ, PYTHONPATH=place)
    return subprocess.run([sys.executable, "-X", "dev", "-c", text, *map(str, arguments)],
                          env=environment, capture_output=True, text=True, timeout=timeout,
                          check=False)


def address(buffer):
    """Where the memory of an object that has the buffer protocol begins."""
    view = (ctypes.c_char * 256)()  # a Py_buffer begins with the pointer
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release.argtypes, release.restype = [ctypes.c_void_p], None
    get(buffer, view, 0)
    pointer = ctypes.c_void_p.from_buffer(view).value
    release(view)
    return pointer


def resident_bytes():
    """Memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
