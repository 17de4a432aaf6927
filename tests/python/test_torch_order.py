# SPDX-License-Identifier: Apache-2.0
"""The order against torch's own loader, in random cases: the same ids, and all generators that
others see in the same state after every batch."""

import os
import random
import struct
import unittest

from torch_support import DataTest, DataLoader, TorchLoader, default_state, stoker, torch

CASES = int(os.environ.get("STOKER_TORCH_CASES", "2000"))
STORED = CASES if os.environ.get("STOKER_TEST_LONG") else CASES // 4
WITH_WORKERS = 12  # cases in which torch starts processes
data = torch.utils.data


class Ids(data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, sample):
        return sample


class SafeIds(Ids):
    stoker_thread_safe = True


class ConstantIds(Ids):
    """Read ahead over the epoch's end."""

    stoker_constant = True


class SafeConstantIds(SafeIds):
    stoker_constant = True


class Drawing(data.Sampler):
    """Unknown to anybody, and draws from the default generator at every step."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            yield int(torch.randint(self.count, (1,)))


class Pairs:
    """A batch sampler of its own, with batches of several sizes."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        for number in range(self.count):
            yield [number] * (1 + number % 3)


class Case:
    """Arguments of a loader, and how it is used; the same every time that it is asked for."""

    def __init__(self, seed, n_workers=0):
        self.seed, self.n_workers = seed, n_workers
        rng = random.Random(seed)
        self.n = rng.choice([1, 2, 3, rng.randint(1, 40), rng.randint(1, 300)])
        self.batch = rng.choice([1, 2, 3, 7, 16, self.n])
        self.drop_last = rng.random() < 0.3
        self.family = rng.choice(self.FAMILIES)
        self.numbers = [rng.random() for _ in range(8)]
        self.whole = rng.randint(-2**63, 2**63 - 1)
        self.epochs = rng.randint(1, 4)
        self.stops = [rng.randrange(self.n) if rng.random() < 0.3 else None for _ in range(4)]
        self.draws = rng.random() < 0.5
        self.meddles = rng.random() < 0.2  # draws from the loader's generator as well
        self.sets_epoch = rng.random() < 0.8
        self.first_epoch = rng.choice([0, 0, 1, 5])

    def generator(self, number):
        if self.numbers[number] < 0.5:
            return None
        return torch.Generator().manual_seed(self.whole)

    def sequential(self, ids):
        return {}

    def shuffle(self, ids):
        return {"shuffle": True}

    def shuffle_generator(self, ids):
        return {"shuffle": True, "generator": torch.Generator().manual_seed(self.whole)}

    def random_sampler(self, ids):
        num = max(1, int(self.numbers[1] * 3 * self.n))
        replaces = self.numbers[2] < 0.5
        return {"sampler": data.RandomSampler(ids, replacement=replaces, num_samples=num,
                                              generator=self.generator(3)),
                "generator": self.generator(4)}

    def distributed(self, ids):
        world = 1 + int(self.numbers[1] * 5)
        return {"sampler": data.DistributedSampler(
            ids, num_replicas=world, rank=int(self.numbers[2] * world), seed=self.whole % 2**40,
            shuffle=self.numbers[3] < 0.8, drop_last=self.numbers[4] < 0.5 and self.n > world)}

    def weighted(self, ids):
        return {"sampler": data.WeightedRandomSampler([1.0 + k % 3 for k in range(self.n)], self.n,
                                                      generator=self.generator(1))}

    def subset(self, ids):
        return {"sampler": data.SubsetRandomSampler(range(0, self.n, 2),
                                                    generator=self.generator(1))}

    def drawing(self, ids):
        return {"sampler": Drawing(self.n)}

    def listed(self, ids):
        return {"sampler": [k * 7 % self.n for k in range(self.n)]}

    FAMILIES = (sequential, shuffle, shuffle, shuffle_generator, shuffle_generator, random_sampler,
                random_sampler, distributed, distributed, weighted, subset, drawing, listed)

    def arguments(self, ids, is_stored=False):
        given = self.family(self, ids)
        given.update(num_workers=self.n_workers)
        how = self.numbers[7]
        if how < 0.1 and not is_stored:  # no batches
            return dict(given, batch_size=None)
        if how < 0.2:
            sampler = given.pop("sampler", None)
            given.pop("shuffle", None)
            sampler = sampler or data.SequentialSampler(ids)
            return dict(given, batch_sampler=data.BatchSampler(sampler, self.batch, self.drop_last))
        if how < 0.25:
            return {"batch_sampler": Pairs(self.n), "num_workers": self.n_workers}
        return dict(given, batch_size=self.batch, drop_last=self.drop_last)

    def run(self, loader, take):
        """All that can be seen of a run."""
        seen = []
        torch.manual_seed(self.whole)
        generators = [loader.generator, getattr(loader.sampler, "generator", None)]
        generators = [one for one in generators if one is not None]
        for epoch in range(self.epochs):
            if self.sets_epoch and hasattr(loader.sampler, "set_epoch"):
                loader.sampler.set_epoch(self.first_epoch + epoch)
            for number, batch in enumerate(loader):
                seen.append(take(batch))
                if self.draws:
                    seen.append(torch.rand(()).item())
                if self.meddles and generators and number % 3 == 1:
                    torch.rand(2, generator=generators[0])
                seen.append([hash(one.get_state().numpy().tobytes()) for one in generators])
                if number == self.stops[epoch]:
                    break
            seen.append(hash(bytes(memoryview(torch.get_rng_state().numpy()))))
            seen.append(len(loader))
        return seen

    def __repr__(self):
        return f"case {self.seed}, {self.family.__name__}: {vars(self)}"


