# SPDX-License-Identifier: Apache-2.0
"""Positions, training that goes on over there, refusals, errors, interrupts and memory."""

import gc
import inspect
import io
import itertools
import os
import sys
import traceback
import unittest

from torch_support import (DataTest, DataLoader, Failing, Noisy, SafeFailing, SafeNoisy,
                           SafeSquares, Squares, TorchLoader, default_state, run_script,
                           same, support, torch)

data = torch.utils.data
FLAT_BATCHES = 10_000


class Samples(DataTest):
    def test_batches_are_torchs(self):
        class Whole(Squares):
            def __getitems__(self, samples):
                return [self[sample] for sample in samples]

        for kind in (Squares, SafeSquares, Whole):
            for given in ({"batch_size": 4}, {"batch_size": None}, {"batch_size": 4,
                          "collate_fn": lambda samples: len(samples)}):
                mine = list(DataLoader(kind(11), **given))
                self.assertTrue(same(mine, list(TorchLoader(Squares(11), **given))), (kind, given))

    def test_known_data_sets(self):
        tensors = data.TensorDataset(torch.arange(20.0), torch.arange(20))
        for dataset in (tensors, data.Subset(tensors, [3, 1, 2]), list(range(9)),
                        data.ConcatDataset([tensors, tensors])):
            mine = DataLoader(dataset, 4, num_workers=2)
            self.assertIn("threads", mine.explain())
            self.assertTrue(same(list(mine), list(TorchLoader(dataset, 4))))

    def test_iterations_at_once(self):
        for kind in (Squares, SafeSquares):
            loader = DataLoader(kind(20), 3)
            pairs = [(one[0].tolist(), other[0].tolist()) for one, other in zip(loader, loader)]
            self.assertEqual(len(pairs), 7)
            self.assertTrue(all(one == other for one, other in pairs))

    def test_arguments_and_attributes_are_torchs(self):
        """In name, order and default, whatever this torch has."""
        mine = inspect.signature(DataLoader.__init__).parameters
        torchs = inspect.signature(TorchLoader.__init__).parameters
        self.assertEqual([name for name in mine if name in torchs], list(torchs))
        late = {"prefetch_factor": None}  # it is 2 until 2.0, where 2 is taken for not given
        for name, parameter in torchs.items():
            with self.subTest(name):
                self.assertEqual(mine[name].kind, parameter.kind)
                self.assertIn(mine[name].default, (parameter.default, late.get(name, ())))
        for given in ({}, {"num_workers": 2, "persistent_workers": True, "timeout": 9},
                      {"batch_size": None, "prefetch_factor": 5, "num_workers": 1},
                      {"batch_sampler": [[1]]}, {"shuffle": True, "drop_last": True}):
            mine, torchs = DataLoader(Squares(3), **given), TorchLoader(Squares(3), **given)
            for name, value in vars(torchs).items():
                if not name.startswith("_"):
                    with self.subTest(name, given=given):
                        self.assertIs(type(getattr(mine, name)), type(value))
                        if isinstance(value, (int, str, type(None))):
                            self.assertEqual(getattr(mine, name), value)

    def test_refused(self):
        class Stream(data.IterableDataset):
            def __iter__(self):
                return iter(range(3))

        squares, sampler = Squares(5), data.SequentialSampler(Squares(5))
        cases = [({"num_workers": -1}, ValueError), ({"timeout": -1}, ValueError),
                 ({"prefetch_factor": 3}, ValueError), ({"persistent_workers": True}, ValueError),
                 ({"multiprocessing_context": "spawn"}, ValueError),
                 ({"multiprocessing_context": "sp", "num_workers": 1}, ValueError),
                 ({"multiprocessing_context": 3, "num_workers": 1}, TypeError),
                 ({"sampler": sampler, "shuffle": True}, ValueError),
                 ({"batch_sampler": [[1]], "batch_size": 2}, ValueError),
                 ({"batch_sampler": [[1]], "drop_last": True}, ValueError),
                 ({"batch_size": None, "drop_last": True}, ValueError),
                 ({"batch_size": 0}, ValueError), ({"batch_size": 1.5}, ValueError)]
        for given, kind in cases:
            with self.subTest(given):
                with self.assertRaises(kind):
                    iter(TorchLoader(squares, **given))
                with self.assertRaises(kind):
                    DataLoader(squares, **given)
        for given in ({"seed": 1, "sampler": sampler}, {"world": 2, "rank": 2},
                      {"seed": 1, "generator": torch.Generator()}, {"transform_seed": "no"}):
            with self.subTest(given), self.assertRaises(ValueError):
                DataLoader(squares, **given)
        with self.assertRaises(TypeError) as caught:
            DataLoader(Stream())
        self.assertIn("Stream is an IterableDataset", str(caught.exception))
        for name in ("batch_size", "sampler", "drop_last", "dataset"):
            with self.assertRaises(ValueError):
                setattr(DataLoader(squares), name, None)

    def test_length(self):
        for given in ({}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True},
                      {"batch_size": None}, {"batch_sampler": [[1], [2, 3]]}):
            mine, torchs = DataLoader(Squares(10), **given), TorchLoader(Squares(10), **given)
            self.assertEqual(len(mine), len(torchs))
            self.assertEqual(len(iter(mine)), len(torchs))


