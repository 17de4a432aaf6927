# SPDX-License-Identifier: Apache-2.0
"""Who keeps whom: loans, deletion in any order, cycles, threads, forks and the end of a process."""

import gc
import itertools
import os
import sys
import threading
import time
import unittest
import weakref

from support import (RECORD_BYTES, DataTest, numpy, record, resident_bytes, run_script, stoker)

FLAT_BATCHES = 10_000


class Loans(DataTest):
    def setUp(self):
        super().setUp()
        self.engine = stoker.Engine("ram:16M")
        self.data = self.open_records(self.engine)

    def test_a_held_batch_is_borrowed(self):
        loader = stoker.Loader(self.engine, self.data, 5, borrow_max=2)
        first, second = next(loader), next(loader)
        with self.assertRaises(stoker.Error) as caught:
            next(loader)
        self.assertEqual(caught.exception.code, stoker.E_BORROW)
        self.assertIn("borrow_max", str(caught.exception))
        self.assertTrue(first.release())
        self.assertTrue(first.release())  # again: nothing happens
        third = next(loader)
        self.assertEqual([second.step, third.step], [1, 2])
        self.assertEqual((first.step, len(first)), (0, 5))  # numbers stay
        for use in (lambda: first.data, lambda: first.items, lambda: first.labels):
            with self.assertRaises(ValueError):
                use()

    def test_a_view_holds_the_loan(self):
        loader = stoker.Loader(self.engine, self.data, 5, borrow_max=2)
        batch = next(loader)
        expected, array, view = bytes(batch.data), batch.data, memoryview(batch.data)
        self.assertFalse(batch.release())
        other = next(loader)
        with self.assertRaises(stoker.Error):
            next(loader)
        with self.assertRaises(ValueError):
            memoryview(array)  # no new ones
        self.assertEqual(bytes(view), expected)
        view.release()
        self.assertIsNotNone(next(loader))
        other.release()

    def test_borrow_max_and_blocks(self):
        loader = stoker.Loader(self.engine, self.data, 5, epochs=2, borrow_max=20)
        held = [next(loader) for _ in range(20)]
        self.assertEqual([batch.step for batch in held], list(range(20)))
        with self.assertRaises(stoker.Error):
            next(loader)
        with held[3] as batch:
            self.assertEqual(batch.step, 3)
        with self.assertRaises(ValueError), held[3]:
            pass
        with self.assertRaises(KeyError), held[4]:
            raise KeyError  # is not swallowed
        self.assertEqual([next(loader).step for _ in range(2)], [20, 21])

    def test_close_waits_for_views(self):
        loader = stoker.Loader(self.engine, self.data, 5, shuffle=False)
        batch = next(loader)
        view = memoryview(batch.data)
        loader.close()
        self.engine.close()
        self.data.close()
        for use in (lambda: next(loader), loader.stats, lambda: batch.data, lambda: len(self.data),
                    self.engine.stats, lambda: stoker.Loader(self.engine, self.data, 5)):
            with self.assertRaises(ValueError):
                use()
        self.assertEqual(bytes(view)[:RECORD_BYTES], record(0))
        view.release()
        loader.close()

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_arrays_outlive_everything(self):
        loader = stoker.Loader(self.engine, self.data, 5, shuffle=False)
        array = numpy.asarray(next(loader).data)
        self.engine = self.data = loader = None
        gc.collect()
        self.assertEqual(array.tobytes(), b"".join(record(sample) for sample in range(5)))


