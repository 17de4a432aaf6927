#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a permutation takes beside torch.randperm: both in one run, in turns.

Usage: order.py LIBSTOKER [N [ROUNDS]], with a Python that has torch. Prints both medians and
the median of the rounds' ratios; torch uses one thread, as randperm does anyway."""
import ctypes
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from torch_order import Error, KINDS, Library, Opts  # noqa: E402


def main():
    try:
        import torch
    except ImportError as error:
        print("skipped: no torch can be imported: %s" % error)
        return 77
    torch.set_num_threads(1)
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 1281167
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 31
    library = Library(sys.argv[1]).lib
    opts = Opts(size=ctypes.sizeof(Opts), kind=KINDS["torch"], n=n)
    order, err = ctypes.c_void_p(), Error()
    if library.stk_order_new(ctypes.byref(order), ctypes.byref(opts), ctypes.byref(err)):
        raise RuntimeError(err.message.decode())
    ids = (ctypes.c_uint64 * n)()
    ours, theirs = [], []
    for epoch in range(rounds):
        generator = torch.Generator()
        generator.manual_seed(epoch)
        begin = time.perf_counter()
        permutation = torch.randperm(n, generator=generator)
        middle = time.perf_counter()
        library.stk_order_ids(order, epoch, 0, n, ids)
        ours.append(time.perf_counter() - middle)
        theirs.append(middle - begin)
        if permutation[0].item() != ids[0] or permutation[-1].item() != ids[n - 1]:
            raise RuntimeError("epoch %d differs" % epoch)
    library.stk_order_free(order)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs))
    print("n %d, %d rounds: stoker %.2f ms, torch %s %.2f ms, median ratio %.2f" %
          (n, rounds, statistics.median(ours) * 1e3, torch.__version__,
           statistics.median(theirs) * 1e3, ratio))
    return 0


if __name__ == "__main__":
    sys.exit(main())
