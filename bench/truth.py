#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the simulator with the loader on this machine.

An emulated device (for what also writes: a slow volume, volume.sh) is measured with "stoker
probe", a decoding callback by calling it; what was measured, never what the device was set to,
goes into a scenario; the scenario is simulated, and the same job is run. Prints seconds and
origin bytes of both as Markdown. Exit status 1 when a time is more than 10 % or bytes are more
than 1 % apart. Needs root and libfuse3.

Usage: truth.py BUILD-DIRECTORY
"""
import json
import os
import subprocess
import sys
import tempfile

SAMPLES = 1200
SAMPLE_BYTES = 64 << 10
BATCH = 32
EPOCHS = 3
STAGING_BYTES = 8 << 20

# name, emulated device, reads in flight, RAM as a share of the data, compute per step in us, policy
CASES = [
    ("bandwidth, nothing kept", "rbps=40M", 16, 0, 20000, "none"),
    ("bandwidth, 40 % kept by next use", "rbps=40M", 16, 0.4, 20000, "next-use"),
    ("bandwidth, 40 % kept by LRU", "rbps=40M", 16, 0.4, 20000, "lru"),
    ("2 ms, nothing kept", "rlat=2ms", 4, 0, 10000, "none"),
    ("2 ms, 40 % kept by next use", "rlat=2ms", 4, 0.4, 10000, "next-use"),
    ("2 ms, everything fits", "rlat=2ms", 4, 1.2, 10000, "next-use"),
    ("compute", "rbps=200M", 16, 0, 40000, "none"),
]
# name, emulated device or slow volume, reads in flight, compute per step in us, decoding per sample
# in us, bytes of a checkpoint, steps from one to the next
JOBS = [
    ("decoding by a callback, 2 threads", "rbps=200M", 64, 10000, 2000, 0, 0),
    ("a checkpoint every 6 steps, same device", "bps=60M", 16, 60000, 0, 8 << 20, 6),
    ("the same, larger: it stalls", "bps=60M", 16, 60000, 0, 24 << 20, 6),
]
WORKERS = 2
SIM_POLICY = {"none": "staging", "next-use": "next-use", "lru": "lru"}


def load(stoker, folder, shape, depth, ram_bytes, compute_us, policy, epochs):
    words = [stoker, "bench", "load", folder, "--format", "folder", "--extensions", "*", "--layout",
             "raw", "--batch", str(BATCH), "--drop-last", "--epochs", str(epochs), "--shape", shape,
             "--queue-depth", str(depth), "--compute-us", str(compute_us), "--policy", policy,
             "--staging-bytes", str(STAGING_BYTES), "--seed", "7", "--quiet", "--json"]
    if ram_bytes:
        words += ["--tier", "ram:%d" % ram_bytes, "--ram-bytes", str(ram_bytes)]
    return run_json(words)


def run_json(words):
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)


def volume_sh(build, command, *words):
    """Where the volume's files are, for up and set."""
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run([here + "/volume.sh", command, "truth", *words], check=True,
                          stdout=subprocess.PIPE, universal_newlines=True,
                          env=dict(os.environ, SLOWDISK=build + "/bench/slowdisk"))
    return done.stdout.strip()


def probe(build, folder, shape):
    """The points of "stoker probe" for reads of a sample's size, by depth."""
    done = run_json([build + "/cli/stoker", "probe", folder, "--file-bytes", "16M", "--point-ms",
                     "300", "--shape", shape, "--json"])
    return {p["depth"]: p for p in done["points"] if p["block_bytes"] == SAMPLE_BYTES}


def latency_and_rate(points, depth):
    """As a job sees the device that has so many reads under way: two numbers that give what was
    measured alone and at that depth, whichever makes the lower latency."""
    rate = max(p["bytes_per_s"] for p in points.values())
    move_s = SAMPLE_BYTES / rate
    each_s = min(points[1]["latency_s"], depth / points[depth]["reads_per_s"])
    return max(0, each_s - move_s), rate


