# SPDX-License-Identifier: Apache-2.0
"""Ranks from Python: processes whose engines meet, save one checkpoint and load it together."""

import array
import os
import shutil
import socket
import subprocess
import sys
import unittest

import support
from support import DataTest, has_ucx, stoker

WORLD = 3
RANK = """
import array, os, sys, time
sys.path.insert(0, os.environ["STOKER_PYTHON_PACKAGE"])
import stoker

what, folder, port, rank, world = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
ROWS = 37

def exchange(mine):
    with open(f"{folder}/at{rank}.tmp", "wb") as file:
        file.write(mine)
    os.rename(f"{folder}/at{rank}.tmp", f"{folder}/at{rank}")
    paths = [f"{folder}/at{other}" for other in range(world)]
    while not all(map(os.path.exists, paths)):
        time.sleep(0.01)
    return [open(path, "rb").read() for path in paths]

def common(step):
    return array.array("i", range(step, step + 700_000))

def rows(first, last):
    return array.array("i", range(first * 10, last * 10))

def save(saved, step, **wrong):
    first, last = ROWS * rank // world, ROWS * (rank + 1) // world
    tensors = {"common": common(step), "pair": array.array("d", [step] * 9),
               f"own{rank}": array.array("q", [rank] * 100),
               "rows": ("I32", (last - first, 10), rows(first, last))}
    holdings = {f"own{rank}": stoker.Holding([rank]),
                "rows": stoker.Holding([rank], (ROWS, 10), (first, 0)),
                "pair": stoker.Holding(tuple(range(2)))}
    if rank >= 2:
        del tensors["pair"], holdings["pair"]
    tensors.update(wrong.pop("tensors", {}))
    saved.save(step, tensors, blobs={"rng": b"of %d" % rank}, holdings=holdings, **wrong)

engine = stoker.Engine(comm=stoker.Comm(
    rank, world, secret="of the test", start_timeout=30, timeout=3, transports="tcp",
    node=f"node{rank}" if what in ("nodes", "lost") else None,
    **({"exchange": exchange} if what == "save" else {"host": "127.0.0.1", "port": port})))
assert (engine.rank, engine.world) == (rank, world)
if what == "save":
    saved = stoker.Checkpoints(engine, f"{folder}/run", slot_bytes=1 << 16, chunk_bytes=1 << 16,
                               vote_timeout=20, shared=f"{folder}/far", shared_every=0)
    save(saved, 1)
    save(saved, 2, shared=True)
    saved.wait(60)
    saved.wait(60, level="shared")
    status = saved.status()
    assert (status["durable"], status["shared"], status["last_shared"]) == (2, 1, 2), status
    # One rank cannot: the save fails on all, by its name, and the next one is one again.
    for step, fail in ((3, lambda: save(saved, 3, tensors={"t": object()})),
                       (4, lambda: saved.decline(4, "it is too late"))):
        if rank == 1 and step == 3:
            try:
                fail()
                sys.exit("saved an object")
            except TypeError:
                pass
        elif rank == 1:
            fail()
        else:
            save(saved, step)
        try:
            saved.wait(60)
            assert rank == 1, "it was saved"
        except stoker.Error as error:
            assert error.rank == 1 or rank == 1, (rank, error, error.rank)
            assert step == 3 or "too late" in str(error), error
    save(saved, 5)
    saved.wait(60)
    saved.close()
elif what == "replicas":
    saved = stoker.Checkpoints(engine, f"{folder}/run", check_replicas=True, keep=0)
    save(saved, 7)
    saved.wait(60)
    differing = common(8)
    differing[99_999] += rank
    save(saved, 8, tensors={"common": differing})
    try:
        saved.wait(60)
        sys.exit("replicas that differ were saved")
    except stoker.Error as error:
        assert error.code == stoker.E_MISMATCH and "common" in str(error), error
    saved.close()
elif what == "load":
    saved = stoker.Checkpoints(engine, f"{folder}/run")
    with saved.open(5) as view:
        targets = {"common": array.array("i", bytes(2_800_000)),
                   "pair": array.array("d", bytes(72)),
                   "rows": ((5, 2), (20, 3), bytearray(240))}
        box = targets["rows"][2]
        view.load(targets, together=True)
        assert targets["common"] == common(5) and list(targets["pair"]) == [5] * 9
        assert list(array.array("i", bytes(box))) == \\
            [10 * (5 + at // 3) + 2 + at % 3 for at in range(60)]
        assert view.blob("rng") == b"of %d" % (rank if rank < 3 else 0)
    saved.close()
elif what in ("nodes", "lost"):
    saved = stoker.Checkpoints(engine, f"{folder}/node{rank}", node_local=True, partner=True)
    if what == "nodes":
        save(saved, 3)
        saved.wait(60, level="partner")
        status = saved.status()
        assert (status["partner"], status["last_partner"]) == (1, 3), status
    with saved.open(3) as view:
        content = array.array("i", bytes(2_800_000))
        view.load({"common": content})
        assert content == common(3)
    open(f"{folder}/{what}{rank}", "wb").close()
    while not all(os.path.exists(f"{folder}/{what}{other}") for other in range(world)):
        time.sleep(0.01)  # the others may still load from here
    saved.close()
elif what == "batches":
    data = stoker.Dataset(engine, f"{folder}/records.bin", "record", record_bytes=96)
    loader = stoker.Loader(engine, data, 5, epochs=2, seed=3, world=world, rank=rank)
    print(*[sample for batch in loader for sample in batch.samples.tolist()])
    loader.leave()
    assert loader.stats()["samples"] > 0
    loader.close()
    data.close()
engine.close()
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Descriptions(DataTest):
    def test_comm(self):
        comm = stoker.Comm(1, 2, secret="hidden")
        self.assertNotIn("hidden", repr(comm))
        for wrong, kind in ((stoker.Comm("one", 2), TypeError), (object(), AttributeError),
                            (stoker.Comm(0, 1, timeout=0), ValueError),
                            (stoker.Comm(0, 1, exchange=3), TypeError),
                            (stoker.Comm(2, 2, host="127.0.0.1", port=1), stoker.Error),
                            (stoker.Comm(0, 1, method="pigeons"), stoker.Error),
                            (stoker.Comm(0, 1, hosts=[5]), TypeError)):
            with self.subTest(str(kind)), self.assertRaises(kind):
                stoker.Engine(comm=wrong)
        with stoker.Engine(comm=None) as engine:
            self.assertEqual((engine.rank, engine.world), (0, 1))

    @unittest.skipUnless(has_ucx(), "built without UCX")
    def test_exchange(self):
        def fail(_):
            raise KeyError("lost")

        for exchange, kind in ((fail, KeyError), (lambda mine: [mine], ValueError),
                               (lambda mine: [mine, mine[:-1]], ValueError),
                               (lambda mine: 3, TypeError),
                               (lambda mine: [mine, "text"], TypeError)):
            with self.subTest(str(kind)), self.assertRaises(kind):
                stoker.Engine(comm=stoker.Comm(0, 2, exchange=exchange, start_timeout=20))

    def test_holdings(self):
        with stoker.Engine() as engine, \
                stoker.Checkpoints(engine, self.folder / "run",
                                   shared=self.folder / "far") as saved:
            content = {"t": array.array("i", range(12))}
            for holding in (stoker.Holding([1]), stoker.Holding([]), stoker.Holding([0], (24,)),
                            stoker.Holding([0], (24, 1), (0, 0)), stoker.Holding([0], (8,), (0,)),
                            object(), stoker.Holding(["a"]), stoker.Holding([-1])):
                with self.subTest(str(holding)), \
                        self.assertRaises((ValueError, TypeError, AttributeError, stoker.Error,
                                           OverflowError)):
                    saved.save(1, content, holdings={"t": holding})
            with self.assertRaisesRegex(ValueError, "'u'"):
                saved.save(1, content, holdings={"u": stoker.Holding()})
            saved.decline(1, "nobody votes")
            saved.save(1, content, holdings={"t": stoker.Holding([0], (12,), (0,))}, shared=True)
            saved.wait(20, level="shared")
            self.assertEqual(saved.status()["last_shared"], 1)
            with self.assertRaises(ValueError):
                saved.wait(level="moon")
            with saved.open() as view:
                self.assertEqual(view.tensors()["t"], ("I32", (12,), 48))
        with stoker.Engine() as engine, stoker.Checkpoints(engine, self.folder / "other") as saved:
            with self.assertRaises(stoker.Error):
                saved.save(1, content, shared=True)
            with self.assertRaises(stoker.Error):
                saved.wait(level="shared")
            for options in ({"writers": "cats"}, {"vote_timeout": -1}):
                with self.assertRaises(ValueError):
                    stoker.Checkpoints(engine, self.folder / "other", **options)

    def test_errors_name_ranks(self):
        error = stoker.Error(-5, "gone", rank=3)
        self.assertEqual((error.rank, error.sample), (3, None))
        self.assertIsNone(stoker.Error(-5, "gone").rank)


@unittest.skipUnless(has_ucx(), "built without UCX")
class Ranks(DataTest):
    def run_ranks(self, what, world):
        program = self.folder / "rank.py"
        program.write_text(RANK, encoding="utf-8")
        port = str(free_port())
        # A file each: with PYTHONUNBUFFERED a line is written in pieces.
        said = [self.folder / f"said{rank}" for rank in range(world)]
        ranks = []
        for rank in range(world):
            with open(said[rank], "w", encoding="utf-8") as out:
                ranks.append(subprocess.Popen(
                    [sys.executable, program, what, self.folder, port, str(rank), str(world)],
                    env=dict(os.environ, STOKER_PYTHON_PACKAGE=support.PACKAGE), stdout=out,
                    stderr=out))
        ended = [rank.wait(timeout=120) for rank in ranks]
        texts = [one.read_text(encoding="utf-8") for one in said]
        self.assertEqual(ended, [0] * world, "".join(texts))
        return texts

    def test_save_and_load(self):
        self.run_ranks("save", WORLD)
        for world in (2, 4):
            self.run_ranks("load", world)
        with stoker.Engine() as engine, \
                stoker.Checkpoints(engine, self.folder / "run", read_only=True,
                                   shared=self.folder / "far") as saved:
            self.assertEqual([(one["step"], one["state"], one["world"]) for one in saved.list()],
                             [(5, 0, WORLD), (2, 0, WORLD)])
            with saved.open() as view:
                self.assertEqual([view.blob("rng", rank=rank) for rank in range(WORLD)],
                                 [b"of %d" % rank for rank in range(WORLD)])
                self.assertEqual(view.blob("rng"), b"of 0")
                self.assertEqual(view.blobs(rank=1), {"rng": 4})
                with self.assertRaises(stoker.Error):
                    view.blob("rng", rank=WORLD)
                with self.assertRaises(KeyError):
                    view.blob("none", rank=1)
                self.assertEqual(view.tensors()["rows"], ("I32", (37, 10), 1480))
                self.assertIn("own2", view.tensors())

    def test_replicas_that_differ(self):
        self.run_ranks("replicas", 2)

    def test_nodes_of_their_own(self):
        self.run_ranks("nodes", 2)
        shutil.rmtree(self.folder / "node1")  # and what only it had is on the other one
        self.run_ranks("lost", 2)

    def test_batches(self):
        self.make_records()
        told = [list(map(int, text.split())) for text in self.run_ranks("batches", 2)]
        self.assertEqual(sorted(sum(told, [])), sorted(2 * list(range(support.RECORDS))))


if __name__ == "__main__":
    unittest.main()
