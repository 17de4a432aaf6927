# SPDX-License-Identifier: Apache-2.0
"""Reading ahead over an epoch's end: what has been fetched by then, that it is what comes, and that
a caller who draws, or changes things, in between gets what torch would give."""

import gc
import os
import struct
import threading
import time
import unittest

from torch_support import (DataTest, DataLoader, SafeNoisy, TorchLoader, default_state, same,
                           stoker, torch)
from stoker.torch._foresight import WAIT_MAX, Luck

data = torch.utils.data
COUNT, BATCH = 22, 4
WAIT_S = 20.0


class Counted(data.Dataset):
    """Notes which samples it was asked for."""

    stoker_thread_safe = stoker_constant = True

    def __init__(self):
        self.asked = []

    def __len__(self):
        return COUNT

    def __getitem__(self, sample):
        self.asked.append(sample)
        return sample


class Changing(Counted):
    """Nothing says that it does not change between epochs."""

    stoker_constant = False
    epoch = 0

    def __getitem__(self, sample):
        return super().__getitem__(sample) + 1000 * self.epoch


class Timed(data.Dataset):
    """For processes: samples are when they were made, and what the worker knows of its epoch."""

    stoker_constant = True

    def __len__(self):
        return COUNT

    def __getitem__(self, sample):
        info = data.get_worker_info()
        return torch.tensor([sample, time.monotonic_ns(), info.seed - info.id])


class ConstantNoisy(SafeNoisy):
    stoker_constant = True


class Mine:
    """A sampler about which nothing is known."""

    def __len__(self):
        return COUNT

    def __iter__(self):
        return iter(range(COUNT))


def generator():
    return torch.Generator().manual_seed(5)


ORDERS = {
    "sequential": lambda: {},
    "random": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": generator()},
    "two generators": lambda: {"sampler": data.RandomSampler(range(COUNT), generator=generator()),
                               "generator": generator()},
    "replacing": lambda: {"sampler": data.RandomSampler(range(COUNT), True, COUNT,
                                                        generator=generator())},
    "own": lambda: {"shuffle": True, "seed": 9},
    "weighted": lambda: {"sampler": data.WeightedRandomSampler([1.0] * COUNT, COUNT)},
    "subset": lambda: {"sampler": data.SubsetRandomSampler(range(COUNT), generator=generator())},
    "list": lambda: {"sampler": list(range(COUNT))},
}


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def torchs(given, n_epochs, between=lambda given: None):
    """The ids of some epochs by torch's loader, and the states of the default generator."""
    torch.manual_seed(3)
    loader, epochs = TorchLoader(range(COUNT), BATCH, **given), []
    for _ in range(n_epochs):
        epochs.append(([batch.tolist() for batch in loader], default_state()))
        between(given)
    return epochs


