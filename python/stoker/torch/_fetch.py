# SPDX-License-Identifier: Apache-2.0
"""From the indices of a batch to the batch: a map-style data set and a collate function."""

from torch.utils import data

from stoker.torch import _random

# Exactly these, which only read what they hold, run beside themselves safely.
_SAFE = (data.TensorDataset, list, tuple, range)
_AROUND = {data.Subset: lambda outer: [outer.dataset],
           data.ConcatDataset: lambda outer: outer.datasets}


def is_thread_safe(dataset):
    """Whether a data set says of itself, or is known, to be fit for several threads at once."""
    declared = getattr(dataset, "stoker_thread_safe", None)
    if declared is not None:
        return bool(declared)
    if type(dataset) in _AROUND:
        return all(is_thread_safe(inner) for inner in _AROUND[type(dataset)](dataset))
    return type(dataset) in _SAFE


class Fetch:
    """Fetches batches as torch does: __getitems__ where there is one, else sample by sample."""

    def __init__(self, dataset, collate, is_batched):
        self.dataset = dataset
        self.collate = collate
        self.is_batched = is_batched

    def __call__(self, index):
        return self.collate(self.samples(index))

    def samples(self, index):
        if not self.is_batched:
            return self.dataset[index]
        whole = getattr(self.dataset, "__getitems__", None)
        if whole:
            return whole(index)
        return [self.dataset[one] for one in index]

    def seeded(self, index, base, batch, seed, first=0):
        """The samples, the generators set anew by seed(number) before each one.

        first: the place in the batch of the first of them.
        """
        if not self.is_batched:
            seed(_random.sample_seed(base, batch, 0, index))
            return self.dataset[index]
        if getattr(self.dataset, "__getitems__", None):
            seed(_random.sample_seed(base, batch, 0, index[0] if len(index) else 0))
            return self.dataset.__getitems__(index)
        samples = []
        for place, one in enumerate(index, first):
            seed(_random.sample_seed(base, batch, place, one))
            samples.append(self.dataset[one])
        return samples


def default_collate(is_batched):
    """What makes a batch of samples where nothing else was said."""
    return data.default_collate if is_batched else data.default_convert
