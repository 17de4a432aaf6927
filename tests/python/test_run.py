# SPDX-License-Identifier: Apache-2.0
"""Epochs, positions, orders, pushed lists, statistics, errors and Ctrl-C."""

import array
import errno
import pickle
import signal
import subprocess
import sys
import time
import unittest

from support import (PACKAGE, RECORD_BYTES, RECORDS, DataTest, numpy, stoker)

INTERRUPT_LIMIT_S = 0.1


class Run(DataTest):
    def setUp(self):
        super().setUp()
        self.engine = stoker.Engine("ram:16M")
        self.data = self.open_records(self.engine)

    def loader(self, batch_size=8, epochs=3, **options):
        return stoker.Loader(self.engine, self.data, batch_size, epochs, **options)


class Positions(Run):
    def test_epochs_one_by_one(self):
        loader = self.loader()
        for epoch in range(3):
            steps = [(batch.epoch, batch.epoch_step) for batch in loader.epoch()]
            self.assertEqual(steps, [(epoch, step) for step in range(13)])
        self.assertEqual(list(loader.epoch()), [])

    def test_epoch_goes_on_where_it_was_left(self):
        loader = self.loader()
        for batch in loader.epoch():
            if batch.epoch_step == 4:
                break
        self.assertEqual([batch.epoch_step for batch in loader.epoch()], list(range(5, 13)))
        epoch = loader.epoch()
        for _ in epoch:
            pass
        self.assertIsNone(next(epoch, None))  # over for good
        self.assertEqual(next(loader).epoch, 2)

    def test_state(self):
        whole = [batch.samples.tolist() for batch in self.loader(seed=3)]
        for at in (0, 1, 12, 13, 20, 38, 39):
            loader = self.loader(seed=3)
            for _ in range(at):
                next(loader)
            state = loader.state()
            self.assertIsInstance(state, bytes)
            other = self.loader(seed=3)
            next(other).release()
            other.restore(bytearray(state))
            self.assertEqual([batch.samples.tolist() for batch in other], whole[at:])

    def test_state_of_another_run_is_refused(self):
        state = self.loader(seed=3).state()
        with self.assertRaises(stoker.Error) as caught:
            self.loader(seed=4).restore(state)
        self.assertEqual(caught.exception.code, stoker.E_MISMATCH)
        self.assertIn("order", caught.exception.message)
        with self.assertRaises(stoker.Error) as caught:
            self.loader().restore(state[:-1] + bytes([state[-1] ^ 1]))
        self.assertEqual(caught.exception.code, stoker.E_CORRUPT)
        with self.assertRaises(TypeError):
            self.loader().restore("state")

    def test_seek(self):
        loader = self.loader(seed=3)
        held = next(loader)
        with self.assertRaises(stoker.Error) as caught:
            loader.seek(1, 2)
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        with self.assertRaises(stoker.Error):
            loader.restore(loader.state())
        held.release()
        loader.seek(1, epoch_step=2)
        batch = next(loader)
        self.assertEqual((batch.epoch, batch.epoch_step), (1, 2))
        self.assertEqual(batch.samples.tolist(),
                         stoker.Order(RECORDS, seed=3).ids(1, 16, 8).tolist())
        del batch
        loader.seek(0)
        self.assertEqual(next(loader).epoch_step, 0)
        with self.assertRaises(stoker.Error):
            self.loader().seek(5)


class Orders(Run):
    def test_ids(self):
        order = stoker.Order(10, seed=42)
        self.assertEqual(order.ids(0).tolist(), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7])  # torch.randperm
        self.assertEqual(order.ids(0, first=2, count=3).tolist(), [1, 8, 4])
        self.assertEqual(order.ids(epoch=0, first=8).tolist(), [3, 7])
        self.assertEqual((len(order), order.ids(0).format), (10, "Q"))
        self.assertEqual(order.frequency(0, 3).tolist(), [3] * 10)
        self.assertEqual(order.ids(0, 10).tolist(), [])
        for first, count in ((11, None), (0, 11), (5, 6)):
            with self.assertRaises(IndexError):
                order.ids(0, first, count)
        if numpy:
            ids = numpy.asarray(order.ids(1))
            ids.sort()  # is the caller's own
            self.assertEqual(ids.tolist(), list(range(10)))

    def test_ranks_share_an_epoch(self):
        parts = [self.loader(5, 1, seed=1, world=4, rank=rank) for rank in range(4)]
        ids = sorted(s for part in parts for batch in part for s in batch.samples)
        self.assertEqual(ids, list(range(RECORDS)))

    def test_an_order_as_an_object(self):
        order = stoker.Order(RECORDS, "keyed", seed=9, world=2, rank=1)
        loader = self.loader(order=order, epochs=1)
        self.assertEqual([s for batch in loader for s in batch.samples], order.ids(0).tolist())
        with self.assertRaises(TypeError):
            self.loader(order=order, seed=1)
        with self.assertRaises(stoker.Error):  # of another length
            self.loader(order=stoker.Order(RECORDS + 1))

    def test_refused(self):
        for arguments, kind in (((0,), stoker.Error), ((10, "tarot"), ValueError),
                                ((), stoker.Error), ((10, "torch", 1), TypeError)):
            with self.assertRaises(kind):
                stoker.Order(*arguments)
        with self.assertRaises(stoker.Error):
            stoker.Order(10, world=2, rank=2)
        with self.assertRaises(OverflowError):
            stoker.Order(10, world=1 << 32)
        with self.assertRaises(TypeError):
            stoker.Order(10, n=10)
        with self.assertRaises(stoker.Error):
            stoker.Order(10, "list").ids(0)


