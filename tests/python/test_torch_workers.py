# SPDX-License-Identifier: Apache-2.0
"""Worker processes: torch's own random values, errors, deaths, and what they leave behind."""

import gc
import glob
import os
import signal
import threading
import time
import traceback
import unittest

from torch_support import (DataTest, DataLoader, Failing, Noisy, Squares, TorchLoader,
                           default_state, run_script, same, support, torch)

FLAT_BATCHES = 2_000


class Told(Squares):
    """Says who made a sample, and counts what it has made."""

    n_made = 0

    def __getitem__(self, sample):
        info = torch.utils.data.get_worker_info()
        self.n_made += 1
        return torch.tensor([sample, info.id, info.num_workers, info.seed - info.id,
                             self.n_made, self.count])


class Shapes(Squares):
    """Everything that a batch may be made of."""

    def __getitem__(self, sample):
        images = torch.arange(48.0).view(2, 3, 2, 4) + sample
        things = {"last": images.to(memory_format=torch.channels_last), "turned": images.t()
                  if images.dim() < 3 else images.transpose(0, 1)[:, :, 1:], "empty": images[:0],
                  "half": images.half(), "flag": images > 9, "name": str(sample), "none": None,
                  "pair": (images[0, 0, 0, 0], 3.5),
                  "complex": torch.complex(images, images).conj(),
                  "bytes": b"12", "brain": images.to(torch.bfloat16)}
        if support.numpy:
            things["array"] = images.numpy().T
        return things


def as_list(samples):
    return list(samples)


def no_random_hash(worker):
    """A worker_init_fn: what it sets is seen by the samples."""
    import random
    torch.utils.data.get_worker_info().dataset.count += 1000 + worker
    random.seed(worker)


class Dying(Squares):
    def __getitem__(self, sample):
        if sample == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return sample


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one}, {two}")


class Raising(Squares):
    def __getitem__(self, sample):
        raise Odd(1, 2)


class Slow(Squares):
    def __getitem__(self, sample):
        time.sleep(5)
        return sample


