#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stoker ckpt and stoker bench save from outside: cli_ckpt.py STOKER MAKE_CKPT

MAKE_CKPT DIR [ROOT...] saves steps 1 .. 4 of a known state.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

STOKER, MAKE = sys.argv[1:3]


def run(*args, status=0):
    done = subprocess.run([STOKER, *args], capture_output=True, text=True, check=False)
    assert done.returncode == status, (args, done.returncode, done.stdout, done.stderr)
    return done


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def steps(directory):
    return [int(line.split()[1]) for line in run("ckpt", "list", directory).stdout.splitlines()]


def files_below(*tops):
    return sorted(os.path.join(folder, name) for top in tops
                  for folder, _, names in os.walk(top) for name in names)


def check_hostile_names(path):
    """What steers a terminal stays in the file."""
    header = json.dumps({"__metadata__": {"k\x1b[2J": "a\nb"},
                         "\x1b]0;t\x07\x9b31m\u20ac": {"dtype": "U8", "shape": [1],
                                                     "data_offsets": [0, 1]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + b"x")
    shown = run("ckpt", "show", path).stdout
    assert "metadata  k\\x1b[2J = a\\x0ab\n" in shown, shown
    assert "]  \\x1b]0;t\\x07\\x9b31m\u20ac\n" in shown, shown


def check_commands(top):
    run_dir, root = top + "/run", top + "/root"
    subprocess.run([MAKE, run_dir, root, top + "/root2"], check=True)
    assert steps(run_dir) == [4, 3, 2, 1]
    assert "step 4:" in run("ckpt", "verify", run_dir).stdout
    assert run("ckpt", "verify", run_dir, "--all").stdout.count("are whole") == 4
    shown = run("ckpt", "show", run_dir, "--step", "3").stdout
    assert "step 3, 2 parts" in shown and "F32" in shown and "weights" in shown, shown
    run("ckpt", "export", run_dir, top + "/out.safetensors", "--step", "2")
    run("ckpt", "export", run_dir, top + "/out.safetensors", status=1)  # it is there
    with open(top + "/out.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    assert header["weights"]["dtype"] == "F32" and header["__metadata__"]["step"] == "2"
    assert "weights" in run("ckpt", "show", top + "/out.safetensors").stdout
    check_hostile_names(top + "/hostile.safetensors")
    assert run("ckpt", "prune", run_dir, "--keep", "3").stdout == "1 removed\n"
    assert steps(run_dir) == [4, 3, 2]
    run("ckpt", "show", run_dir, "--step", "1", status=1)
    for words in (("list", "--keep", "1"), ("list", "--step", "1"), ("show", "--all"),
                  ("verify", "--all", "--step", "2"), ("verify", "--orphans"),
                  ("prune", "--step", "2"), ("prune", "--root", root), ("prune", "--all"),
                  ("show", "--node-local"), ("export", "--node-local")):
        more = [top + "/no"] if words[0] == "export" else []
        assert words[1] in run("ckpt", words[0], run_dir, *more, *words[1:], status=2).stderr, words


def check_orphans(top):
    run_dir, root = top + "/run", top + "/root"
    left = root + "/step-9.0123456789abcdef-0"
    os.mkdir(left)
    with open(left + "/part-0-0.bin", "wb") as file:
        file.write(b"x")
    os.mkdir(run_dir + "/step-9.0123456789abcdef-0.tmp")
    before = files_below(run_dir, root)
    run("ckpt", "prune", run_dir, "--keep", "9")
    assert files_below(run_dir, root) == before
    run("ckpt", "prune", run_dir, "--keep", "9", "--orphans", "--root", root)
    assert not os.path.exists(left) and steps(run_dir) == [4, 3, 2]
    assert run("ckpt", "verify", run_dir, "--all").stdout.count("are whole") == 3


def check_damage(top):
    """A bit flipped anywhere in any file is found, and the newest whole one is taken."""
    run_dir = top + "/run"
    for path in files_below(run_dir, top + "/root", top + "/root2"):
        size = os.path.getsize(path)
        for at in sorted({0, 7, 8, 30, size // 3, size // 2, size - 1}):
            flip(path, at)
            done = run("ckpt", "verify", run_dir, "--all", status=1)
            assert done.stdout.count("are whole") == 2, (path, at, done.stdout)
            assert os.path.dirname(path).split("/")[-1].split(".")[0] in done.stderr + path
            flip(path, at)
    manifest = run_dir + "/step-4/manifest.json"
    flip(manifest, 100)
    done = run("ckpt", "verify", run_dir)
    assert "step 3:" in done.stdout and "1 newer not whole" in done.stderr
    flip(manifest, 100)
    shutil.move(top + "/root2", top + "/gone")  # a removed stripe root
    done = run("ckpt", "verify", run_dir, status=1)
    assert "root2" in done.stderr and "not there" in done.stderr, done.stderr
    # As where it is another node's; nothing that is here is missed or damaged.
    assert run("ckpt", "list", run_dir).stdout.count("; 1 of 2 parts here, of writers 0") == 3
    listed = run("ckpt", "list", run_dir, "--node-local").stdout
    assert "NOT WHOLE" not in listed and listed.count("1 of 2 parts here") == 3, listed
    done = run("ckpt", "verify", run_dir, "--node-local")
    assert "step 4: 1 of 2 parts here" in done.stdout and "are whole" in done.stdout, done.stdout
    assert run("ckpt", "verify", run_dir, "--node-local", "--all").stdout.count("are whole") == 3
    run("ckpt", "verify", run_dir, "--node-local", "--step", "1", status=1)
    shutil.move(top + "/gone", top + "/root2")
    run("ckpt", "verify", run_dir)
    for path in files_below(top + "/root", top + "/root2"):
        flip(path, os.path.getsize(path) - 1)
        done = run("ckpt", "verify", run_dir, "--node-local", "--all", status=1)
        assert "2 of 2 parts here" in done.stdout and "1 part is damaged" in done.stdout
        assert os.path.basename(path) in done.stderr, done.stderr
        flip(path, os.path.getsize(path) - 1)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def check_future(top):
    """A manifest of a later version is refused by name, not misread."""
    manifest = top + "/run/step-4/manifest.json"
    with open(manifest, "rb") as file:
        old = file.read()
    rest = old[19:].replace(b'"version":1,', b'"version":3,')
    with open(manifest, "wb") as file:
        file.write(b'{"crc32c":"%08x' % crc32c(rest) + rest)
    done = run("ckpt", "show", top + "/run", "--step", "4", status=1)
    assert "version 3" in done.stderr, done.stderr
    with open(manifest, "wb") as file:
        file.write(old)


def check_bench(top):
    done = run("bench", "save", "--root", top, "--size", "3M", "--tensors", "7", "--saves", "2",
               "--load", "--json", "--quiet", "--every-iteration", "--iterations", "3",
               "--forward-us", "1000", "--backward-us", "1000", "--accumulation", "2")
    result = json.loads(done.stdout)
    for key in ("bytes", "seconds", "bytes_per_s", "cpu_seconds", "captured_seconds",
                "durable_seconds", "overhead_fraction", "roots"):
        assert key in result, key
    assert result["bytes"] == 3 << 20 and result["roots"] == [top]
    assert 0 < result["captured_seconds"] <= result["durable_seconds"]
    assert [name for name in os.listdir(top) if "bench" in name] == []
    done = run("bench", "save", "--root", top, "--size", "3M", "--tensors", "7", "--saves", "4",
               "--shared", top, "--shared-every", "2", "--json", "--quiet", "--load")
    result = json.loads(done.stdout)
    assert result["shared_copies"] == 2 and "partner_seconds" not in result, result
    assert result["shared_seconds"] > min(result["saves"]) > 0, result  # not all were copied
    assert [name for name in os.listdir(top) if "bench" in name] == []
    done = run("bench", "save", "--root", top, "--size", "3M", "--saves", "1", "--shared", top)
    assert "in the shared directory after" in done.stdout, done.stdout
    for words, told in ((["--partner"], "it needs --node-local"),
                        (["--node-local"], "no launcher has started any"),
                        (["--node-local", "--alone"], "--alone leaves no other rank"),
                        (["--shared-every", "2"], "--shared DIR, which is missing"),
                        (["--shared", top, "--shared-every", "0"], "from 1 to"),
                        (["--load-next", "1", "--load"], "needs --load and --unique"),
                        (["--load-next", "1", "--load", "--unique"], "no launcher"),
                        (["--together"], "needs --load"),
                        (["--together", "--load", "--unique"], "each holds its own")):
        assert told in run("bench", "save", "--root", top, *words, status=2).stderr, words
    assert "/none: No such" in run("bench", "save", "--root", top, "--shared", top + "/none",
                                   status=1).stderr
    run("bench", "save", status=2)
    run("bench", "save", "--root", top + "/none", status=1)
    run("bench", "save", "--root", top, "--slot-bytes", "1000", "--size", "4K", status=2)


def check_read_only_root(top):
    """A root that cannot be made says that the file system is read-only; in a mount namespace,
    where there may be one."""
    root = top + "/read-only"
    os.makedirs(root)
    mount = 'mount -t tmpfs -o ro none "$1" || exit 77; exec "$2" bench save --root "$1" --size 4K'
    own = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    done = subprocess.run([*own, "sh", "-c", mount, "sh", root, STOKER], capture_output=True,
                          text=True, check=False)
    if done.returncode == 77 or done.stderr.startswith("unshare"):
        print("no mount namespace: a read-only root is not tried")
        return
    assert done.returncode == 1 and "cannot be made: Read-only" in done.stderr, done.stderr


def main():
    run("ckpt", status=2)
    run("ckpt", "list", status=2)
    run("ckpt", "list", "/nonexistent", status=1)
    with tempfile.TemporaryDirectory() as top:
        check_commands(top)
        check_read_only_root(top)
        check_orphans(top)
        check_damage(top)
        check_future(top)
        check_bench(top)


if __name__ == "__main__":
    main()
