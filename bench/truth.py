#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the simulator with the loader on this machine.

A device is measured by reading through the loader with one read in flight and with many; what was
measured, never what the emulated device was set to, goes into a scenario; the scenario is
simulated, and the same job is run. Prints seconds and origin bytes of both. Exit status 1 when a
time is more than 10 % or bytes are more than 1 % apart.

Usage: truth.py STOKER [SECONDS-FACTOR]   (2: twice the epochs)
"""
import json
import os
import subprocess
import sys
import tempfile

SAMPLES = 1200
SAMPLE_BYTES = 64 << 10
BATCH = 32
STAGING_BYTES = 8 << 20

# name, emulated device, reads in flight, RAM as a share of the data, compute per step in us, policy
CASES = [
    ("bandwidth, nothing kept", "rbps=40M", 8, 0, 20000, "none"),
    ("bandwidth, 40 % kept by next use", "rbps=40M", 8, 0.4, 20000, "next-use"),
    ("bandwidth, 40 % kept by LRU", "rbps=40M", 8, 0.4, 20000, "lru"),
    ("2 ms, nothing kept", "rlat=2ms", 4, 0, 10000, "none"),
    ("2 ms, 40 % kept by next use", "rlat=2ms", 4, 0.4, 10000, "next-use"),
    ("2 ms, everything fits", "rlat=2ms", 4, 1.2, 10000, "next-use"),
    ("compute", "rbps=200M", 8, 0, 40000, "none"),
]
SIM_POLICY = {"none": "staging", "next-use": "next-use", "lru": "lru"}


def load(stoker, folder, shape, depth, ram_bytes, compute_us, policy, epochs):
    words = [stoker, "bench", "load", folder, "--format", "folder", "--extensions", "*", "--layout",
             "raw", "--batch", str(BATCH), "--drop-last", "--epochs", str(epochs), "--shape", shape,
             "--queue-depth", str(depth), "--compute-us", str(compute_us), "--policy", policy,
             "--staging-bytes", str(STAGING_BYTES), "--seed", "7", "--quiet", "--json"]
    if ram_bytes:
        words += ["--tier", "ram:%d" % ram_bytes, "--ram-bytes", str(ram_bytes)]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)


def probe(stoker, folder, shape):
    """(latency in seconds, bytes per second) of the device, as far as the loader sees it."""
    one = load(stoker, folder, shape, 1, 0, 0, "none", 1)
    many = load(stoker, folder, shape, 64, 0, 0, "none", 2)["epochs"][1]
    rate = many["bytes_per_s"]
    each = one["seconds"] / one["samples"]
    return max(0, each - SAMPLE_BYTES / rate), rate


def simulate(stoker, folder, device, depth, capacity, compute_us, policy, epochs):
    latency, rate = device
    step_mb = BATCH * SAMPLE_BYTES / 1e6
    scenario = {
        "samples": SAMPLES, "sample_mb": SAMPLE_BYTES / 1e6, "ranks": 1, "batch": BATCH,
        "epochs": epochs, "drop_last": True, "seed": 7, "compute_mb_s": step_mb / compute_us * 1e6,
        "decode_mb_s": 5000, "origin_link_mb_s": 1e6, "origin_latency_ms": latency * 1e3,
        "origin_mb_s": [[1, rate / 1e6]], "staging_mb": STAGING_BYTES / 1e6,
        "staging_threads": depth, "ram_mb": max(0, capacity - STAGING_BYTES) / 1e6,
    }
    path = os.path.join(folder, "scenario.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(scenario, out)
    done = subprocess.run([stoker, "simulate", path, "--json", "--policy", SIM_POLICY[policy]],
                          check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["policies"][0]


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip())
        return 2
    stoker = os.path.abspath(sys.argv[1])
    epochs = int(3 * float(sys.argv[2] if len(sys.argv) > 2 else 1))
    n_far = 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as folder:
        data = os.path.join(folder, "data")
        os.mkdir(data)
        for i in range(SAMPLES):
            with open(os.path.join(data, "%05d" % i), "wb") as out:
                out.write(os.urandom(1024) * (SAMPLE_BYTES // 1024))
        devices = {}
        print("%-34s %9s %9s %7s %12s %12s %7s" % ("case", "loader s", "simul. s", "off",
                                                   "loader B", "simul. B", "off"))
        for name, shape, depth, share, compute_us, policy in CASES:
            if shape not in devices:
                devices[shape] = probe(stoker, data, shape)
            ram = int(share * SAMPLES * SAMPLE_BYTES)
            real = load(stoker, data, shape, depth, ram, compute_us, policy, epochs)
            model = simulate(stoker, folder, devices[shape], depth, real["capacity_bytes"],
                             compute_us, policy, epochs)
            seconds_off = model["seconds"] / real["seconds"] - 1
            bytes_off = model["origin_bytes"] / real["origin_bytes"] - 1
            n_far += abs(seconds_off) > 0.1 or abs(bytes_off) > 0.01
            print("%-34s %9.2f %9.2f %+6.1f%% %12d %12d %+6.1f%%" %
                  (name, real["seconds"], model["seconds"], 100 * seconds_off,
                   real["origin_bytes"], model["origin_bytes"], 100 * bytes_off))
    return 1 if n_far else 0


if __name__ == "__main__":
    sys.exit(main())
