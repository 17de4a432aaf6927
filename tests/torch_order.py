#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the library's orders with those of an installed PyTorch, on random cases.

Usage: torch_order.py LIBSTOKER [CASES]. Exits 77 with the reason where no torch can be
imported, neither by this interpreter nor by the system's; STOKER_TORCH_PYTHON names another one.
Works with torch 1.13 (where the legacy draws apply) and 2.x; StatefulDataLoader is included where
torchdata is installed."""
import ctypes
import itertools
import os
import random
import sys
import warnings

KINDS = {"sequential": 1, "torch": 2, "keyed": 3}
SAMPLERS = {"distributed": 1, "dataloader": 2, "generator": 3, "stateful": 4}
WORKERS = {"none": 0, "some": 1, "persistent": 2}


class Opts(ctypes.Structure):
    """stk_order_opts"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("kind", ctypes.c_uint32), ("sampler", ctypes.c_uint32),
        ("n", ctypes.c_uint64), ("seed", ctypes.c_int64), ("world", ctypes.c_uint32),
        ("rank", ctypes.c_uint32), ("no_shuffle", ctypes.c_uint32),
        ("drop_uneven", ctypes.c_uint32), ("legacy_torch", ctypes.c_uint32),
        ("replacement", ctypes.c_uint32), ("num_samples", ctypes.c_uint64),
        ("workers", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class Error(ctypes.Structure):
    """stk_error"""
    _fields_ = [("code", ctypes.c_int), ("rank", ctypes.c_int), ("sample", ctypes.c_uint64),
                ("message", ctypes.c_char * 256), ("path", ctypes.c_char * 512)]


class Library:
    """The orders of libstoker.so as lists."""

    def __init__(self, path):
        u64 = ctypes.c_uint64
        self.lib = ctypes.CDLL(path)
        self.lib.stk_order_ids.argtypes = [ctypes.c_void_p, u64, u64, u64, ctypes.c_void_p]
        self.lib.stk_order_length.argtypes = [ctypes.c_void_p, ctypes.POINTER(u64)]
        self.lib.stk_order_free.argtypes = [ctypes.c_void_p]

    def ids(self, epoch, **fields):
        opts = Opts(size=ctypes.sizeof(Opts), kind=KINDS["torch"], **fields)
        order, err, length = ctypes.c_void_p(), Error(), ctypes.c_uint64()
        if self.lib.stk_order_new(ctypes.byref(order), ctypes.byref(opts), ctypes.byref(err)):
            raise RuntimeError(err.message.decode())
        try:
            self.lib.stk_order_length(order, ctypes.byref(length))
            ids = (ctypes.c_uint64 * max(1, length.value))()
            rc = self.lib.stk_order_ids(order, epoch, 0, length.value, ids)
            if rc:
                raise RuntimeError("stk_order_ids: %d" % rc)
            return list(ids)[:length.value]
        finally:
            self.lib.stk_order_free(order)


def random_n(rng):
    return rng.choice([1, 2, 3, rng.randint(1, 40), rng.randint(1, 700), rng.randint(1, 5000)])


def random_seed(rng):
    return rng.choice([0, 1, -1, rng.randint(-2**63, 2**63 - 1), rng.randint(0, 2**32 + 5)])


def random_sampler_options(rng, n):
    """Options of RandomSampler: its own arguments and the library's fields."""
    kind = rng.randrange(4)
    if kind == 0:
        return {}
    num = rng.choice([1, n, 2 * n, rng.randint(1, 3 * n), 32, 33])
    if kind == 1:
        return {"num_samples": num}
    return {"replacement": 1, "num_samples": num}


class Cases:
    """One method per family; each returns (expected, got, description)."""

    def __init__(self, torch, stateful, library, rng):
        self.torch, self.stateful, self.library, self.rng = torch, stateful, library, rng
        # Below the limits from which newer versions draw otherwise nothing depends on it.
        self.legacy = int(tuple(int(x) for x in torch.__version__.split(".")[:2]) <= (2, 5))

    def compare(self, expected, epoch, what, **fields):
        got = self.library.ids(epoch, **fields, legacy_torch=self.legacy)
        return expected, got, "%s epoch %d %s" % (what, epoch, fields)

    def distributed(self):
        rng, torch = self.rng, self.torch
        n, seed = random_n(rng), random_seed(rng)
        world = rng.choice([1, 2, 3, 4, 7, rng.randint(1, 64), n, n + 1])
        rank, epoch = rng.randrange(world), rng.choice([0, 1, 2, 90, 10**6])
        if seed < 0:  # manual_seed() takes the sum, which may not fall below -2^63 or pass 2^64
            epoch = min(epoch, 90)
        shuffle, drop = rng.random() < 0.85, rng.random() < 0.5
        sampler = torch.utils.data.distributed.DistributedSampler(
            range(n), num_replicas=world, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop)
        sampler.set_epoch(epoch)
        return self.compare(list(sampler), epoch, "DistributedSampler", n=n, seed=seed, world=world,
                            rank=rank, no_shuffle=int(not shuffle), drop_uneven=int(drop),
                            sampler=SAMPLERS["distributed"])

    def run_epochs(self, make, epoch, seed):
        """The ids of an epoch of a loader made after manual_seed(seed), all before it read."""
        self.torch.manual_seed(seed)
        loader = make()
        for _ in range(epoch):
            collections_of(loader)
        return collections_of(loader)

    def sampled(self, which, module, generator_is_own, workers="none"):
        rng, torch = self.rng, self.torch
        n, seed, epoch = random_n(rng), random_seed(rng), rng.randrange(5)
        if workers != "none":
            n = min(n, 60)
        options = random_sampler_options(rng, n)
        batch = rng.choice([1, 3, 7, n]) if n < 100 else 64

        def make():
            generator = None
            if generator_is_own:
                generator = torch.Generator()
                generator.manual_seed(seed)
            sampler = None
            if options:
                base = sys.modules[module.RandomSampler.__module__]
                sampler = base.RandomSampler(range(n), replacement=bool(options.get("replacement")),
                                             num_samples=options["num_samples"],
                                             generator=generator)
            return module.Loader(list(range(n)), batch_size=batch, sampler=sampler,
                                 shuffle=None if sampler else True, generator=generator,
                                 num_workers=0 if workers == "none" else 2,
                                 persistent_workers=workers == "persistent",
                                 collate_fn=list)
        got = self.run_epochs(make, epoch, seed)
        return self.compare(got, epoch, which, n=n, seed=seed, sampler=SAMPLERS[which],
                            workers=WORKERS[workers], **options)

    def plain(self):
        class Module:
            Loader = self.torch.utils.data.DataLoader
            RandomSampler = self.torch.utils.data.RandomSampler
        return Module

    def dataloader(self, workers="none"):
        return self.sampled("dataloader", self.plain(), False, workers)

    def generator(self, workers="none"):
        return self.sampled("generator", self.plain(), True, workers)

    def stateful_loader(self, workers="none"):
        return self.sampled("stateful", self.stateful, False, workers)

    def large_randint(self):
        """Numbers beyond 2^28, where newer versions draw 64 bits."""
        rng, torch = self.rng, self.torch
        n, seed = rng.randint(2**26, 2**34), random_seed(rng)
        torch.manual_seed(seed)
        sampler = torch.utils.data.RandomSampler(range(n), replacement=True, num_samples=100)
        version = tuple(int(x) for x in torch.__version__.split(".")[:2])
        expected = collections_of(torch.utils.data.DataLoader(range(n), sampler=sampler,
                                                              batch_size=7, collate_fn=list))
        fields = {"n": n, "seed": seed, "sampler": SAMPLERS["dataloader"], "replacement": 1,
                  "num_samples": 100, "legacy_torch": int(version <= (2, 6))}
        return expected, self.library.ids(0, **fields), "randint %s" % fields


def collections_of(loader):
    return list(itertools.chain.from_iterable(loader))


def import_stateful():
    try:
        from torchdata import stateful_dataloader
        from torchdata.stateful_dataloader import sampler
    except Exception:  # any reason why it cannot be used here
        return None

    class Module:
        Loader = stateful_dataloader.StatefulDataLoader
        RandomSampler = sampler.RandomSampler
    return Module


def plan_cases(cases, count):
    """Methods to call: mostly cheap families, and a few with worker processes."""
    families = [cases.distributed, cases.distributed, cases.dataloader, cases.generator]
    with_workers = [cases.dataloader, cases.generator]
    if cases.stateful:
        families.append(cases.stateful_loader)
        with_workers.append(cases.stateful_loader)
    calls = [lambda f=families[i % len(families)]: f() for i in range(count - 60)]
    calls += [cases.large_randint] * 48
    for i in range(12):
        workers = "some" if i % 2 else "persistent"
        calls.append(lambda f=with_workers[i // 2 % len(with_workers)], w=workers: f(w))
    return calls


def try_other_python():
    """Runs this script again with the interpreter that STOKER_TORCH_PYTHON names or, failing
    that, the system's, whose packages a virtual environment does not see."""
    other = os.environ.pop("STOKER_TORCH_PYTHON", "/usr/bin/python3")
    if os.environ.setdefault("STOKER_TORCH_TRIED", "no") == "no" and os.access(other, os.X_OK):
        os.environ["STOKER_TORCH_TRIED"] = "yes"
        os.execv(other, [other] + sys.argv)


def main():
    if "STOKER_TORCH_PYTHON" in os.environ:
        try_other_python()
    try:
        import torch
        import torch.utils.data.distributed
    except Exception as error:
        try_other_python()
        print("skipped: no torch can be imported: %s" % error)
        return 77
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    cases = Cases(torch, import_stateful(), Library(sys.argv[1]), random.Random(20260101))
    failed = 0
    for call in plan_cases(cases, count):
        expected, got, what = call()
        if expected != got:
            failed += 1
            print("differs: %s\n  torch   %s\n  library %s" % (what, expected[:12], got[:12]))
    print("torch %s, StatefulDataLoader %s: %d cases, %d differ" %
          (torch.__version__, "yes" if cases.stateful else "not installed", count, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