class Pushed(Run):
    def test_lists_and_buffers(self):
        loader = self.loader(4, order="list", drop_last=False)
        with self.assertRaises(stoker.Error) as caught:
            next(loader)
        self.assertEqual(caught.exception.errno, errno.EAGAIN)
        loader.push([5, 3, 1])
        loader.push(array.array("Q", [2, 9]))
        loader.push(array.array("q", [8]), end_epoch=True)
        if numpy:
            loader.push(numpy.array([7, 7]), end_epoch=True)
        else:
            loader.push((7, 7), end_epoch=True)
        loader.push(end_run=True)
        got = [(batch.epoch, batch.samples.tolist()) for batch in loader]
        self.assertEqual(got, [(0, [5, 3, 1, 2]), (0, [9, 8]), (1, [7, 7])])

    def test_refused(self):
        loader = self.loader(4, order="list")
        for ids, kind in (([RECORDS], stoker.Error), ([-1], OverflowError), (["1"], TypeError),
                          (array.array("i", [1]), TypeError), (b"12345678", TypeError),
                          (3, TypeError),
                          (array.array("d", [1.0]), TypeError),
                          (array.array("q", [-1]), stoker.Error)):
            with self.subTest(ids), self.assertRaises(kind):
                loader.push(ids)
        with self.assertRaises(stoker.Error):
            self.loader().push([1])
        with self.assertRaises(stoker.Error):
            loader.state()


class Figures(Run):
    def test_stats(self):
        loader = self.loader(epochs=2)
        for _ in loader:
            pass
        whole, first, second = loader.stats(), loader.stats(0), loader.stats(epoch=1)
        self.assertEqual((whole["epoch"], first["epoch"]), (None, 0))
        self.assertEqual(whole["samples"], 2 * RECORDS)
        self.assertEqual(whole["bytes"], first["bytes"] + second["bytes"])
        self.assertEqual(whole["origin_bytes"], RECORDS * RECORD_BYTES)
        self.assertEqual(whole["bound_bytes"], whole["origin_bytes"])
        self.assertEqual(second["tier_samples"], {"ram": 100, "ssd": 0, "peer": 0, "origin": 0})
        self.assertEqual(sum(second["tier_bytes"].values()), second["bytes"])
        with self.assertRaises(KeyError):
            loader.stats(7)
        self.assertGreater(self.engine.stats()["reads"], 0)
        self.assertIn(self.engine.io_method, ("uring", "sync"))

    def test_bad_samples(self):
        files = [self.folder / "files" / f"{sample}" for sample in range(10)]
        files[0].parent.mkdir()
        for file in files:
            file.write_bytes(b"x" * 100)
        data = stoker.Dataset(self.engine, files[0].parent, "folder")
        files[4].unlink()
        for options, samples in (({}, 8), ({"bad_sample": "replace"}, 10)):
            loader = stoker.Loader(self.engine, data, 2, shuffle=False, retries=0, **options)
            count = 0
            while True:
                try:
                    batch = next(loader)
                except stoker.Error as error:
                    self.assertEqual((error.code, error.sample), (stoker.E_SAMPLE, 4))
                    self.assertEqual(error.path, str(files[4]))
                    self.assertIsNone(error.errno)
                    self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))
                    continue
                except StopIteration:
                    break
                count += batch.count
            self.assertEqual(count, samples)
            if options:
                [(epoch, sample, replacement, code)] = loader.replacements()
                self.assertEqual((epoch, sample, replacement), (0, 4, 5))
                self.assertLess(code, 0)
            else:
                self.assertEqual(loader.replacements(), [])


