# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: the package, data sets, addresses."""

import array
import ctypes
import gc
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


def has_ucx():
    """Whether ranks of several processes can meet with this build."""
    try:
        stoker.Engine(comm=stoker.Comm(0, 2, exchange=lambda mine: []))
    except stoker.Error as error:
        return "built without UCX" not in error.message
    except ValueError:  # it was asked for the others' addresses
        return True


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


class _MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc 2.33 and newer."""

    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
                 "fordblks", "keepcost")]


def heap_bytes():
    """What malloc has given out; 0 where that cannot be asked for."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _MallInfo
    told = ask()
    return told.uordblks + told.hblkhd


def run_without_thread_caches():
    """Begins the program again with a malloc that counts what it has given out to the byte: chunks
    that a thread keeps for itself are not given out, but counted."""
    if "tcache_count" not in os.environ.get("GLIBC_TUNABLES", ""):
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=0"
        os.execv(sys.executable, [sys.executable, *sys.argv])


class Growth:
    """What grows in every part of a run: what is lost with each thing done is; what Python and its
    libraries come to need once is not."""

    NAMES = ("blocks", "heap bytes", "resident bytes", "descriptors", "threads")

    def __init__(self):
        self.seen = [array.array("q") for _ in self.NAMES]  # no objects, which are blocks

    def look(self):
        """At the end of a part, the one that comes before the first included."""
        gc.collect()
        now = (sys.getallocatedblocks(), heap_bytes(), resident_bytes(),
               len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
        for numbers, number in zip(self.seen, now):
            numbers.append(number)

    def least(self):
        """The least that each of them has grown by in a part."""
        return {name: min(after - before for before, after in zip(numbers, numbers[1:]))
                for name, numbers in zip(self.NAMES, self.seen)}

    def check(self, test, n_each):
        """Fails a test if n_each things done in each part have each cost a block in every other
        one, 10 bytes of the heap or 1 KiB of what is resident; or any descriptor or thread. What
        is still under way when it is looked at may differ by 1 KiB."""
        least = self.least()
        limits = {"blocks": n_each // 2, "heap bytes": 10 * n_each + 1024,
                  "resident bytes": 1024 * n_each, "descriptors": 0, "threads": 0}
        test.assertEqual({name: (least[name], limit) for name, limit in limits.items()
                          if least[name] > limit}, {}, self.seen)


PARTS = 5  # of a run, the first of which is for what is needed once
SAVES = 1000 if os.environ.get("STOKER_TEST_LONG") else 300
PART = SAVES // PARTS


def run_parts(save, settle=lambda: None):
    """Does save(step) SAVES times. Returns how memory has grown over it, PART of them each; before
    it is looked at, settle() waits for what is under way."""
    growth = Growth()
    for step in range(SAVES):
        save(step)
        if (step + 1) % PART == 0:
            settle()
            growth.look()
    return growth
