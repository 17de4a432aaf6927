#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a data set three times in a new random order every time, 64 samples a step, holding up to
1 GiB of it in RAM:  PYTHONPATH=build/python examples/loader.py /data/train

Files of any kind come one by one (raw); what has samples of one size, such as an .npy or an IDX
file, comes as one array a batch (fixed)."""

import sys

import stoker


def main(path):
    n_bytes = 0
    with stoker.Engine("ram:1G") as engine, stoker.Dataset(engine, path) as data:
        with stoker.Loader(engine, data, batch_size=64, epochs=3, seed=7) as loader:
            for batch in loader:
                if batch.data is None:
                    # Raw: item is a memoryview of a stored sample, in the cache, not copied.
                    for item, label in zip(batch.items, batch.labels):
                        n_bytes += len(item)
                else:
                    # Fixed: numpy.asarray(batch.data), torch.from_dlpack(batch.data), ...
                    n_bytes += batch.data.nbytes
            stats = loader.stats()
    print(f"{n_bytes} bytes in {stats['batches']} batches, "
          f"{stats['origin_bytes']} from the origin, {stats['wait_ns'] / 1e6:.0f} ms waited")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1])
    except stoker.Error as error:
        sys.exit(f"loader.py: {error}")