class Threads(DataTest):
    def run_epochs(self, given, n_epochs, between=lambda given: None, dataset=None):
        dataset = dataset or Counted()
        torch.manual_seed(3)
        loader, epochs = DataLoader(dataset, BATCH, num_workers=0, **given), []
        for _ in range(n_epochs):
            epochs.append(([batch.tolist() for batch in loader], default_state()))
            between(given)
        return dataset, loader, epochs

    def test_each_order(self):
        for name, make in ORDERS.items():
            with self.subTest(name):
                dataset, loader, epochs = self.run_epochs(make(), 1)
                self.assertIn("the next", loader.explain())
                # Beyond the end without anybody's asking, and no further than before it.
                depth = min(loader._idle[0].workers.depth * BATCH, COUNT)
                self.assertTrue(until(lambda: len(dataset.asked) >= COUNT + depth), name)
                time.sleep(0.02)
                self.assertEqual(len(dataset.asked), COUNT + depth)
                ahead = dataset.asked[COUNT:]
                second = [batch.tolist() for batch in loader]
                self.assertEqual(sorted(ahead), sorted(sum(second, [])[:depth]))
                self.assertTrue(until(lambda: len(dataset.asked) >= 2 * COUNT + depth))
                self.assertEqual(len(dataset.asked), 2 * COUNT + depth)  # none was fetched twice
                if name != "own":
                    self.assertEqual(epochs, torchs(make(), 1))

    def test_draws_in_between(self):
        """What was foreseen is dropped, and all is as torch has it."""
        def of_default(given):
            torch.rand(3)

        def of_own(given):
            for own in (given.get("generator"), getattr(given.get("sampler"), "generator", None)):
                if own is not None:
                    torch.rand(3, generator=own)
        for between in (of_default, of_own):
            for name, make in ORDERS.items():
                if name == "own":
                    continue
                with self.subTest(name):
                    _, _, epochs = self.run_epochs(make(), 4, between)
                    self.assertEqual(epochs, torchs(make(), 4, between))

    def test_another_epoch_is_set(self):
        for epochs in ([0, 1, 2, 3], [0, 5, 2], [4, 4, 4], [3, 2, 1]):
            seen = []
            for kind, dataset in ((TorchLoader, range(COUNT)), (DataLoader, Counted())):
                sampler = data.DistributedSampler(range(COUNT), 2, 1)
                loader = kind(dataset, BATCH, sampler=sampler)
                seen.append([])
                for epoch in epochs:
                    sampler.set_epoch(epoch)
                    seen[-1].append([batch.tolist() for batch in loader])
            self.assertEqual(*seen)

    def test_weights_are_changed(self):
        seen = []
        for kind, dataset in ((TorchLoader, range(COUNT)), (DataLoader, Counted())):
            torch.manual_seed(1)
            sampler = data.WeightedRandomSampler([1.0] * COUNT, COUNT)
            loader = kind(dataset, BATCH, sampler=sampler)
            seen.append([])
            for epoch in range(4):
                seen[-1].append([batch.tolist() for batch in loader])
                sampler.weights[epoch::2] += 3.0
        self.assertEqual(*seen)

    def test_a_short_epoch(self):
        """More of the next one was foreseen than there is."""
        order = list(range(COUNT))
        loader = DataLoader(Counted(), BATCH, sampler=order)
        list(loader)
        del order[5:]
        for _ in range(3):
            self.assertEqual([batch.tolist() for batch in loader], [[0, 1, 2, 3], [4]])
        order[:] = []
        self.assertEqual(list(loader), [])
        order[:] = [7]
        self.assertEqual([batch.tolist() for batch in loader], [[7]])

    def test_broken_off(self):
        for stop in range(7):
            seen = []
            for kind, dataset in ((TorchLoader, range(COUNT)), (DataLoader, Counted())):
                torch.manual_seed(1)
                loader = kind(dataset, BATCH, shuffle=True, generator=generator())
                seen.append([])
                for _ in range(4):
                    for number, batch in enumerate(loader):
                        seen[-1].append(batch.tolist())
                        if number == stop:
                            break
            self.assertEqual(*seen)

    def test_positions(self):
        """The place is that of the epoch that is over, or has begun, whatever is fetched."""
        for name, make in ORDERS.items():
            torch.manual_seed(3)
            loader = DataLoader(Counted(), BATCH, **make())
            list(loader)
            state, rng = loader.state_dict(), torch.get_rng_state()
            whole = [batch.tolist() for batch in loader]
            other = DataLoader(Counted(), BATCH, **make())
            other.load_state_dict(state)
            torch.set_rng_state(rng)
            self.assertEqual([batch.tolist() for batch in other], whole, name)

    def test_only_where_it_may(self):
        for dataset, given in ((Changing(), {}), (Counted(), {"sampler": Mine()}),
                               (Counted(), {"epochs": 1})):
            self.run_epochs(given, 1, dataset=dataset)
            time.sleep(0.05)
            self.assertEqual(len(dataset.asked), COUNT)
        dataset = Changing()
        loader = DataLoader(dataset, BATCH)
        for dataset.epoch in range(3):
            values = torch.cat(list(loader))
            self.assertEqual(values.tolist(), [k + 1000 * dataset.epoch for k in range(COUNT)])

    def test_transforms(self):
        """Random values are those of the epoch that has come, not of the one that was foreseen."""
        for between in (lambda: None, lambda: torch.rand(1)):
            runs = []
            for kind in (SafeNoisy, ConstantNoisy):
                torch.manual_seed(4)
                loader = DataLoader(kind(COUNT), BATCH, num_workers=2)
                runs.append([])
                for _ in range(4):
                    runs[-1] += list(loader)
                    between()
            self.assertTrue(same(*runs))

    def test_errors_of_what_was_foreseen(self):
        class Failing(Counted):
            fails = False

            def __getitem__(self, sample):
                super().__getitem__(sample)
                if self.fails and sample == 2:
                    raise ZeroDivisionError(sample)
                return sample
        dataset = Failing()
        loader = DataLoader(dataset, BATCH)
        list(loader)
        until(lambda: len(dataset.asked) == COUNT + BATCH)
        dataset.fails = True
        for _ in loader:  # fetched before
            pass
        with self.assertRaises(ZeroDivisionError):  # fetched when it was told to fail
            for _ in loader:
                pass

    def test_dropped(self):
        """Nothing of what was fetched ahead outlives the loader."""
        gc.collect()
        n_threads = threading.active_count()
        for _ in range(20):
            loader = DataLoader(Counted(), BATCH, num_workers=3)
            list(loader)
        del loader
        self.assertTrue(until(lambda: threading.active_count() <= n_threads))


