# SPDX-License-Identifier: Apache-2.0
"""Map-style data sets that say where their samples lie, their bytes read by Stoker.

    dataset.stoker_extent(i)           (path, offset, bytes) of sample i, asked once for each
    dataset.stoker_decode(i, content)  what dataset[i] is, made of those bytes; in threads

torch's Subset and ConcatDataset of such data sets are such data sets.
"""

import os

from torch.utils import data

import stoker
from stoker.torch._files import Files


def has_extents(dataset):
    """Whether a data set says where its samples lie. TypeError where it says half of it."""
    if type(dataset) is data.Subset:
        return has_extents(dataset.dataset)
    if type(dataset) is data.ConcatDataset:
        return all(map(has_extents, dataset.datasets))
    names = ("stoker_extent", "stoker_decode")
    found = [name for name in names if callable(getattr(dataset, name, None))]
    if len(found) == 1:
        missing = names[found == [names[0]]]
        raise TypeError(f"{type(dataset).__name__} has {found[0]}() and no {missing}(); Stoker "
                        "reads a data set's samples where it has both")
    return bool(found)


def _base(dataset, sample):
    """The data set that a sample is of, and its place there."""
    while True:
        if type(dataset) is data.Subset:
            dataset, sample = dataset.dataset, dataset.indices[sample]
        elif type(dataset) is data.ConcatDataset:
            at = 0
            while sample >= dataset.cumulative_sizes[at]:
                at += 1
            sample -= dataset.cumulative_sizes[at - 1] if at else 0
            dataset = dataset.datasets[at]
        else:
            return dataset, sample


class Extents(Files):
    """Such a data set over a Stoker data set of its extents."""

    def __init__(self, engine, dataset):
        self.dataset = dataset
        super().__init__(engine, stoker.Dataset(engine, extents=[
            self._extent(sample) for sample in range(len(dataset))]), None)

    def _extent(self, sample):
        dataset, at = _base(self.dataset, sample)
        path, offset, n_bytes = dataset.stoker_extent(at)
        return os.path.abspath(path), int(offset), int(n_bytes)

    def decode(self, content, sample):
        dataset, at = _base(self.dataset, sample)
        return dataset.stoker_decode(at, bytes(content))

    def __getitem__(self, sample):
        sample = range(len(self))[sample]
        return self.decode(self.read(sample)[0], sample)