def orders(count):
    """Loaders' arguments, one of each kind of order."""
    return {
        "sequential": lambda: {},
        "random": lambda: {"shuffle": True},
        "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(5)},
        "distributed": lambda: {"sampler": data.DistributedSampler(range(count), 2, 1, seed=3)},
        "own": lambda: {"shuffle": True, "seed": 9},
        "weighted": lambda: {"sampler": data.WeightedRandomSampler([1.0] * count, count)},
    }


class Positions(DataTest):
    def run_from(self, make, epoch, state=None):
        """The batches of three epochs, and where each state was taken."""
        loader = make()
        if state is not None:
            loader.load_state_dict(state)
        batches, states = [], [loader.state_dict()]
        rngs = [torch.get_rng_state()]
        for number in range(epoch, 3):
            if isinstance(loader.sampler, data.DistributedSampler) and loader.epochs is None:
                loader.sampler.set_epoch(number)
            for batch in loader:
                batches.append(batch)
                batches[-1] = [batch, torch.rand(())]
                states.append(loader.state_dict())
                rngs.append(torch.get_rng_state())
        return batches, states, rngs

    def test_exact(self):
        for kind in (Squares, SafeSquares, SafeNoisy):
            for name, given in orders(23).items():
                for workers in ((0, 2) if kind is not Squares else (0,)):
                    def make():
                        more = {"epochs": 3} if name == "own" else {}
                        return DataLoader(kind(23), 4, num_workers=workers, **given(), **more)
                    torch.manual_seed(1)
                    whole, states, rngs = self.run_from(make, 0)
                    per_epoch = len(make())
                    for at in (0, 1, 2, per_epoch, per_epoch + 1, len(whole) - 1, len(whole)):
                        file = io.BytesIO()
                        torch.save(states[at], file)
                        file.seek(0)
                        torch.set_rng_state(rngs[at])
                        epoch = at // per_epoch
                        if at and at % per_epoch == 0:
                            epoch -= 1  # the loop has not been told yet that the epoch is over
                        rest, _, _ = self.run_from(make, epoch, torch.load(file))
                        self.assertTrue(same(whole[at:], rest), (kind, name, workers, at))

    def test_states_do_not_replay(self):
        class Counting(Squares):
            n_read = 0

            def __getitem__(self, sample):
                Counting.n_read += 1
                return super().__getitem__(sample)

        loader = DataLoader(Counting(1000), 10, shuffle=True)
        for _ in itertools.islice(loader, 50):
            pass
        state = loader.state_dict()
        self.assertEqual(state["step"], 50)
        Counting.n_read = 0
        loader.load_state_dict(state)
        next(iter(loader))
        self.assertEqual(Counting.n_read, 10)

    def test_another_number_of_ranks(self):
        """A step reads the same set on any number of ranks, so that a job may go on on fewer."""
        def loaders(world):
            return [DataLoader(Squares(96), 24 // world, True, seed=4, world=world, rank=rank)
                    for rank in range(world)]
        before = loaders(4)
        sets = [[set(batch[0].tolist()) for batch in loader] for loader in before]
        whole = [set().union(*parts) for parts in zip(*sets)]
        before = loaders(4)
        for loader in before:
            for _ in itertools.islice(loader, 2):
                pass
        states = [loader.state_dict() for loader in before]
        after = loaders(2)
        for loader in after:
            loader.load_state_dict(states[0])
        rest = [[set(batch[0].tolist()) for batch in loader] for loader in after]
        self.assertEqual([set().union(*parts) for parts in zip(*rest)], whole[2:])

    def test_of_another_loader_is_refused(self):
        state = DataLoader(Squares(10), 2, True).state_dict()
        for other, name in ((DataLoader(Squares(11), 2, True), "samples"),
                            (DataLoader(Squares(10), 3, True), "global_batch"),
                            (DataLoader(Squares(10), 2), "order")):
            with self.assertRaises(ValueError) as caught:
                other.load_state_dict(state)
            self.assertIn(name, str(caught.exception))


class Training(DataTest):
    """A model with dropout, which draws from the generator that loaders draw from."""

    def losses(self, make_loader, n_epochs, state=None, save_at=None):
        torch.manual_seed(8)
        model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(), torch.nn.ReLU(),
                                    torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
        losses, switched = [], make_loader(0)
        for epoch in range(n_epochs):
            switched = make_loader(epoch)
            for x, y in switched:
                optimizer.zero_grad()
                loss = (model(x.view(-1, 1).float()) - y).pow(2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    def test_same_loss_when_switched_over(self):
        for name, given in orders(40).items():
            if name == "own":
                continue
            loaders = [TorchLoader(Squares(40), 4, **given())]
            plain = self.losses(lambda epoch: loaders[0], 4)
            for kind in (Squares, SafeSquares):
                arguments = given()
                pair = [TorchLoader(kind(40), 4, **arguments), DataLoader(kind(40), 4, **arguments)]
                self.assertEqual(self.losses(lambda epoch: pair[epoch >= 2], 4), plain, name)


class Errors(DataTest):
    def test_traceback_is_the_users(self):
        for kind in (Failing, SafeFailing):
            loader = iter(DataLoader(kind(12), 4))
            self.assertEqual(next(loader)[0].tolist(), [0, 1, 2, 3])
            text = ""
            try:
                next(loader)
            except ZeroDivisionError:
                text = traceback.format_exc()
            self.assertIn("in break_down", text)
            self.assertIn("ZeroDivisionError: sample 5 breaks down here", text)
            self.assertEqual(next(loader)[0].tolist(), [8, 9, 10, 11])  # as torch's
            self.assertIsNone(next(loader, None))

    def test_of_samplers_and_collate(self):
        def sampler():
            yield 1
            yield 2
            raise KeyError("sampler")

        class Once:
            def __iter__(self):
                return sampler()

        for kind in (Squares, SafeSquares):
            loader = iter(DataLoader(kind(4), 1, sampler=Once()))
            self.assertEqual([int(next(loader)[0]), int(next(loader)[0])], [1, 2])
            with self.assertRaises(KeyError):
                next(loader)

            def collate(samples):
                raise OverflowError("collate")
            with self.assertRaises(OverflowError):
                next(iter(DataLoader(kind(4), 2, collate_fn=collate)))

    def test_timeout(self):
        import time

        class Slow(SafeSquares):
            def __getitem__(self, sample):
                time.sleep(0.5)
                return sample
        with self.assertRaises(RuntimeError) as caught:
            next(iter(DataLoader(Slow(4), num_workers=1, timeout=0.05)))
        self.assertIn("timed out", str(caught.exception))


class Transforms(DataTest):
    def test_keyed_by_sample(self):
        """The same values with any number of threads, and none of the process's own draws."""
        runs = []
        for workers in (0, 1, 3):
            torch.manual_seed(2)
            before = None
            batches = []
            loader = DataLoader(SafeNoisy(30), 5, shuffle=True, num_workers=workers)
            for batch in loader:
                state = default_state()
                before = before or state
                self.assertEqual(before, state)
                batches.append(batch)
            runs.append(batches)
            again = list(loader)
            self.assertFalse(same(batches, again))
        self.assertTrue(same(runs[0], runs[1]) and same(runs[0], runs[2]))
        values = torch.cat(runs[0])
        self.assertEqual(len(set(values[:, 1].tolist())), 30)

    def test_in_the_callers_thread_as_torch(self):
        def run(kind):
            import random
            torch.manual_seed(2)
            random.seed(3)
            if support.numpy:
                support.numpy.random.seed(4)
            return list(kind(Noisy(12), 5, shuffle=True))
        self.assertTrue(same(run(DataLoader), run(TorchLoader)))


CTRL_C = """
import os, signal, sys, threading, time
import torch_support as t
class Slow(t.SafeSquares):
    def __getitem__(self, sample):
        time.sleep(0.7)
        return sample
loader = iter(t.DataLoader(Slow(8), 2, num_workers=2))
def interrupt():
    time.sleep(0.1)
    interrupt.sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    next(loader)
except KeyboardInterrupt:
    print(time.monotonic() - interrupt.sent)
assert next(loader).tolist() == [0, 1]  # nothing is lost
"""
ENDS = {
    "in mid-run": "next(loader)",
    "from within a loop": "for batch in loader: sys.exit(0)",
    "with a cycle": "class C: pass\nc = C(); c.c = c; c.l = loader; next(loader)",
    "the iterator last": "held = loader; del safe; gc.collect(); next(held)",
    "with work to do": "big = iter(t.DataLoader(t.SafeNoisy(10**6), 1000, num_workers=2))",
    "by an exception": "try: raise KeyError(next(loader))\nexcept KeyError as e: kept = e",
}
START = """
import gc, sys
import torch_support as t
safe = t.DataLoader(t.SafeSquares(1000), 4, num_workers=2)
loader = iter(safe)
"""


class Life(DataTest):
    def test_ctrl_c(self):
        times = []
        for _ in range(3):
            done = run_script(CTRL_C)
            self.assertEqual(done.returncode, 0, done.stderr)
            times.append(float(done.stdout))
        self.assertLess(min(times), 0.1)

    def test_ends(self):
        for name, text in ENDS.items():
            with self.subTest(name):
                done = run_script(START + text)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_break_and_go_on(self):
        loader = DataLoader(SafeSquares(100), 3, shuffle=True, num_workers=2)
        for _ in range(200):
            for batch in loader:
                break
        self.assertEqual(len(list(loader)), 34)

    def test_memory_is_flat(self):
        for kind in (Squares, SafeSquares):
            loader = DataLoader(kind(50), 4, shuffle=True)
            n_batches, blocks, resident = 0, None, None
            while n_batches < FLAT_BATCHES:
                for batch in loader:
                    n_batches += 1
                if blocks is None and n_batches > FLAT_BATCHES // 5:
                    gc.collect()
                    blocks, resident = sys.getallocatedblocks(), support.resident_bytes()
            gc.collect()
            self.assertLess(sys.getallocatedblocks() - blocks, 500)
            self.assertLess(support.resident_bytes() - resident, 8 << 20)

    def test_fork(self):
        loader = iter(DataLoader(SafeSquares(10), 2))
        next(loader)
        child = os.fork()
        if child == 0:
            try:
                next(loader)
            except RuntimeError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(next(loader)[0].tolist(), [2, 3])


if __name__ == "__main__":
    unittest.main()