class LuckOfIt(unittest.TestCase):
    def test_ever_less_often(self):
        luck, tried = Luck(), []
        for epoch in range(1000):
            if luck.may_try():
                tried.append(epoch)
                luck.told(False)
        self.assertEqual(tried[:5], [0, 2, 6, 14, 30])
        self.assertLess(len(tried), 6 + 1000 // WAIT_MAX + 1)
        while not luck.may_try():
            pass
        luck.told(True)
        self.assertTrue(all(luck.may_try() for _ in range(5)))


class Processes(DataTest):
    def test_made_before_it_is_asked_for(self):
        for given in ({}, {"persistent_workers": True}, {"prefetch_factor": 3}):
            torch.manual_seed(2)
            loader = DataLoader(Timed(), BATCH, shuffle=True, num_workers=2, **given)
            expected = TorchLoader(range(COUNT), BATCH, shuffle=True, num_workers=2, **given)
            first = torch.cat(list(loader))
            time.sleep(0.5)
            began, base = time.monotonic_ns(), loader._base
            second = list(loader)
            made = torch.cat(second[:loader._idle[0].workers.depth])[:, 1]
            self.assertLess(made.max().item(), began, given)
            if "persistent_workers" in given:
                self.assertEqual(base, loader._base)
            else:
                self.assertNotEqual(base, loader._base)
            self.assertEqual(set(torch.cat(second)[:, 2].tolist()), {loader._base})
            torch.manual_seed(2)
            self.assertEqual(first[:, 0].tolist(), torch.cat(list(expected)).tolist())
            self.assertEqual(torch.cat(second)[:, 0].tolist(), torch.cat(list(expected)).tolist())

    def test_draws_in_between(self):
        seen = []
        for kind, dataset in ((DataLoader, Timed()), (TorchLoader, range(COUNT))):
            torch.manual_seed(2)
            own = generator()
            loader = kind(dataset, BATCH, shuffle=True, num_workers=2, generator=own)
            seen.append([])
            for epoch in range(4):
                for number, batch in enumerate(loader):
                    ids = batch[:, 0] if batch.dim() == 2 else batch
                    seen[-1].append([ids.tolist(), default_state(), own.get_state().tolist()])
                    if epoch == 2 and number == 4:  # after the next has been foreseen
                        torch.rand(1, generator=own)
        self.assertTrue(seen[0] == seen[1])

    def test_workers_that_die_beyond_the_end(self):
        loader = DataLoader(Timed(), BATCH, num_workers=2)
        list(loader)
        for process in loader._idle[0].workers.processes:
            process.kill()
            process.join()
        with self.assertRaises(RuntimeError) as caught:
            list(loader)
        self.assertIn("ended by signal 9", str(caught.exception))
        self.assertEqual(torch.cat(list(loader))[:, 0].tolist(), list(range(COUNT)))


class Stored(DataTest):
    """Data sets that Stoker reads: bytes of the next epoch are read."""

    def setUp(self):
        super().setUp()
        self.path = self.folder / "ids.bin"
        self.write(0)
        self.engine = stoker.Engine(buffered=True)

    def write(self, more):
        """Ids and so much more. The file stays as old as it was: it is not indexed again."""
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack(f"<{COUNT}Q", *range(more, COUNT + more)))
        os.utime(self.path, (1, 1))

    def loader(self, **given):
        return DataLoader(self.path, BATCH, engine=self.engine, stream_options={"policy": "none"},
                          data_options={"format": "record", "record_bytes": 8}, **given)

    def ids(self, batch):
        return batch.view(torch.int64).flatten().tolist()

    def test_read_before_it_is_asked_for(self):
        for name, make in ORDERS.items():
            if name in ("sequential", "own"):
                continue
            torch.manual_seed(3)
            loader = self.loader(**make())
            seen = [[self.ids(batch) for batch in loader]]
            time.sleep(0.1)
            self.write(100)  # what is read from now on is seen
            seen.append([self.ids(batch) for batch in loader])
            self.write(0)
            self.assertEqual(seen, [ids for ids, _ in torchs(make(), 2)], name)

    def test_draws_in_between(self):
        def meddle(given):
            torch.rand(1)
            if "generator" in given:
                torch.rand(1, generator=given["generator"])
        for name, make in ORDERS.items():
            if name == "own":
                continue
            torch.manual_seed(3)
            given, seen = make(), []
            loader = self.loader(**given)
            for _ in range(6):
                seen.append([self.ids(batch) for batch in loader])
                meddle(given)
            self.assertEqual(seen, [ids for ids, _ in torchs(make(), 6, meddle)], name)


    def test_given_up_again_and_again(self):
        """More than the library lets wait."""
        count = 1 << 18
        path = self.folder / "many.bin"
        path.write_bytes(struct.pack(f"<{count}I", *range(count)))
        for n_workers in (0, 2):
            loader = DataLoader(path, 1 << 13, True, engine=self.engine, num_workers=n_workers,
                                data_options={"format": "record", "record_bytes": 4})
            for _ in range(6):
                iterator = iter(loader)
                if n_workers == 0:  # else it has been
                    loader._position.supply().prime()  # as by a first batch, which nobody takes
                del iterator
            ids = torch.cat([batch.view(torch.int32).flatten() for batch in loader])
            self.assertTrue(torch.equal(ids.sort().values, torch.arange(count).int()))

    def test_bytes_alone(self):
        """What decodes them may change between epochs."""
        class Decoded(data.Dataset):
            epoch, path = 0, os.fspath(self.path)

            def __len__(self):
                return COUNT

            def stoker_extent(self, sample):
                return self.path, 8 * sample, 8

            def stoker_decode(self, sample, content):
                return struct.unpack("<Q", bytes(content))[0] + 1000 * self.epoch
        for name, make in ORDERS.items():
            if name in ("own", "sequential"):
                continue
            dataset = Decoded()
            torch.manual_seed(3)
            loader, seen = DataLoader(dataset, BATCH, num_workers=2, **make(),
                                      stream_options={"policy": "none"}), []
            for dataset.epoch in range(3):
                seen.append([[value - 1000 * dataset.epoch for value in batch.tolist()]
                             for batch in loader])
                time.sleep(0.1)
                self.write(100)
            self.write(0)
            self.assertEqual(seen[:2], [ids for ids, _ in torchs(make(), 2)], name)
            self.assertTrue(all(value >= 100 for batch in seen[2] for value in batch), name)


if __name__ == "__main__":
    unittest.main()
