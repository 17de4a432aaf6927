# SPDX-License-Identifier: Apache-2.0
"""Memory over many checkpoints: it does not grow with each of them."""

import ctypes
import os
import unittest

from support import PART, SAVES, DataTest, run_parts, run_without_thread_caches, stoker

LEAF_BYTES = 3000


class Many(DataTest):
    def test_saves(self):
        arrays = {f"layer{number}.weight": bytearray(LEAF_BYTES) for number in range(20)}
        for given in (arrays, stoker.Tensors(arrays, stable=True)):
            with stoker.Engine() as engine, stoker.Checkpoints(
                    engine, self.folder / type(given).__name__, keep=2) as saved:

                def save(step):
                    saved.fence()
                    arrays["layer0.weight"][:4] = step.to_bytes(4, "little")
                    saved.save(step, given, blobs={"rng": bytes(500)}, stable=True)

                growth = run_parts(save, saved.wait)
                self.assertEqual(saved.latest(), SAVES - 1)
            growth.check(self, PART)

    def test_opens_and_loads(self):
        target = bytearray(LEAF_BYTES)
        with stoker.Engine() as engine, \
                stoker.Checkpoints(engine, self.folder / "run", keep=2) as saved:

            def save(step):
                saved.save(step, {"weight": bytes([step % 256]) * LEAF_BYTES}, blobs={"b": b"1"})
                saved.wait()
                with saved.open() as view:
                    view.load({"weight": target})
                    view.blob("b"), view.tensors(), view.info()
                self.assertEqual(target[0], step % 256)

            run_parts(save).check(self, PART)

    def test_what_fails(self):
        with stoker.Engine() as engine, stoker.Checkpoints(engine, self.folder / "run") as saved:

            def save(step):
                for given in ({"t": object()}, {"t": ("F99", [1], b"1")}, {"t": ("U8", [7], b"1")}):
                    with self.assertRaises((TypeError, ValueError, stoker.Error)):
                        saved.save(step, given)

            run_parts(save).check(self, PART)

    def test_a_leak_shows(self):
        """The least of what may be lost with each save is seen."""
        lost = []
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        libc.malloc.argtypes = [ctypes.c_size_t]
        libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        for leak in (lambda step: lost.append([step]), lambda step: libc.malloc(24),
                     lambda step: libc.memset(libc.malloc(3000), 1, 3000),
                     lambda step: lost.append(os.open("/", os.O_RDONLY)) if step % PART == 0
                     else None):
            growth = run_parts(leak)
            with self.assertRaises(AssertionError):
                growth.check(self, PART)
        for file in lost:
            if isinstance(file, int):
                os.close(file)


if __name__ == "__main__":
    run_without_thread_caches()
    unittest.main()