def simulate(build, device, changes):
    latency, rate = latency_and_rate(device, changes["staging_threads"])
    scenario = {
        "samples": SAMPLES, "sample_mb": SAMPLE_BYTES / 1e6, "ranks": 1, "batch": BATCH,
        "epochs": EPOCHS, "drop_last": True, "seed": 7, "decode_mb_s": 5000,
        "origin_link_mb_s": 1e6, "origin_latency_ms": latency * 1e3,
        "origin_mb_s": [[1, rate / 1e6]], "staging_mb": STAGING_BYTES / 1e6,
    }
    policy = changes.pop("policy")
    step_s = changes.pop("compute_us") / 1e6
    scenario.update(changes, compute_mb_s=BATCH * SAMPLE_BYTES / 1e6 / step_s)
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as out:
        json.dump(scenario, out)
        out.flush()
        done = run_json([build + "/cli/stoker", "simulate", out.name, "--json", "--policy", policy])
    return done["policies"][0]


def decode_mb_s(build, data, decode_us):
    """What one thread decodes: the callback timed by itself."""
    done = run_json([build + "/bench/truth_job", data, "decode_us=%d" % decode_us, "calls=300"])
    return SAMPLE_BYTES / 1e6 / done["decode_seconds"]


def loader_case(build, _, data, case, device):
    _, shape, depth, share, compute_us, policy = case
    real = load(build + "/cli/stoker", data, shape, depth, int(share * SAMPLES * SAMPLE_BYTES),
                compute_us, policy, EPOCHS)
    model = simulate(build, device, {
        "policy": SIM_POLICY[policy], "compute_us": compute_us, "staging_threads": depth,
        "ram_mb": max(0, real["capacity_bytes"] - STAGING_BYTES) / 1e6})
    return real, model


def job_case(build, folder, data, case, device):
    _, _, depth, compute_us, decode_us, ckpt_bytes, every = case
    words = [build + "/bench/truth_job", data, "batch=%d" % BATCH, "epochs=%d" % EPOCHS,
             "depth=%d" % depth, "workers=%d" % WORKERS, "staging=%d" % STAGING_BYTES,
             "compute_us=%d" % compute_us]
    changes = {"policy": "staging", "compute_us": compute_us, "staging_threads": depth}
    if decode_us:
        words += ["decode_us=%d" % decode_us]
        changes.update(decode_mb_s=decode_mb_s(build, data, decode_us), decode_threads=WORKERS)
    if ckpt_bytes:
        words += ["ckpt_bytes=%d" % ckpt_bytes, "every=%d" % every,
                  "ckpt=" + tempfile.mkdtemp(dir=folder)]
        changes.update(ckpt_mb=ckpt_bytes / 1e6, ckpt_every_steps=every, ckpt_to="origin")
    return run_json(words), simulate(build, device, changes)


def compare(name, real, model):
    seconds_off = model["seconds"] / real["seconds"] - 1
    bytes_off = model["origin_bytes"] / real["origin_bytes"] - 1
    print("| %s | %.2f s | %.2f s | %+.1f %% | %+.1f %% |" %
          (name, real["seconds"], model["seconds"], 100 * seconds_off, 100 * bytes_off), flush=True)
    return abs(seconds_off) > 0.1 or abs(bytes_off) > 0.01


def loader_cases(build):
    devices = {}
    n_far = 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        data = os.path.join(folder, "data")
        os.mkdir(data)
        for i in range(SAMPLES):
            with open(os.path.join(data, "%05d" % i), "wb") as out:
                out.write(os.urandom(1024) * (SAMPLE_BYTES // 1024))
        for case in CASES:
            if case[1] not in devices:
                devices[case[1]] = probe(build, folder, case[1])
            n_far += compare(case[0], *loader_case(build, folder, data, case, devices[case[1]]))
    return n_far


def job_cases(build):
    n_far = 0
    volume_sh(build, "down")
    folder = volume_sh(build, "up", "1G")
    try:
        data = os.path.join(folder, "data.bin")
        with open(data, "wb") as out:
            for _ in range(SAMPLES):
                out.write(os.urandom(1024) * (SAMPLE_BYTES // 1024))
        for case in JOBS:
            volume_sh(build, "set", case[1])
            device = probe(build, folder, "")
            n_far += compare(case[0], *job_case(build, folder, data, case, device))
    finally:
        volume_sh(build, "down")
    return n_far


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip())
        return 2
    build = os.path.abspath(sys.argv[1])
    print("| case | loader | simulator | | origin bytes |\n|---|---|---|---|---|")
    n_far = loader_cases(build) + job_cases(build)
    return 1 if n_far else 0


if __name__ == "__main__":
    sys.exit(main())
