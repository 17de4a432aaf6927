#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of the reference library are read here, and the other way round.

    safetensors_interop.py STOKER MAKE_CKPT      77: no safetensors or numpy here
"""

import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"not here: {missing}")
    sys.exit(77)

STOKER, MAKE = sys.argv[1:3]
DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "F16": "f2", "U32": "u4",
          "I32": "i4", "F32": "f4", "U64": "u8", "I64": "i8", "F64": "f8", "C64": "c8"}


def stoker(*args):
    done = subprocess.run([STOKER, "ckpt", *args], capture_output=True, text=True, check=True)
    return done.stdout


def check_ours(top):
    """What is written here, exported from two parts and as the one part, by the reference."""
    for roots in ([], [top + "/a", top + "/b"]):
        directory = f"{top}/run{len(roots)}"
        subprocess.run([MAKE, directory, *roots], check=True)
        name = f"{top}/out{len(roots)}.safetensors"
        stoker("export", directory, name, "--step", "3")
        paths = [name]
        if not roots:
            part = [entry for entry in os.listdir(directory) if entry.startswith("step-3.")]
            paths.append(f"{directory}/{part[0]}/model.safetensors")
        for path in paths:
            tensors = load_file(path)
            expected = numpy.arange(3000 * 7, dtype="f4").reshape(3000, 7) + 3
            assert (tensors["weights"] == expected).all()
            assert (tensors["moments"] == numpy.arange(1111) * 0.5 + 3).all()
            assert tensors["scalar"].shape == () and tensors["scalar"] == 3
            assert tensors["mask"].dtype == bool and len(tensors["mask"]) == 13
            assert len(tensors["stoker.blob.rng"]) == 13
            with safetensors.safe_open(path, "numpy") as opened:
                assert opened.metadata() == {"step": "3"}
                assert opened.get_slice("weights")[5:7, 2].tolist() == [40, 47]


def check_theirs(top):
    """What the reference writes, with every type of NumPy, empty and 0-d tensors, odd names."""
    made = {f"t.{name} \u00fc\"\\\n": numpy.arange(24).astype(code).reshape(2, 3, 4)
            for name, code in DTYPES.items()}
    made["empty"] = numpy.zeros((3, 0, 2), dtype="f4")
    made["scalar"] = numpy.array(7, dtype="i8")
    path = top + "/theirs.safetensors"
    save_file(made, path, metadata={"k": "v"})
    shown = stoker("show", path)
    for name in DTYPES:
        assert name in shown, name
    assert "[3, 0, 2]" in shown and "k = v" in shown
    for name, values in made.items():
        done = subprocess.run([MAKE, "--read", path, name], capture_output=True, check=True)
        assert done.stdout == values.tobytes(), name


def main():
    with tempfile.TemporaryDirectory() as top:
        check_ours(top)
        check_theirs(top)
    print(f"safetensors {safetensors.__version__}: both ways")


if __name__ == "__main__":
    main()
