#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.save of 300 tensors and fsync: torch_save.py FILE BYTES; prints JSON, removes FILE."""

import json
import os
import resource
import sys
import time

import torch


def cpu():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def main():
    path, n_bytes = sys.argv[1], int(sys.argv[2])
    mixed = (4096, 1, 1024, 3, 1024, 64, 4096, 1, 2048, 17, 512, 5)
    weights = [mixed[at % 12] for at in range(300)]
    state = {f"tensor.{at}": torch.ones(n_bytes // 4 * weight // sum(weights))
             for at, weight in enumerate(weights)}
    began, cpu_began = time.monotonic(), cpu()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.monotonic() - began
    print(json.dumps({"bytes": sum(4 * tensor.numel() for tensor in state.values()),
                      "seconds": seconds, "cpu_seconds": cpu() - cpu_began}))
    os.remove(path)


if __name__ == "__main__":
    main()