def take_list(batch):
    return [int(one) for one in batch] if isinstance(batch, (list, tuple)) else int(batch)


class Order(DataTest):
    maxDiff = 1000

    def compare(self, case, kind, **more):
        expected = case.run(TorchLoader(Ids(case.n), **self.collated(case, Ids)), take_list)
        got = case.run(DataLoader(kind(case.n), **self.collated(case, kind), **more), take_list)
        self.assertEqual(expected, got, case)

    def collated(self, case, kind):
        arguments = case.arguments(kind(case.n))
        return arguments if arguments.get("batch_size", 1) is None else \
            dict(arguments, collate_fn=list)

    def test_in_the_callers_thread(self):
        for seed in range(CASES):
            self.compare(Case(seed), Ids)

    def test_in_threads(self):
        for seed in range(CASES // 8):
            self.compare(Case(seed), SafeIds)
            self.compare(Case(seed), SafeConstantIds)

    def test_against_workers(self):
        """torch runs its sampler ahead of its workers; so does this."""
        for seed in range(WITH_WORKERS):
            self.compare(Case(seed, n_workers=2), SafeIds)
            self.compare(Case(seed, n_workers=2), SafeConstantIds)
            if seed % 3 == 0:
                self.compare(Case(seed, n_workers=2), ConstantIds)

    def test_stored(self):
        """The same from a file that Stoker reads, its order made by Stoker where it is known."""
        with stoker.Engine(buffered=True) as engine:
            for n in {Case(seed).n for seed in range(STORED)}:
                (self.folder / f"{n}.bin").write_bytes(struct.pack(f"<{n}Q", *range(n)))
            for seed in range(STORED):
                case = Case(seed)
                ids = Ids(case.n)
                if case.arguments(ids, True).get("batch_size", 1) is None:
                    continue
                expected = case.run(TorchLoader(ids, collate_fn=list, **case.arguments(ids, True)),
                                    take_list)
                got = case.run(DataLoader(
                    self.folder / f"{case.n}.bin", engine=engine,
                    data_options={"format": "record", "record_bytes": 8},
                    **case.arguments(ids, True)), lambda x: x.view(torch.int64).flatten().tolist())
                self.assertEqual(expected, got, case)


class Own(DataTest):
    def test_is_the_distributed_samplers(self):
        for n, world, batch, shuffle in ((10, 1, 3, True), (101, 3, 4, True), (50, 4, 5, False)):
            for rank in range(world):
                sampler = data.DistributedSampler(Ids(n), world, rank, seed=7, shuffle=shuffle)
                expected, got = [], []
                mine = DataLoader(Ids(n), batch, shuffle, seed=7, world=world, rank=rank,
                                  collate_fn=list)
                torchs = TorchLoader(Ids(n), batch, sampler=sampler, collate_fn=list)
                for epoch in range(3):
                    sampler.set_epoch(epoch)
                    expected += list(torchs)
                    got += list(mine)
                self.assertEqual(expected, got)
                mine.set_epoch(1)
                sampler.set_epoch(1)
                self.assertEqual(list(torchs), list(mine))

    def test_ends_in_the_same_state(self):
        """A loader that has been made draws nothing; an iteration draws torch's seed."""
        torch.manual_seed(3)
        before = default_state()
        loader = DataLoader(Ids(4), seed=1, shuffle=True)
        self.assertEqual(default_state(), before)
        list(loader)
        torch.manual_seed(3)
        list(TorchLoader(Ids(4), sampler=data.DistributedSampler(Ids(4), 1, 0)))
        after = default_state()
        torch.manual_seed(3)
        list(DataLoader(Ids(4), seed=1, shuffle=True))
        self.assertEqual(default_state(), after)


if __name__ == "__main__":
    unittest.main()