class Workers(DataTest):
    def test_torchs_very_values(self):
        """With several epochs, and with workers that stay."""
        for stays in (False, True):
            runs = []
            for kind, more in ((TorchLoader, {}), (DataLoader, {"transform_seed": "worker"})):
                torch.manual_seed(11)
                loader = kind(Noisy(23), 4, shuffle=True, num_workers=2, persistent_workers=stays,
                              **more)
                runs.append([[list(loader), default_state()] for _ in range(2)])
            self.assertTrue(same(*runs))

    def test_keyed_by_sample(self):
        runs = []
        for workers in (1, 2):
            torch.manual_seed(11)
            runs.append(list(DataLoader(Noisy(12), 4, shuffle=True, num_workers=workers)))
        self.assertTrue(same(*runs))

    def test_who_and_how_often(self):
        for stays in (False, True):
            torch.manual_seed(5)
            loader = DataLoader(Told(10), 2, num_workers=2, worker_init_fn=no_random_hash,
                                persistent_workers=stays)
            for epoch in range(2):
                rows = torch.cat(list(loader)).tolist()
                self.assertEqual([row[0] for row in rows], list(range(10)))
                self.assertEqual([row[1] for row in rows], [0, 0, 1, 1] * 2 + [0, 0])
                self.assertEqual({row[2] for row in rows}, {2})
                self.assertEqual({row[5] for row in rows}, {1010, 1011})
                n_before = 6 if stays and epoch else 0
                self.assertEqual(max(row[4] for row in rows), 6 + n_before)
            loader.dataset.count = 8  # seen by workers that are new, or as good as new
            rows = torch.cat(list(loader)).tolist()
            self.assertEqual({row[5] for row in rows}, {1010, 1011} if stays else {1008, 1009})

    def test_everything_comes_over(self):
        loader = DataLoader(Shapes(5), 3, num_workers=1, collate_fn=as_list)
        got = [sample for batch in loader for sample in batch]
        for sample, expected in zip(got, Shapes(5)):
            for name, thing in expected.items():
                if name == "array":
                    self.assertTrue((sample[name] == thing).all())
                else:
                    self.assertTrue(same(sample[name], thing), name)
            self.assertEqual(sample["last"].stride(), expected["last"].stride())
            sample["half"] += 1  # it is the caller's own
        self.assertTrue(same(got[1]["half"], Shapes(5)[1]["half"] + 1))
        got[2]["flag"].zero_()
        file = self.folder / "saved.pt"
        torch.save(got[0]["half"], file)
        self.assertLess(file.stat().st_size, 5000)  # of itself alone, not of its batch

    def test_errors(self):
        loader = iter(DataLoader(Failing(12), 4, num_workers=2))
        self.assertEqual(next(loader)[0].tolist(), [0, 1, 2, 3])
        with self.assertRaises(ZeroDivisionError) as caught:
            next(loader)
        text = "".join(traceback.format_exception(None, caught.exception,
                                                  caught.exception.__traceback__))
        self.assertIn("in break_down", text)
        self.assertEqual(next(loader)[0].tolist(), [8, 9, 10, 11])
        with self.assertRaises(RuntimeError) as caught:  # it cannot be made here
            next(iter(DataLoader(Raising(3), num_workers=1)))
        self.assertIn("Odd: 1, 2", str(caught.exception))

    def test_death(self):
        loader = iter(DataLoader(Dying(12), 2, num_workers=2))
        next(loader), next(loader)
        with self.assertRaises(RuntimeError) as caught:
            next(loader)
        self.assertIn("signal 9", str(caught.exception))

    def test_what_cannot_be_sent(self):
        with self.assertRaises(TypeError) as caught:
            iter(DataLoader(Squares(3), num_workers=1, collate_fn=lambda samples: 1))
        self.assertIn("stoker_thread_safe", str(caught.exception))

    def test_timeout_and_ctrl_c(self):
        loader = iter(DataLoader(Slow(4), num_workers=1, timeout=4))
        threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            next(loader)
        self.assertLess(time.monotonic() - began, 3)
        with self.assertRaises(RuntimeError):
            next(iter(DataLoader(Slow(4), num_workers=1, timeout=0.1)))

    def test_two_at_once_and_break(self):
        loader = DataLoader(Squares(12), 4, num_workers=1)
        pairs = [(one[0].tolist(), other[0].tolist()) for one, other in zip(loader, loader)]
        self.assertEqual([one for one, _ in pairs], [other for _, other in pairs])
        for _ in range(5):
            for batch in loader:
                break
            self.assertEqual(batch[0].tolist(), [0, 1, 2, 3])

    def test_memory_and_files_are_flat(self):
        loader = DataLoader(Squares(800), 4, shuffle=True, num_workers=1)
        n_batches, before = 0, None
        shared = set(glob.glob("/dev/shm/*"))
        kept = []
        while n_batches < FLAT_BATCHES:
            for batch in loader:
                n_batches += 1
                kept.append(batch)
            gc.collect()
            n_files = len(os.listdir("/proc/self/fd"))
            before = before or n_files
            self.assertLessEqual(n_files, before)
        kept.clear()
        resident = support.resident_bytes()
        for batch in loader:
            pass
        self.assertLess(support.resident_bytes() - resident, 8 << 20)
        self.assertEqual(set(glob.glob("/dev/shm/*")) - shared, set())


UNGUARDED = """
import torch_support as t
loader = iter(t.DataLoader(t.Squares(8), num_workers=1))
try:
    next(loader)
except RuntimeError as error:
    print(error)
"""
ENDS = {
    "in mid-run": "next(loader)",
    "from within a loop": "for batch in loader: sys.exit(0)",
    "with a batch": "held = next(loader)",
    "not begun": "",
}
START = """
import sys
import torch_support as t
loader = iter(t.DataLoader(t.Squares(1000), 4, num_workers=2))
"""


class Ends(DataTest):
    def test_ends(self):
        for name, text in ENDS.items():
            with self.subTest(name):
                done = run_script(START + text)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_without_a_guard(self):
        """A program that starts its workers while it is imported is told so."""
        program = self.folder / "program.py"
        program.write_text(UNGUARDED, encoding="utf-8")
        done = run_script(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
