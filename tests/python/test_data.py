# SPDX-License-Identifier: Apache-2.0
"""The right bytes in both layouts, without a copy, as buffers and as DLPack tensors."""

import ctypes
import io
import struct
import tarfile
import unittest

from support import (IMAGE, IMAGES, METHODS, RECORD_BYTES, RECORDS, DataTest, address, item,
                     numpy, record, stoker)


class Extents(DataTest):
    def test_in_the_order_of_the_list(self):
        path = self.make_records()
        wanted = [(7, 3), (0, RECORD_BYTES), (RECORD_BYTES * 9 + 1, 0), (7, 3), (50, 700)]
        content = path.read_bytes()
        with stoker.Engine() as engine:
            data = stoker.Dataset(engine, extents=[(path, at, size, label - 1)
                                                   for label, (at, size) in enumerate(wanted)])
            self.assertEqual([data.locate(at) for at in range(5)],
                             [(str(path), *place, label - 1)
                              for label, place in enumerate(wanted)])
            for batch in stoker.Loader(engine, data, 2, order="sequential"):
                for sample, label, part in zip(batch.samples, batch.labels, batch.items):
                    at, size = wanted[sample]
                    self.assertEqual((bytes(part), label), (content[at:at + size], sample - 1))
            for extents, kind in (([], stoker.Error), ([("a", 0, 1)], stoker.Error),
                                  ([(path, 0)], TypeError), ([(path, -1, 1)], OverflowError),
                                  ([(3, 0, 1)], TypeError), ([[path, 0, 1]], TypeError),
                                  ([(path, 9600, 1)], stoker.Error)):
                with self.subTest(extents=extents), self.assertRaises(kind):
                    stoker.Dataset(engine, extents=extents)
            with self.assertRaises(TypeError):
                stoker.Dataset(engine, path, extents=[(path, 0, 1)])


