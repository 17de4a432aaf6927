#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tar shards of samples with a picture, a label and some words.

    make_shards.py FOLDER TOTAL_BYTES SAMPLE_BYTES

Pictures are between half and one and a half of SAMPLE_BYTES, their bytes do not compress. Shards
have about 100 MB, or there are four.
"""

import os
import pathlib
import random
import sys
import tarfile

SHARD_BYTES = 100_000_000


def header(name, n_bytes):
    info = tarfile.TarInfo(name)
    info.size = n_bytes
    return info.tobuf(tarfile.USTAR_FORMAT)


def make_shards(folder, total_bytes, sample_bytes):
    """Returns how many members there are."""
    rng = random.Random(1)
    noise = os.urandom(8 * sample_bytes)
    n_shards = max(4, round(total_bytes / SHARD_BYTES))
    n_samples = max(1, int(total_bytes / n_shards / (sample_bytes + 4096)))
    for shard in range(n_shards):
        with open(folder / f"train-{shard:06}.tar", "wb", buffering=1 << 20) as file:
            for sample in range(n_samples):
                name = f"{shard:06}{sample:06}"
                size = sample_bytes // 2 + rng.randrange(sample_bytes)
                start = rng.randrange(len(noise) - size)
                for field, data in (("cls", b"%d" % (sample % 1000)),
                                    ("jpg", noise[start:start + size]),
                                    ("json", noise[:300].hex().encode())):
                    file.write(header(f"{name}.{field}", len(data)))
                    file.write(data)
                    file.write(bytes(-len(data) % 512))
            file.write(bytes(1024))
    os.sync()
    return 3 * n_shards * n_samples


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    make_shards(pathlib.Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
