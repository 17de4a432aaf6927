# SPDX-License-Identifier: Apache-2.0
"""Data sets that Stoker reads for torch: paths, and torchvision's folders (a stand-in of the same
name and module, where torchvision is not installed)."""

import gc
import os
import time
import types
import unittest

from torch_support import (DataTest, DataLoader, TorchLoader, default_state, same, stoker, support,
                           torch)
import torch_things  # behind torch_support, which finds an interpreter that has torch
from torch_things import crop, load_bytes, load_file

data = torch.utils.data


def stand_in():
    """torchvision.datasets.folder.DatasetFolder, as far as it matters here."""
    module = types.ModuleType("torchvision.datasets.folder")

    class DatasetFolder(data.Dataset):
        def __init__(self, root, loader, extensions=None, transform=None, target_transform=None):
            self.root, self.loader, self.extensions = os.fspath(root), loader, extensions
            self.transform, self.target_transform = transform, target_transform
            self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
            self.samples = [(os.path.join(folder, name), label)
                            for label, one in enumerate(self.classes)
                            for folder, _, names in sorted(os.walk(os.path.join(root, one)))
                            for name in sorted(names) if name.lower().endswith(extensions)]

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            path, target = self.samples[index]
            sample = self.loader(path)
            if self.transform is not None:
                sample = self.transform(sample)
            if self.target_transform is not None:
                target = self.target_transform(target)
            return sample, target

    DatasetFolder.__module__ = module.__name__
    module.DatasetFolder = DatasetFolder
    return module


try:
    from torchvision.datasets import folder as torchvision_folder
except Exception:  # any reason why it cannot be used here
    torchvision_folder = stand_in()