class Fixed(DataTest):
    def test_bytes_of_every_epoch(self):
        for method in METHODS:
            with self.subTest(method=method), stoker.Engine("ram:16M", io_method=method) as engine:
                data = self.open_records(engine)
                loader = stoker.Loader(engine, data, 8, epochs=3, seed=5)
                order = stoker.Order(RECORDS, seed=5)
                seen = [[] for _ in range(3)]
                for batch in loader:
                    self.assertEqual(batch.epoch_step, len(seen[batch.epoch]) // 8)
                    self.assertEqual(len(batch), batch.count)
                    ids = batch.samples.tolist()
                    expected = b"".join(record(sample) for sample in ids)
                    self.assertEqual(bytes(batch.data), expected)
                    self.assertEqual([bytes(part) for part in batch.items],
                                     [record(sample) for sample in ids])
                    seen[batch.epoch] += ids
                    self.assertEqual(batch.last_of_epoch, len(seen[batch.epoch]) == RECORDS)
                self.assertEqual(seen, [order.ids(epoch).tolist() for epoch in range(3)])
                self.assertIsNone(next(loader, None))

    def test_buffer(self):
        with stoker.Engine() as engine:
            loader = stoker.Loader(engine, self.open_records(engine), 8)
            batch = next(loader)
            self.assertEqual(batch.data.shape, (8, RECORD_BYTES))
            self.assertEqual((batch.data.format, batch.data.readonly), ("B", False))
            self.assertEqual(batch.data.nbytes, 8 * RECORD_BYTES)
            view = memoryview(batch.data)
            self.assertEqual((view.shape, view.strides), ((8, RECORD_BYTES), (RECORD_BYTES, 1)))
            self.assertTrue(view.c_contiguous)
            view[3, 5] = 77
            self.assertEqual(batch.items[3][5], 77)
            samples = memoryview(batch.samples)
            self.assertEqual((samples.format, samples.shape, samples.readonly), ("Q", (8,), True))
            self.assertEqual(memoryview(batch.labels).format, "q")
            self.assertEqual(batch.labels.tolist(), [-1] * 8)
            self.assertEqual(batch.labels[0], -1)
            self.assertEqual(list(batch.samples), batch.samples.tolist())
            with self.assertRaises(TypeError):
                samples[0] = 1
            with self.assertRaises(IndexError):
                batch.items[8]
            for at, part in enumerate(batch.items):
                self.assertEqual(address(part), address(batch.data) + at * RECORD_BYTES)

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_numpy_shapes_of_idx(self):
        images, labels = self.make_idx()
        with stoker.Engine(cache_dir=self.folder) as engine:
            data = stoker.Dataset(engine, images, labels_path=labels)
            info = data.info()
            self.assertEqual((info["format"], info["dtype"], info["shape"]), ("idx", "|u1", IMAGE))
            pixels = numpy.arange(IMAGES * IMAGE[0] * IMAGE[1]) % 251
            expected = pixels.reshape(IMAGES, *IMAGE)
            for batch in stoker.Loader(engine, data, 16, shuffle=False):
                ids = numpy.asarray(batch.samples)
                self.assertEqual(ids.dtype, numpy.uint64)
                images = numpy.asarray(batch.data)
                self.assertEqual(images.dtype, numpy.uint8)
                self.assertTrue((images == expected[ids]).all())
                self.assertTrue((numpy.asarray(batch.labels) == ids % 10).all())
                self.assertEqual(images.ctypes.data, address(batch.items[0]))

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_numpy_elements_of_npy(self):
        for dtype in ("<f4", "<i8", "<u2", "<f2", "|b1", "<c16", ">i4"):
            values = (numpy.arange(40 * 3 * 2) % 2).reshape(40, 3, 2).astype(dtype)
            numpy.save(self.folder / "rows.npy", values)
            with self.subTest(dtype=dtype), stoker.Engine() as engine:
                data = stoker.Dataset(engine, self.folder / "rows.npy", rebuild=True)
                for batch in stoker.Loader(engine, data, 7):
                    rows = numpy.asarray(batch.data)
                    self.assertEqual(rows.dtype, values.dtype)
                    self.assertTrue((rows == values[numpy.asarray(batch.samples)]).all())

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_numbers_of_one_dimension(self):
        numpy.save(self.folder / "numbers.npy", numpy.arange(50, dtype="<f8"))
        with stoker.Engine() as engine:
            data = stoker.Dataset(engine, self.folder / "numbers.npy")
            self.assertEqual(data.info()["shape"], ())
            batch = next(stoker.Loader(engine, data, 7))
            self.assertEqual(batch.data.tolist(), [float(s) for s in batch.samples])


class Shards(DataTest):
    def test_fields(self):
        self.make_shard()
        with stoker.Engine("ram:16M", cache_dir=self.folder) as engine:
            for path in ("s.tar", "{s}.tar", "s*.tar"):
                data = stoker.Dataset(engine, self.folder / path)
                self.assertEqual((data.info()["format"], data.fields), ("tar", ("bin", "json")))
                for batch in stoker.Loader(engine, data, 4):
                    self.assertEqual(list(batch.fields), ["bin", "json"])
                    for at, sample in enumerate(batch.samples):
                        self.assertEqual(batch.items[at], item(sample))
                        self.assertEqual(batch.fields["bin"][at], item(sample))
                        text = batch.fields["json"][at]
                        self.assertEqual(text and bytes(text),
                                         None if sample % 3 == 0 else b"%d" % sample)
                        self.assertEqual(batch.labels[at], sample % 10)
                    text = None
                    fields = batch.fields
                    batch.release()
                    with self.assertRaises(ValueError):
                        fields["bin"][0]
            only = stoker.Dataset(engine, self.folder / "s.tar", "tar", fields="bin")
            self.assertEqual(only.fields, ("bin",))
            self.assertEqual(list(next(stoker.Loader(engine, only, 4)).fields), ["bin"])
            with self.assertRaisesRegex(stoker.Error, "png"):
                stoker.Dataset(engine, self.folder / "s.tar", fields="png")

    def make_shard(self):
        with tarfile.open(self.folder / "s.tar", "w") as shard:
            for sample in range(20):
                files = {"bin": item(sample), "cls": b"%d" % (sample % 10)}
                if sample % 3:
                    files["json"] = b"%d" % sample
                for name, data in files.items():
                    member = tarfile.TarInfo(f"{sample:04}.{name}")
                    member.size = len(data)
                    shard.addfile(member, io.BytesIO(data))


class Ssd(DataTest):
    def test_warm_and_warned(self):
        cache = self.folder / "cache"
        cache.mkdir()
        for job in range(2):
            with stoker.Engine(f"ssd:{cache}:16M") as engine, \
                    self.open_records(engine) as data, stoker.Loader(engine, data, 8) as loader:
                for batch in loader:
                    batch.release()
                stats = loader.stats()
                self.assertIsNone(loader.warning())
            self.assertEqual(stats["origin_bytes"], 0 if job else RECORDS * RECORD_BYTES)
            self.assertEqual(stats["ssd_bytes"], RECORDS * RECORD_BYTES)
        with stoker.Engine(f"ssd:{self.folder / 'missing'}:16M") as engine:
            loader = stoker.Loader(engine, self.open_records(engine), 8)
            self.assertEqual(sum(len(batch) for batch in loader), RECORDS)
            self.assertIsInstance(loader.warning(), stoker.Error)
            self.assertIn("missing", loader.warning().path)


class Raw(DataTest):
    def test_bytes_of_every_size(self):
        path = self.make_folder()
        for method in METHODS:
            with self.subTest(method=method), stoker.Engine("ram:16M", io_method=method) as engine:
                data = stoker.Dataset(engine, path, "class-folder", extensions="*", rebuild=True)
                self.assertEqual((len(data), data.classes), (RECORDS, ("even", "odd")))
                names = [data.locate(sample)[0] for sample in range(RECORDS)]
                numbers = [int(name[-4:]) for name in names]
                for batch in stoker.Loader(engine, data, 7, epochs=2, layout="raw"):
                    self.assertIsNone(batch.data)
                    for at, sample in enumerate(batch.samples):
                        self.assertEqual(bytes(batch.items[at]), item(numbers[sample]))
                        self.assertEqual(batch.labels[at], numbers[sample] % 2)
                        self.assertTrue(batch.items[at].readonly)

    def test_shown_from_the_cache(self):
        """A sample that stays in RAM is at the same address in every later epoch."""
        with stoker.Engine("ram:16M") as engine:
            loader = stoker.Loader(engine, self.open_records(engine), 10, epochs=4, policy="pin",
                                   layout="raw")
            places = [{} for _ in range(4)]
            for batch in loader:
                for at, sample in enumerate(batch.samples):
                    places[batch.epoch][sample] = address(batch.items[at])
            self.assertEqual(loader.stats(3)["tier_samples"]["ram"], RECORDS)
            self.assertEqual(places[2], places[3])
            self.assertEqual(len(set(places[3].values())), RECORDS)


class Tensor(ctypes.Structure):
    """DLTensor"""
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                ("n_dims", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned"""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def tensor_of(capsule, name, kind):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return kind.from_address(get(capsule, name))


class DLPack(DataTest):
    def setUp(self):
        super().setUp()
        self.engine = stoker.Engine()
        self.loader = stoker.Loader(self.engine, self.open_records(self.engine), 8, borrow_max=2)
        self.batch = next(self.loader)

    def check(self, tensor, array, code, bits, shape):
        self.assertEqual(tensor.data, address(array))
        self.assertEqual(list(tensor.device), [1, 0])
        self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (code, bits, 1))
        self.assertEqual(tensor.shape[:tensor.n_dims], list(shape))
        self.assertEqual(tensor.strides[tensor.n_dims - 1], 1)
        self.assertEqual(tensor.offset, 0)

    def test_structures(self):
        data, labels = self.batch.data, self.batch.labels
        self.assertEqual(data.__dlpack_device__(), (1, 0))
        old = data.__dlpack__()
        self.check(tensor_of(old, b"dltensor", Tensor), data, 1, 8, (8, RECORD_BYTES))
        new = labels.__dlpack__(max_version=(1, 2), dl_device=(1, 0), copy=False)
        versioned = tensor_of(new, b"dltensor_versioned", Versioned)
        self.assertEqual((versioned.major, versioned.flags), (1, 1))
        self.check(versioned.tensor, labels, 0, 64, (8,))
        writable = data.__dlpack__(max_version=(1, 0))
        self.assertEqual(tensor_of(writable, b"dltensor_versioned", Versioned).flags, 0)
        self.assertIn("dltensor", repr(data.__dlpack__(max_version=(0, 8))))

    def test_refusals(self):
        for arguments in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": 1}):
            with self.subTest(arguments), self.assertRaises(BufferError):
                self.batch.data.__dlpack__(**arguments)
        with self.assertRaises(BufferError):  # read-only, and no way to say so
            self.batch.labels.__dlpack__()
        with self.assertRaises(TypeError):
            self.batch.data.__dlpack__(max_version=3)

    def test_capsule_holds_the_batch(self):
        capsule = self.batch.data.__dlpack__()
        self.assertFalse(self.batch.release())
        pointer = tensor_of(capsule, b"dltensor", Tensor).data
        expected = record(stoker.Order(RECORDS).ids(0)[0])
        self.assertEqual(ctypes.string_at(pointer, RECORD_BYTES), expected)
        second = next(self.loader)
        with self.assertRaises(stoker.Error):
            next(self.loader)
        del capsule  # was never taken out of: ends the loan
        self.assertIsNotNone(next(self.loader))
        second.release()

    @unittest.skipUnless(numpy and hasattr(numpy, "from_dlpack"), "needs NumPy 1.22")
    def test_numpy(self):
        array = numpy.from_dlpack(self.batch.data)
        self.assertEqual(array.ctypes.data, address(self.batch.data))
        self.assertEqual(array.shape, (8, RECORD_BYTES))
        self.assertFalse(self.batch.release())
        del array
        self.assertEqual(self.loader.stats()["batches"], 1)
        held = [next(self.loader), next(self.loader)]  # both loans are free again
        self.assertEqual(len(held), 2)


class Datasets(DataTest):
    def test_locate_and_info(self):
        with stoker.Engine() as engine:
            data = self.open_records(engine, index_path=self.folder / "index")
            self.assertTrue(data.info()["index_built"])
            self.assertEqual(data.locate(3), (str(self.folder / "records.bin"), 3 * RECORD_BYTES,
                                              RECORD_BYTES, -1))
            self.assertEqual(data.info()["bytes"], RECORDS * RECORD_BYTES)
            with self.assertRaises(IndexError):
                data.locate(RECORDS)
            with self.assertRaises(OverflowError):
                data.locate(-1)
            data.close()
            again = stoker.Dataset(engine, self.folder / "records.bin", "record",
                                   record_bytes=RECORD_BYTES, index_path=self.folder / "index")
            self.assertFalse(again.info()["index_built"])

    def test_windows_of_tokens(self):
        tokens = list(range(100))
        (self.folder / "tokens").write_bytes(struct.pack("<100H", *tokens))
        with stoker.Engine() as engine:
            data = stoker.Dataset(engine, self.folder / "tokens", "window", token_bytes=2,
                                  window_tokens=11, stride_tokens=10)
            batch = next(stoker.Loader(engine, data, 4, shuffle=False))
            rows = memoryview(batch.data).tobytes()
            first = struct.unpack("<11H", rows[22:44])
            self.assertEqual(list(first), tokens[10:21])


if __name__ == "__main__":
    unittest.main()