class AnyOrder(DataTest):
    def test_deletion_in_any_order(self):
        path = self.make_records(20)
        for order in itertools.permutations(range(6)):
            if order[0] > order[1] and order[2] > order[3]:
                continue  # a good part is enough
            engine = stoker.Engine("ram:1M", io_method="sync", workers=1, io_threads=1)
            data = stoker.Dataset(engine, path, "record", record_bytes=RECORD_BYTES)
            loader = stoker.Loader(engine, data, 4, epochs=None, staging_bytes=1 << 16,
                                   staging_batches=8)
            batch = next(loader)
            things = [engine, data, loader, batch, memoryview(batch.data), batch.items]
            del engine, data, loader, batch
            for which in order:
                things[which] = None

    def test_cycles_are_collected(self):
        class Held(stoker.Loader):
            pass

        with stoker.Engine() as engine:
            data = self.open_records(engine)
            for hold in (lambda held: held, next, lambda held: next(held).data,
                         lambda held: held.epoch(), lambda held: memoryview(next(held).data),
                         lambda held: next(held).items):
                loader = Held(engine, data, 4)
                loader.itself = hold(loader)
                gone = weakref.ref(loader)
                del loader
                gc.collect()
                self.assertIsNone(gone())

    def test_early_break(self):
        with stoker.Engine() as engine:
            data = self.open_records(engine)
            for at in range(20):
                for batch in stoker.Loader(engine, data, 4, epochs=50):
                    if batch.step >= at:
                        break

    def test_failed_opens_leave_nothing(self):
        engine = stoker.Engine()
        data = self.open_records(engine)
        before = sys.getrefcount(engine), sys.getrefcount(data)
        for options in ({"batch_size": 0}, {"batch_size": 4, "policy": "best"},
                        {"batch_size": 4, "colour": 1}, {"batch_size": 4, "staging_bytes": 1}):
            with self.assertRaises((stoker.Error, ValueError, TypeError)):
                stoker.Loader(engine, data, **options)
            with self.assertRaises((stoker.Error, TypeError)):
                stoker.Dataset(engine, self.folder / "gone")
        self.assertEqual((sys.getrefcount(engine), sys.getrefcount(data)), before)
        data.close()
        engine.close()

    def test_objects_that_were_never_opened(self):
        for kind in (stoker.Engine, stoker.Dataset, stoker.Loader):
            empty = kind.__new__(kind)
            empty.close()
        with self.assertRaises(ValueError):
            next(stoker.Loader.__new__(stoker.Loader))
        with self.assertRaises(stoker.Error):
            stoker.Order.__new__(stoker.Order).ids(0)
        for kind in (stoker.Batch, stoker.Array):
            with self.assertRaises(TypeError):
                kind()


