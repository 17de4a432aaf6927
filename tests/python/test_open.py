# SPDX-License-Identifier: Apache-2.0
"""stoker.open(): what is written is read; whole or not at all; nothing is left behind."""

import errno
import gc
import os
import pickle
import threading
import unittest
import warnings

from support import DataTest, numpy, run_script, stoker

SIZES = (0, 1, 511, 512, 4095, 4097, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (40 << 20) + 12345)


class Open(DataTest):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "file"

    def left(self):
        return sorted(os.listdir(self.folder))

    def test_what_is_written_is_read(self):
        pattern = os.urandom(1 << 16)
        for options in ({}, {"buffered": True}, {"io_method": "sync", "io_threads": 2}):
            for size in SIZES:
                with self.subTest(size=size, **options), stoker.Engine(**options) as engine:
                    content = (pattern * (size // len(pattern) + 1))[:size]
                    with stoker.open(self.path, "wb", engine=engine) as file:
                        view = memoryview(content)
                        self.assertTrue(file.writable())
                        self.assertEqual(file.write(view[:size // 3]), size // 3)
                        for at in range(size // 3, size, 1 << 20):
                            file.write(view[at:min(size, at + (1 << 20))])
                        self.assertEqual(file.tell(), size)
                    with stoker.open(self.path) as file:
                        self.assertEqual(file.read(), content)
                    self.assertEqual(self.left(), ["file"])

    def test_whole_or_not_at_all(self):
        self.path.write_bytes(b"old")
        for size in (10, 50 << 20):
            with self.assertRaises(ZeroDivisionError), stoker.open(self.path, "wb") as file:
                file.write(bytes(size))
                self.assertEqual(self.path.read_bytes(), b"old")
                raise ZeroDivisionError
            self.assertEqual((self.path.read_bytes(), self.left()), (b"old", ["file"]))
        file = stoker.open(self.path, "wb")
        file.write(b"half")
        file.discard()
        file.close()
        file = stoker.open(self.path, "wb")
        file.write(b"dropped")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del file
            gc.collect()
        self.assertIs(caught[0].category, ResourceWarning)
        self.assertEqual((self.path.read_bytes(), self.left()), (b"old", ["file"]))

    def test_close(self):
        file = stoker.open(self.path, "wb")
        file.write(b"new")
        self.assertEqual(self.left()[0][:8], ".stoker-")
        file.close()
        file.close()
        self.assertTrue(file.closed)
        self.assertEqual(self.left(), ["file"])
        for call in (lambda: file.write(b""), file.tell, file.writable, file.__enter__):
            with self.assertRaises(ValueError):
                call()

    def test_links_are_followed(self):
        link = self.folder / "link"
        link.symlink_to(self.path)
        with stoker.open(link, "wb") as file:
            file.write(b"through")
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.path.read_bytes(), b"through")

    def test_refused(self):
        os.mkfifo(self.folder / "fifo")
        for path, number in ((self.folder / "no" / "file", errno.ENOENT),
                             (self.folder, errno.EINVAL), (self.folder / "fifo", errno.EINVAL)):
            with self.subTest(path), self.assertRaises(stoker.Error) as caught:
                stoker.open(path, "wb")
            self.assertEqual(caught.exception.errno, number)
            self.assertEqual(caught.exception.path, str(path))
        with self.assertRaises(ValueError):
            stoker.open(self.path, "ab")
        with stoker.open(self.path, "wb") as file:
            with self.assertRaises(TypeError):
                file.write("text")
            with self.assertRaises(OSError):
                file.seek(0)
        self.assertEqual(self.left(), ["fifo", "file"])

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs a file system that fills up")
    def test_a_file_that_is_too_large(self):
        done = run_script("""
import resource, signal, sys
from support import stoker
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, 6 << 20))
try:
    with stoker.open(sys.argv[1], "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
except stoker.Error as error:
    print(error)
""", self.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"[EFBIG] it cannot be written: File too large: {self.path}", done.stdout)
        self.assertEqual(self.left(), [])

    def test_pickle_and_numpy(self):
        thing = {"a": list(range(1000)), "b": bytes(100_000)}
        with stoker.open(self.path, "wb") as file:
            pickle.dump(thing, file)
        with stoker.open(self.path) as file:
            self.assertEqual(pickle.load(file), thing)
        if numpy:
            array = numpy.arange(3 << 20, dtype="f4").reshape(3, -1)
            with stoker.open(self.path, "wb") as file:
                numpy.save(file, array)
            with stoker.open(self.path) as file:
                self.assertTrue((numpy.load(file) == array).all())

    def test_threads_may_take_turns(self):
        file = stoker.open(self.path, "wb")
        for number in range(4):
            thread = threading.Thread(target=file.write, args=(bytes([number]) * (5 << 20),))
            thread.start()
            thread.join()
        thread = threading.Thread(target=file.close)
        thread.start()
        thread.join()
        self.assertEqual(self.path.stat().st_size, 20 << 20)

    def test_ends(self):
        for text, told in (("file.write(bytes(20 << 20))", "was not closed"), ("file.close()", ""),
                           ("file.discard(); del file", ""),
                           ("engine.close(); file.write(b'1'); file.close()", "")):
            done = run_script("import sys\nfrom support import stoker\nengine = stoker.Engine()\n"
                              "file = stoker.open(sys.argv[1], 'wb', engine=engine)\n" + text,
                              self.path)
            self.assertEqual(done.returncode, 0, text)
            self.assertEqual(told in done.stderr, bool(told) or not done.stderr, done.stderr)
            self.assertIn(self.left(), ([], ["file"]))


if __name__ == "__main__":
    unittest.main()