class Refusals(Run):
    def test_words(self):
        gone = stoker.Engine()
        gone.close()
        checkpoints = stoker.Checkpoints(self.engine, self.folder / "checkpoints")
        loader = self.loader()
        cases = [
            (lambda: stoker.Engine("tape:1G"), stoker.Error, "tape"),
            (lambda: stoker.Engine("ram:1M", "uring"), TypeError, "positional"),
            (lambda: stoker.Engine(workers="many"), TypeError, "int"),
            (lambda: stoker.Engine(workers=-1), OverflowError, "workers"),
            (lambda: stoker.Engine(workers=1000), stoker.Error, "workers"),
            (lambda: stoker.Engine(tiers="ram:1M\0"), ValueError, "zero byte"),
            (lambda: stoker.Engine(shape=3), TypeError, "shape"),
            (lambda: stoker.Engine(colour="red"), TypeError, "colour"),
            (lambda: stoker.Dataset(self.engine), TypeError, "path"),
            (lambda: stoker.Dataset("engine", "path"), TypeError, "engine"),
            (lambda: stoker.Dataset(self.engine, self.folder / "no"), stoker.Error, "no"),
            (lambda: stoker.Dataset(self.engine, 3), TypeError, "int"),
            (lambda: stoker.Dataset(self.engine, "x", "tarball"), ValueError, "class-folder"),
            (lambda: stoker.Dataset(self.engine, "x", format="npy", path="y"), TypeError, "twice"),
            (lambda: self.loader(policy="best"), ValueError, "next-use"),
            (lambda: self.loader(policy=3), ValueError, "policy"),
            (lambda: self.loader(batch_size=0), stoker.Error, "batch_size"),
            (lambda: self.loader(borrow_max=100), stoker.Error, "borrow_max"),
            (lambda: self.loader(staging_bytes=10), stoker.Error, ""),
            (lambda: self.loader(seed=1 << 63), OverflowError, "seed"),
            (lambda: stoker.Loader(self.engine, self.data), stoker.Error, "batch_size"),
            (lambda: stoker.Loader(stoker.Engine(), self.data, 4), ValueError, "another engine"),
            (lambda: stoker.Checkpoints(self.engine), TypeError, "'directory' is required"),
            (lambda: stoker.Checkpoints(gone, self.folder / "c"), ValueError, "engine"),
            (lambda: stoker.Dataset(gone, self.folder), ValueError, "engine"),
            (lambda: checkpoints.__init__(self.engine, "x"), RuntimeError, "are open already"),
            (lambda: loader.__init__(self.engine, self.data, 4), RuntimeError, "loader is open"),
            (lambda: self.data.__init__(self.engine, "x"), RuntimeError, "already"),
            (lambda: self.engine.__init__(), RuntimeError, "already"),
        ]
        for number, (call, kind, words) in enumerate(cases):
            with self.subTest(number), self.assertRaises(kind) as caught:
                call()
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(OSError) as caught:
            stoker.Dataset(self.engine, self.folder / "no")
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertEqual(caught.exception.filename, str(self.folder / "no"))
        self.assertEqual(stoker.__version__.count("."), 2)


CTRL_C = f"""
import sys, time
sys.path.insert(0, {PACKAGE!r})
import stoker
engine = stoker.Engine(shape="rlat=900ms")
data = stoker.Dataset(engine, sys.argv[1], "record", record_bytes={RECORD_BYTES})
loader = stoker.Loader(engine, data, 4, shuffle=False)
print("ready", flush=True)
try:
    next(loader)
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
print(next(loader).step)
"""


class Interrupts(DataTest):
    def measure(self, path):
        with subprocess.Popen([sys.executable, "-c", CTRL_C, str(path)], stdout=subprocess.PIPE,
                              text=True) as child:
            self.assertEqual(child.stdout.readline(), "ready\n")
            time.sleep(0.2)
            sent = time.monotonic()
            child.send_signal(signal.SIGINT)
            caught = float(child.stdout.readline())
            self.assertEqual(child.stdout.read(), "0\n")  # and it can go on
        self.assertEqual(child.returncode, 0)
        return caught - sent

    def test_ctrl_c(self):
        """The least of some tries: what else runs on the machine is not measured."""
        path = self.make_records()
        self.assertLess(min(self.measure(path) for _ in range(3)), INTERRUPT_LIMIT_S)

    def test_handlers_stay(self):
        handler = signal.getsignal(signal.SIGALRM)
        called = []
        signal.signal(signal.SIGALRM, lambda *_: called.append(time.monotonic()))
        try:
            with stoker.Engine(shape="rlat=300ms") as engine:
                loader = stoker.Loader(engine, self.open_records(engine), 4)
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                self.assertEqual(next(loader).step, 0)  # the handler runs, the wait goes on
                self.assertEqual(len(called), 1)
        finally:
            signal.signal(signal.SIGALRM, handler)


if __name__ == "__main__":
    unittest.main()
