# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from Python: what is saved is what is loaded; holds, fences, damage, ends."""

import array
import gc
import json
import struct
import sys
import unittest

from support import DataTest, METHODS, numpy, run_script, stoker

TYPES = {"?": "BOOL", "B": "U8", "b": "I8", "H": "U16", "h": "I16", "e": "F16", "I": "U32",
         "i": "I32", "f": "F32", "Q": "U64", "q": "I64", "d": "F64"}


class Checkpoints(DataTest):
    def setUp(self):
        super().setUp()
        self.engine = stoker.Engine()

    def open(self, engine=None, **options):
        return stoker.Checkpoints(engine or self.engine, self.folder / "run", slot_bytes=1 << 16,
                                  **options)

    def test_what_is_saved_is_loaded(self):
        for method in METHODS:
            with self.subTest(method), stoker.Engine(io_method=method) as engine, \
                    self.open(engine, keep=0) as saved:
                step = len(saved.list()) + 1
                tensors = {f"t{at}": memoryview(bytes(range(8)) * 5000).cast("B")
                           for at in range(4)}
                tensors["floats"] = array.array("d", [1.5, -2.0, 3.25])
                tensors["brain"] = ("BF16", (2, 3), bytes(range(12)))
                saved.save(step, tensors, blobs={"rng": b"state", "none": b""},
                           metadata={"model": "small", "ü": "ß"})
                saved.wait()
                self.assertEqual(saved.latest(), step)
                with saved.open(step) as view:
                    view.verify()
                    self.assertEqual(view.info()["step"], step)
                    self.assertEqual(view.tensors()["floats"], ("F64", (3,), 24))
                    self.assertEqual(view.tensors()["brain"], ("BF16", (2, 3), 12))
                    self.assertEqual(view.blobs(), {"rng": 5, "none": 0})
                    self.assertEqual((view.blob("rng"), view.blob("none")), (b"state", b""))
                    self.assertEqual(view.metadata()["model"], "small")
                    self.assertEqual(view.metadata()["ü"], "ß")
                    targets = {name: bytearray(n_bytes) for name, (_, _, n_bytes)
                               in view.tensors().items()}
                    view.load(targets)
                for name, tensor in tensors.items():
                    expected = bytes(tensor[2] if isinstance(tensor, tuple) else tensor)
                    self.assertEqual(bytes(targets[name]), expected, name)

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_arrays(self):
        arrays = {name: (numpy.arange(24) % 2).reshape(2, 3, 4).astype(numpy.dtype(name))
                  for name in TYPES}
        arrays["scalar"], arrays["empty"] = numpy.array(7.0), numpy.zeros((0, 3), "f")
        arrays["complex"] = numpy.ones(3, "c8")
        with self.open() as saved:
            saved.save(1, arrays, stable=True)
            saved.fence()
            with self.assertRaises(stoker.Error):
                saved.save(1, arrays)  # there is one of that step already
                saved.wait()
            saved.wait()
            view = saved.open()
            for name, told in view.tensors().items():
                if name in TYPES:
                    self.assertEqual(told[:2], (TYPES[name], (2, 3, 4)))
            self.assertEqual(view.tensors()["scalar"][:2], ("F64", ()))
            self.assertEqual(view.tensors()["complex"][0], "C64")
            copies = {name: numpy.empty_like(one) for name, one in arrays.items()}
            view.load(copies)
            for name, one in arrays.items():
                self.assertTrue((copies[name] == one).all(), name)
            with self.assertRaises(BufferError):
                saved.save(2, {"turned": arrays["i"].T})  # not contiguous
            frozen = numpy.zeros(3)
            frozen.flags.writeable = False
            with self.assertRaises((BufferError, ValueError)):  # NumPy's own choice
                view.load({"scalar": frozen})

    def test_stable_memory_is_held(self):
        with self.open() as saved:
            held, copied = bytearray(100_000), bytearray(100_000)
            saved.save(1, {"held": held, "copied": copied}, stable=["held"])
            copied[:] = b"x" * 100_000
            copied.append(0)  # nobody looks at it any more
            with self.assertRaises(BufferError):
                held.append(0)
            saved.fence()
            held.append(0)
            saved.wait(10)
            target = bytearray(100_000)
            saved.open().load({"copied": target})
            self.assertEqual(target, bytes(100_000))

    def test_a_loaders_position(self):
        data = self.open_records(self.engine)
        loader = stoker.Loader(self.engine, data, 8, epochs=2, seed=3)
        for _ in range(5):
            next(loader)
        with self.open() as saved:
            saved.save(5, {}, loader=loader)
            saved.wait()
            rest = [batch.samples.tolist() for batch in loader]
            other = stoker.Loader(self.engine, data, 8, epochs=2, seed=3)
            other.restore(saved.open().blob("loader"))
            self.assertEqual([batch.samples.tolist() for batch in other], rest)
            with self.assertRaises(TypeError):
                saved.save(6, {}, loader=data)

    def test_the_file_is_safetensors(self):
        with self.open() as saved:
            saved.save(1, {"a": array.array("i", [1, 2, 3])})
            saved.wait()
        [part] = [path for path in (self.folder / "run").rglob("*") if path.is_file() and
                  b'"a"' in path.read_bytes()[:4096] and path.suffix != ".json"]
        content = part.read_bytes()
        n_header = struct.unpack("<Q", content[:8])[0]
        entry = json.loads(content[8:8 + n_header])["a"]
        first, last = entry["data_offsets"]
        self.assertEqual(struct.unpack("<3i", content[8 + n_header:][first:last]), (1, 2, 3))

    def test_list_and_keep(self):
        with self.open(keep=2) as saved:
            self.assertEqual((saved.latest(), saved.list()), (None, []))
            for step in range(1, 6):
                saved.save(step, {"t": bytes(100)})
            saved.wait()
            self.assertEqual([one["step"] for one in saved.list()][:2], [5, 4])
            self.assertEqual({one["state"] for one in saved.list()}, {0})
            status = saved.status()
            self.assertEqual((status["saves"], status["durable"], status["last_durable"]),
                             (5, 5, 5))
        with self.open(read_only=True) as saved:  # what is not kept has gone when it is closed
            self.assertEqual([one["step"] for one in saved.list()], [5, 4])

    def test_prune(self):
        with self.open(keep=0) as saved:
            for step in range(5):
                saved.save(step, {"t": bytes(100)})
            saved.wait()
            self.assertGreater(saved.prune(3), 0)
            self.assertEqual([one["step"] for one in saved.list()], [4, 3, 2])
            self.assertEqual(saved.prune(1 << 40), 0)
            (self.folder / "run" / "unknown").mkdir()
            saved.prune(keep=1, orphans=True)
            self.assertEqual([one["step"] for one in saved.list()], [4])
            self.assertTrue((self.folder / "run" / "unknown").exists())
            for keep, kind in ((0, stoker.Error), (-1, OverflowError), ("1", TypeError)):
                with self.assertRaises(kind):
                    saved.prune(keep)
        with self.open(read_only=True) as saved, self.assertRaises(stoker.Error):
            saved.prune(1)

    def test_boxes(self):
        shape = (7, 5, 3)
        content = array.array("i", range(7 * 5 * 3))
        with self.open() as saved:
            saved.save(1, {"t": ("I32", shape, content), "scalar": ("I32", (), content[:1])})
            saved.wait()
            view = saved.open()
            for start, count in (((0, 0, 0), shape), ((2, 1, 1), (3, 4, 2)), ((6, 4, 2), (1, 1, 1)),
                                 ((3, 0, 0), (2, 5, 3)), ((0, 2, 0), (7, 1, 3))):
                places = [range(first, first + n) for first, n in zip(start, count)]
                expected = [(i * 5 + j) * 3 + k for i in places[0] for j in places[1]
                            for k in places[2]]
                target = array.array("i", bytes(4 * len(expected)))
                view.load({"t": (start, list(count), target)})
                self.assertEqual(target.tolist(), expected)
            target = bytearray(4)
            view.load({"scalar": ((), (), target)})
            for box, kind in ((((0, 0), (1, 1, 1), target), ValueError),
                              (((0, 0, 0), (1, 1, 1, 1), target), ValueError),
                              (((0, 0, -1), (1, 1, 1), target), OverflowError),
                              (((0, 0, 3), (1, 1, 1), target), stoker.Error),
                              (((0, 0, 0), (1, 1, 2), target), stoker.Error),
                              (((0, 0, 0), (1, 1, 1)), TypeError), ((0, 1, target), TypeError)):
                with self.subTest(box=box), self.assertRaises(kind):
                    view.load({"t": box})
            with self.assertRaises(stoker.Error):
                view.load({"u": ((0,), (1,), target)})

    def test_damage_is_found(self):
        with self.open(keep=0) as saved:
            for step in (1, 2):
                saved.save(step, {"t": b"y" * 200_000})
            saved.wait()
            [part] = [path for path in (self.folder / "run").rglob("*") if path.is_file() and
                      "step-2" in str(path) and path.stat().st_size > 200_000]
            with open(part, "r+b") as file:
                file.seek(150_000)
                file.write(b"n")
            view = saved.open(2)
            for use in (view.verify, lambda: view.load({"t": bytearray(200_000)})):
                with self.assertRaises(stoker.Error) as caught:
                    use()
                self.assertEqual(caught.exception.code, stoker.E_CORRUPT)
            saved.open(1).verify()

    def test_refused(self):
        saved = self.open()
        for call, kind in ((lambda: saved.save(-1, {}), OverflowError),
                           (lambda: saved.save(1, {"t": 3}), TypeError),
                           (lambda: saved.save(1, {3: b""}), TypeError),
                           (lambda: saved.save(1, {"t": ("F32", (2,), b"123")}), stoker.Error),
                           (lambda: saved.save(1, {"t": ("F31", (1,), b"1234")}), stoker.Error),
                           (lambda: saved.save(1, {"t": ("F32", b"1234")}), TypeError),
                           (lambda: saved.save(1, {"t": ("F32", (1,) * 65, b"1234")}), ValueError),
                           (lambda: saved.save(1, {}, metadata={"a": 1}), TypeError),
                           (lambda: saved.save(1, []), AttributeError),
                           (lambda: saved.wait(-1), ValueError), (saved.open, stoker.Error),
                           (lambda: stoker.Checkpoints(self.engine), TypeError),
                           (lambda: self.open(slots=1), stoker.Error)):
            with self.subTest(kind), self.assertRaises(kind):
                call()
        saved.save(7, {"t": b"12"})
        saved.wait()
        view = saved.open()
        for target, kind in (({"u": bytearray(2)}, stoker.Error),
                             ({"t": bytearray(3)}, stoker.Error), ({"t": b"12"}, BufferError)):
            with self.assertRaises(kind):
                view.load(target)
        with self.assertRaises(KeyError):
            view.blob("b")
        saved.close()  # waits for the view
        view.verify()
        with self.assertRaises(ValueError):
            saved.latest()
        view.close()
        with self.assertRaises(ValueError):
            view.verify()

    def test_memory_is_flat(self):
        with self.open(keep=1) as saved:
            tensors = {f"t{at}": bytearray(1000) for at in range(50)}
            blocks = None
            for step in range(300):
                saved.save(step, tensors, stable=True)
                saved.fence()
                if step == 50:
                    gc.collect()
                    blocks = sys.getallocatedblocks()
            saved.wait()
            gc.collect()
            self.assertLess(sys.getallocatedblocks() - blocks, 200)


ENDS = {
    "with a save under way": "saved.save(1, {'t': bytearray(1 << 20)}, stable=True)",
    "with a view": "saved.save(1, {'t': b'1'}); saved.wait(); view = saved.open()",
    "by an exception": "try: saved.save(1, {'t': 3})\nexcept TypeError as e: kept = e",
    "nothing saved": "",
}
START = """
import sys
from support import stoker
engine = stoker.Engine()
saved = stoker.Checkpoints(engine, sys.argv[1])
"""


class Ends(DataTest):
    def test_ends(self):
        for number, (name, text) in enumerate(ENDS.items()):
            with self.subTest(name):
                done = run_script(START + text, self.folder / f"run{number}")
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