class Packed(data.Dataset):
    """Samples of many sizes in a file, one after the other."""

    def __init__(self, path, sizes, is_random=False):
        self.path, self.is_random = os.fspath(path), is_random
        self.places = [(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
        self.fetched = 0
        with open(path, "wb") as file:
            for at, size in enumerate(sizes):
                file.write(bytes((at * 7 + each) % 256 for each in range(size)))

    def __len__(self):
        return len(self.places)

    def stoker_extent(self, at):
        return (self.path, *self.places[at])

    def stoker_decode(self, at, content):
        assert type(content) is bytes
        noise = torch.rand(2) if self.is_random else torch.zeros(2)
        return torch.tensor([at, len(content), sum(content)]), noise

    def __getitem__(self, at):
        self.fetched += 1
        with open(self.path, "rb") as file:
            file.seek(self.places[at][0])
            return self.stoker_decode(at, file.read(self.places[at][1]))


class Extents(DataTest):
    def make(self, **options):
        sizes = [at * 137 % 5000 for at in range(50)]
        return [Packed(self.folder / f"pack{number}", sizes[:count], **options)
                for number, count in enumerate((50, 13))]

    def test_as_torch(self):
        one, other = self.make()
        for dataset in (one, data.ConcatDataset([one, other]),
                        data.Subset(data.ConcatDataset([other, one]), [3, 15, 40, 12, 3, 60])):
            for options in ({"shuffle": True}, {"shuffle": True, "generator": True},
                            {"drop_last": True}, {"sampler": [2, -1, 1, 2]}, {"batch_size": None},
                            {"sampler": data.distributed.DistributedSampler(dataset, 2, 1)}):
                batches = []
                for kind in (TorchLoader, DataLoader):
                    own = dict({"batch_size": 4}, **options)
                    if own.get("generator"):
                        own["generator"] = torch.Generator().manual_seed(3)
                    if isinstance(own.get("sampler"), list) and not isinstance(dataset, Packed):
                        own["sampler"] = [2, 1]
                    torch.manual_seed(5)
                    one.fetched = other.fetched = 0
                    loader = kind(dataset, **own)
                    batches.append([batch for _ in range(2) for batch in loader])
                    batches.append(default_state())
                self.assertTrue(same(batches[0], batches[2]), options)
                self.assertEqual(batches[1], batches[3], options)
                self.assertEqual(one.fetched + other.fetched, 0)  # by Stoker alone
        self.assertIn("read by Stoker", DataLoader(one).explain())

    def test_transforms_and_places(self):
        dataset = self.make(is_random=True)[0]
        loaders = [DataLoader(dataset, 4, seed=9, shuffle=True, epochs=2, num_workers=count)
                   for count in (0, 3)]
        torch.manual_seed(1)
        expected = list(loaders[0])
        torch.manual_seed(1)
        epoch = iter(loaders[1])
        found = [next(epoch) for _ in range(5)]
        again = DataLoader(dataset, 4, seed=9, shuffle=True, epochs=2)
        again.load_state_dict(loaders[1].state_dict())
        self.assertTrue(same(expected, found + list(again)))

    def test_refused(self):
        dataset = self.make()[0]
        dataset.places[7] = (dataset.places[7][0], 1 << 40)
        with self.assertRaises(stoker.Error) as caught:
            DataLoader(dataset)
        self.assertIn("extent 7", str(caught.exception))
        dataset.path += "-not-there"
        with self.assertRaises(stoker.Error):
            DataLoader(dataset)

        class Half(data.Dataset):
            def stoker_extent(self, at):
                return "/", 0, 0

        with self.assertRaisesRegex(TypeError, "no stoker_decode"):
            DataLoader(Half())


class Paths(DataTest):
    def test_fixed_without_a_copy(self):
        images, labels = self.make_idx()
        loader = DataLoader(images, 16, data_options={"labels_path": labels}, epochs=2)
        for _ in range(2):
            seen = []
            for x, y in loader:
                self.assertEqual((x.dtype, x.shape[1:], y.dtype),
                                 (torch.uint8, support.IMAGE, torch.int64))
                self.assertEqual(x[0, 0, 0], 20 * len(seen) % 251)
                seen += y.tolist()
            self.assertEqual(seen, [s % 10 for s in range(support.IMAGES)])
        self.assertEqual(loader.stats()["stream"]["batches"], 8)
        self.assertIn("read by Stoker", loader.explain())
        sample, label = loader.dataset[-1]
        self.assertEqual((sample.shape, label), (support.IMAGE, 9))

    def test_many_may_be_held(self):
        path = self.make_records()
        loader = DataLoader(path, 4, seed=3, shuffle=True,
                            data_options={"format": "record", "record_bytes": 96})
        batches = list(loader)
        ids = stoker.Order(support.RECORDS, seed=3).ids(0).tolist()
        expected = [bytes(support.record(sample)) for sample in ids]
        self.assertEqual([bytes(row.tolist()) for x in batches for row in x], expected)
        again = list(loader)  # the next epoch, with all of the first held
        ids = stoker.Order(support.RECORDS, seed=3).ids(1).tolist()
        expected = [bytes(support.record(sample)) for sample in ids]
        self.assertEqual([bytes(row.tolist()) for x in again for row in x], expected)

    def test_break_with_a_batch_held(self):
        path = self.make_records()
        for given in ({"seed": 3}, {}, {"generator": torch.Generator().manual_seed(1)}):
            loader = DataLoader(path, 4, shuffle=True, tiers="ram:1M", **given,
                                data_options={"format": "record", "record_bytes": 96})
            held = []
            for epoch in range(4):
                for number, x in enumerate(loader):
                    held.append(x)
                    if number == 3:
                        break
                if given.get("seed"):
                    ids = stoker.Order(support.RECORDS, seed=3).ids(epoch, 0, 16).tolist()
                    rows = [bytes(row.tolist()) for x in held[-4:] for row in x]
                    self.assertEqual(rows, [support.record(sample) for sample in ids])
            self.assertEqual(sum(len(x) for x in loader), support.RECORDS)

    def test_raw(self):
        path = self.make_folder()
        given = {"extensions": "*"}
        plain = stoker.Dataset(stoker.Engine(), path, "class-folder", **given)
        for more in ({}, {"seed": 1, "shuffle": True}, {"shuffle": True}):
            loader = DataLoader(path, 7, data_options=given, **more)
            count = 0
            for x, y in loader:
                self.assertEqual(len(x), len(y))
                count += len(x)
            self.assertEqual(count, support.RECORDS)
        for at, (x, y) in enumerate(DataLoader(path, None, data_options=given)):
            number = int(plain.locate(at)[0][-4:])
            self.assertEqual((bytes(x.tolist()), y), (support.item(number), number % 2))

    def test_collate(self):
        images, labels = self.make_idx()
        given = {"data_options": {"labels_path": labels}}
        loader = DataLoader(images, 7, collate_fn=lambda samples: [int(y) for _, y in samples],
                            **given)
        self.assertEqual(sum(loader, []), [s % 10 for s in range(support.IMAGES)])

    def test_positions(self):
        images, labels = self.make_idx()
        for more in ({"seed": 2, "shuffle": True}, {"shuffle": True}, {}):
            given = dict(more, data_options={"labels_path": labels}, batch_size=7)
            torch.manual_seed(4)
            loader = DataLoader(images, **given)
            whole, states = [], []
            for _ in range(2):
                for x, y in loader:
                    whole.append([x.clone(), y])
                    states.append(loader.state_dict())
            loader = DataLoader(images, **given)
            loader.load_state_dict(states[3])
            rest = [[x.clone(), y] for x, y in loader]
            self.assertTrue(same(rest, whole[4:len(loader)]))

    def test_refused(self):
        path = self.make_records()
        with stoker.Engine() as engine:
            opened = stoker.Dataset(engine, path, "record", record_bytes=96)
            with self.assertRaises(TypeError):
                DataLoader(opened)
            self.assertEqual(len(list(DataLoader(opened, 50, engine=engine))), 2)
            with self.assertRaises(ValueError):
                DataLoader(opened, engine=engine, tiers="ram:1M")
        with self.assertRaises(stoker.Error):
            DataLoader(self.folder / "missing")


def by_processes(dataset, batch_size, num_workers=2, **given):
    return DataLoader(dataset, batch_size, num_workers=num_workers,
                      multiprocessing_context="spawn", **given)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Folders(DataTest):
    def make(self, loader=load_bytes, **more):
        path = self.make_folder()
        for file in path.glob("*/*"):
            if not file.suffix:
                file.rename(file.with_suffix(".dat"))
        return torchvision_folder.DatasetFolder(str(path), loader, extensions=(".dat",), **more)

    def test_is_torchs(self):
        for loader in (load_bytes, load_file):
            plain, mine = self.make(), self.make(loader)
            plain.target_transform = mine.target_transform = lambda target: target + 10
            for given in ({}, {"shuffle": True}, {"shuffle": True, "num_workers": 2},
                          {"batch_size": 7, "drop_last": True, "shuffle": True},
                          {"generator": torch.Generator().manual_seed(2), "shuffle": True}):
                runs = []
                for kind, dataset in ((TorchLoader, plain), (DataLoader, mine)):
                    torch.manual_seed(6)
                    if given.get("generator"):
                        given["generator"].manual_seed(2)
                    loader = kind(dataset, **{"batch_size": 5, **given})
                    runs.append([[list(loader), default_state()] for _ in range(3)])
                self.assertTrue(same(*runs), given)
                self.assertIn("decoded by threads", loader.explain())

    def test_distributed(self):
        runs = []
        for kind in (TorchLoader, DataLoader):
            dataset = self.make()
            sampler = data.DistributedSampler(dataset, 3, 1, seed=9)
            loader = kind(dataset, 4, sampler=sampler)
            run = []
            for epoch in (0, 1, 2, 2, 7, 0):
                sampler.set_epoch(epoch)
                for number, batch in enumerate(loader):
                    run.append(batch)
                    if epoch == 1 and number == 2:
                        break
            runs.append(run)
        self.assertTrue(same(*runs))

    def test_random_transforms(self):
        runs = []
        for workers in (1, 3):
            torch.manual_seed(1)
            loader = DataLoader(self.make(transform=crop), 6, shuffle=True, num_workers=workers)
            runs.append([list(loader) for _ in range(2)])
        self.assertTrue(same(*runs))
        self.assertFalse(same(runs[0][0], runs[0][1]))

    def test_errors_and_break(self):
        def refuse(tensor):
            if tensor[3] == 37 * 3:  # the length of number 3
                raise ArithmeticError("refused")
            return tensor
        dataset = self.make(transform=refuse)
        for given in ({}, {"shuffle": True}, {"seed": 1, "shuffle": True}):
            loader = iter(DataLoader(dataset, 10, **given))
            count = n_errors = 0
            while True:
                try:
                    count += len(next(loader)[1])
                except ArithmeticError:
                    n_errors += 1
                except StopIteration:
                    break
            self.assertEqual((count, n_errors), (90, 1))
            loader = DataLoader(self.make(), 10, **given)
            for _ in range(20):
                for _ in loader:
                    break
            self.assertEqual(len(list(loader)), 10)

    # ---- decoded by processes ----

    def test_processes_are_torchs(self):
        for load in (load_bytes, load_file):
            for given in ({"shuffle": True}, {"batch_size": 7, "drop_last": True, "shuffle": True},
                          {"generator": torch.Generator(), "shuffle": True, "num_workers": 3},
                          {"batch_size": 100, "num_workers": 1}):
                runs = []
                for kind, own in ((TorchLoader, load_bytes), (by_processes, load)):
                    dataset = self.make(own, target_transform=torch_things.add_ten)
                    torch.manual_seed(6)
                    if given.get("generator"):
                        given["generator"].manual_seed(2)
                    loader = kind(dataset, **{"batch_size": 5, "num_workers": 2, **given})
                    runs.append([[list(loader), default_state()] for _ in range(3)])
                self.assertTrue(same(*runs), given)
                self.assertIn("processes", loader.explain())
                self.assertNotIn("threads", loader.explain())

    def test_processes_draw_as_threads(self):
        runs = []
        for workers in (0, 1, 3):
            torch.manual_seed(1)
            make = by_processes if workers else DataLoader
            loader = make(self.make(transform=crop), 6, shuffle=True, num_workers=workers)
            self.assertIn("processes" if workers else "threads", loader.explain())
            torch.manual_seed(1)
            runs.append([list(loader) for _ in range(2)])
        self.assertTrue(same(runs[1], runs[2]))
        self.assertTrue(same([batch[1] for batch in runs[0][0]], [b[1] for b in runs[1][0]]))
        # And Python's own generator is keyed there, too.
        runs = []
        for workers in (1, 2):
            torch.manual_seed(1)
            loader = by_processes(self.make(transform=torch_things.of_python), 6, shuffle=True,
                                  num_workers=workers)
            runs.append([list(loader) for _ in range(2)])
        self.assertTrue(same(*runs))

    def test_processes_are_workers(self):
        loader = by_processes(self.make(transform=torch_things.whose), 10)
        seen = {tuple(row) for things, _ in loader for row in things.tolist()}
        self.assertLessEqual({(number, count) for _, number, count in seen}, {(0, 2), (1, 2)})
        self.assertNotIn(os.getpid(), {pid for pid, _, _ in seen})
        again = {tuple(row) for things, _ in loader for row in things.tolist()}
        self.assertLessEqual({pid for pid, _, _ in again}, {pid for pid, _, _ in seen})
        loader = by_processes(self.make(transform=torch_things.told), 10,
                              worker_init_fn=torch_things.tell, collate_fn=torch_things.collate)
        for batch in loader:
            self.assertEqual(batch["x"].tolist(), [batch["worker"]] * len(batch["x"]))

    def test_transforms_that_change(self):
        dataset = self.make()
        loader = by_processes(dataset, 10)
        before = [things for things, _ in loader]
        dataset.transform = torch_things.of_python
        after = [things for things, _ in loader]
        self.assertFalse(same(before, after))
        dataset.transform = None
        self.assertTrue(same(before, [things for things, _ in loader]))
        dataset.transform = lambda tensor: tensor
        with self.assertRaisesRegex(TypeError, "cannot be sent"):
            list(loader)
        self.assertIn("cannot be sent", by_processes(dataset, 10).explain())
        dataset.transform = None
        for workers, how in ((3, "by threads"), (4, "by 4 processes")):
            self.assertIn(how, DataLoader(dataset, 10, num_workers=workers).explain())
        dataset.stoker_thread_safe = True
        self.assertIn("by threads", by_processes(dataset, 10).explain())

    def test_errors_of_processes(self):
        for given in ({}, {"shuffle": True}, {"seed": 1, "shuffle": True}):
            loader = by_processes(self.make(transform=torch_things.refuse), 10, **given)
            iterator, count, errors = iter(loader), 0, []
            while True:
                try:
                    count += len(next(iterator)[1])
                except ArithmeticError as error:
                    errors.append(error)
                except StopIteration:
                    break
            self.assertEqual((count, len(errors)), (90, 1))
            self.assertIn("in refuse", str(errors[0].__cause__))
        loader = by_processes(self.make(), 10, shuffle=True)
        for _ in range(10):
            for _ in loader:
                break
        self.assertEqual(len(list(loader)), 10)

    def test_a_process_that_ends(self):
        loader = by_processes(self.make(transform=torch_things.die), 10)
        for _ in range(2):  # the next iteration has others
            with self.assertRaisesRegex(RuntimeError, "worker process . has ended"):
                list(loader)

    def test_processes_end_with_their_loader(self):
        loader = by_processes(self.make(transform=torch_things.whose), 10)
        pids = {row[0] for things, _ in loader for row in things.tolist()}
        iterator = iter(loader)
        next(iterator)
        del loader, iterator
        gc.collect()
        until = time.monotonic() + 10
        while any(map(is_running, pids)):
            self.assertLess(time.monotonic(), until, pids)
            time.sleep(0.01)
        loader = by_processes(self.make(transform=torch_things.dawdle), 10,
                              timeout=0.1)
        with self.assertRaisesRegex(RuntimeError, "timed out"):
            list(loader)

    def test_other_lists_are_read_by_their_own_loader(self):
        dataset = self.make()
        dataset.samples = dataset.samples[::-1]
        loader = DataLoader(dataset, 5)
        self.assertIn("its file 0", loader.explain())
        self.assertTrue(same(list(loader), list(TorchLoader(dataset, 5))))
        dataset.samples = dataset.samples[1:]
        self.assertIn("99 files", DataLoader(dataset, 5).explain())


if __name__ == "__main__":
    unittest.main()