class Memory(DataTest):
    def test_flat_over_many_batches(self):
        with stoker.Engine("ram:16M") as engine:
            data = self.open_records(engine)
            loader = stoker.Loader(engine, data, 4, epochs=None, staging_bytes=1 << 20)
            blocks, types, resident = [], None, None
            for batch in loader:
                memoryview(batch.data)
                batch.labels.tolist()
                for part in batch.items:
                    part[0]
                if numpy:
                    numpy.from_dlpack(batch.data)
                if batch.step > 0 and batch.step % (FLAT_BATCHES // 5) == 0:
                    gc.collect()
                    blocks.append(sys.getallocatedblocks())
                if batch.step == FLAT_BATCHES // 5:
                    resident = resident_bytes()
                    types = sys.getrefcount(stoker.Batch), sys.getrefcount(stoker.Array)
                if batch.step == FLAT_BATCHES:
                    break
            gc.collect()
            # What is lost with batches is lost in every part of the run; what Python and NumPy
            # come to need once, a hundred blocks or two, is not. One lost in a hundred batches
            # shows.
            grown = [after - before for before, after in zip(blocks, blocks[1:])]
            self.assertEqual(len(grown), 4)
            self.assertLess(min(grown), FLAT_BATCHES // 5 // 100)
            self.assertEqual((sys.getrefcount(stoker.Batch), sys.getrefcount(stoker.Array)), types)
            self.assertLess(resident_bytes() - resident, 4 << 20)


class Threads(DataTest):
    def setUp(self):
        super().setUp()
        self.engine = stoker.Engine(shape="rlat=300ms")
        self.loader = stoker.Loader(self.engine, self.open_records(self.engine), 50, epochs=2,
                                    staging_batches=4, borrow_max=2)

    def wait_in_thread(self):
        """Starts a thread that waits in next; returns it and where its outcome will be."""
        outcome = []

        def wait():
            try:
                outcome.append(next(self.loader))
            except (stoker.Error, ValueError) as error:
                outcome.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        return thread, outcome

    def test_others_run_meanwhile_and_are_kept_out(self):
        thread, outcome = self.wait_in_thread()
        self.assertTrue(thread.is_alive())  # and this line was reached
        for use in (lambda: next(self.loader), self.loader.state, lambda: self.loader.seek(0)):
            with self.assertRaises(RuntimeError):
                use()
        self.assertEqual(self.loader.stats()["batches"], 0)
        thread.join()
        self.assertEqual(outcome[0].step, 0)

    def test_a_batch_is_dropped_while_another_is_waited_for(self):
        held = [next(self.loader)]
        steps = []
        for _ in range(3):
            thread, outcome = self.wait_in_thread()
            held.clear()
            thread.join()
            held.append(outcome.pop())
            steps.append(held[0].step)
            del outcome
        self.assertEqual(steps, [1, 2, 3])

    def test_interrupt(self):
        thread, outcome = self.wait_in_thread()
        self.loader.interrupt()
        thread.join(0.15)
        self.assertFalse(thread.is_alive())
        self.assertIn("interrupted", str(outcome[0]))
        self.assertEqual(next(self.loader).step, 0)  # nothing is lost

    def test_close_ends_the_wait(self):
        thread, outcome = self.wait_in_thread()
        self.loader.close()
        thread.join()
        self.assertIsInstance(outcome[0], stoker.Error)
        with self.assertRaises(ValueError):
            next(self.loader)


ENDS = {
    "in mid-run": "next(loader)",
    "with a view": "batch = next(loader); view = memoryview(batch.data)",
    "with an array": "array = np.asarray(next(loader).data) if np else None",
    "with a tensor": "tensor = np.from_dlpack(next(loader).data) if np else None",
    "from within a loop": "for batch in loader: sys.exit(0)",
    "with a cycle": "class L(stoker.Loader): pass\nl = L(engine, data, 4)\nl.l = l\nnext(l)",
    "by an exception": "try: raise KeyError(next(loader))\nexcept KeyError as e: kept = e",
    "with a thread that waits": "import threading, time\n"
    "slow = stoker.Engine(shape='rlat=400ms')\n"
    "other = stoker.Loader(slow, stoker.Dataset(slow, sys.argv[1], 'record', record_bytes=96), 4)\n"
    "threading.Thread(target=lambda: next(other), daemon=True).start()\ntime.sleep(0.05)",
    "with the module gone": "next(loader); del sys.modules['stoker'], sys.modules['stoker._core']",
}
START = """
import sys
from support import numpy as np, stoker
engine = stoker.Engine('ram:1M')
data = stoker.Dataset(engine, sys.argv[1], 'record', record_bytes=96)
loader = stoker.Loader(engine, data, 4, epochs=None)
"""
FORK = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: of forks beside threads
first = next(loader)
child = os.fork()
if child == 0:
    view = bytes(first.data)
    for use in (lambda: next(loader), loader.state, loader.stats, engine.stats,
                lambda: data.locate(0), lambda: stoker.Loader(engine, data, 4)):
        try:
            use()
        except RuntimeError as error:
            assert "fork" in str(error), error
        else:
            sys.exit("it went on")
    loader.close()
    own = stoker.Engine()
    mine = stoker.Dataset(own, sys.argv[1], 'record', record_bytes=96)
    assert next(stoker.Loader(own, mine, 4)).step == 0
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
del first
for batch in loader:
    if batch.step == 100:
        break
"""


class Ends(DataTest):
    def run_end(self, text):
        done = run_script(START + text, self.make_records())
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_end_of_the_process(self):
        for name, text in ENDS.items():
            with self.subTest(name):
                self.run_end(text)

    def test_fork(self):
        self.run_end(FORK)


if __name__ == "__main__":
    unittest.main()
