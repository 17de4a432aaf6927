#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every include goes down the house, never up or sideways.

ALLOWED is the table: a room may include headers of itself and of the rooms named for it.
Rooms that have not been built yet are in it, so that they start in their place. LIBRARIES says
which room alone may know a library; PURE rooms know no clock, thread or pool.

    check_layers.py              checks this tree
    check_layers.py --self-test  checks that planted violations are found
"""

import pathlib
import sys
import tempfile

from c_source import ROOT, c_files, includes

ALLOWED = {
    "base": "",
    "model": "base",
    "order": "base model",
    "budget": "base model order",
    "io": "base model budget",
    "comm": "base model budget",
    "policy": "base model order budget",
    "format": "base model order budget io",
    "decode": "base model order budget",
    "tier": "base model order budget io comm policy format decode",
    "ckpt": "base model order budget io comm policy format decode",
    "sim": "base model order budget policy",
    "engine": "base model order budget io comm policy format decode tier ckpt",
    "loader": "base model order budget io comm policy format decode tier ckpt engine",
    "checkpointer": "base model order budget io comm policy format decode tier ckpt engine",
    "api": "base model order budget io comm policy format decode tier ckpt sim engine loader "
           "checkpointer",
}
ALLOWED = {room: set(below.split()) | {room} for room, below in ALLOWED.items()}

# A library's headers (by how their names begin) and where alone they may be included.
LIBRARIES = {
    "liburing": ("src/io", "bench"),  # bench: a contender without the library
    "linux/io_uring.h": ("src/io",),
    "ucp/": ("src/comm", "bench"),  # bench: changes what UCX's own benchmark sends
    "uct/": ("src/comm",),
    "ucs/": ("src/comm",),
    "hdf5": ("src/format",),
    "jpeglib.h": ("src/decode",),
    "turbojpeg.h": ("src/decode",),
    "isa-l": ("src/base", "cli"),
    "jansson.h": ("src/base", "src/ckpt", "cli"),
    "cmocka.h": ("tests",),
}

PURE = {"model", "order", "budget", "policy", "sim"}
IMPURE_HEADERS = {"base/clock.h", "base/thread.h", "base/pool.h"}
PURE_BANS = ("pthread.h", "fcntl.h", "unistd.h", "time.h", "dirent.h", "sys/stat.h", "sys/mman.h")
# What the lowest room may know of the public interface: errors, no domain word.
BASE_PUBLIC = {"stoker/types.h"}
USERS = {"cli", "python", "examples", "bench"}


def check_library(place, name):
    for prefix, homes in LIBRARIES.items():
        if name.startswith(prefix) and not any((place + "/").startswith(h + "/") for h in homes):
            return f"<{name}> may be included in {' '.join(homes)}/ only"
    return None


def check_room(root, room, quote, name):
    """An include of a file in src/room."""
    if room not in ALLOWED:
        return f"src/{room} is no room of the layering table"
    if room in PURE and (name in IMPURE_HEADERS or (quote == "<" and name in PURE_BANS)):
        return f"{room}/ is pure and may not include {name}"
    if quote == "<":
        if room == "base" and name.startswith("stoker/") and name not in BASE_PUBLIC:
            return f"base/ may know {' '.join(BASE_PUBLIC)} only, not <{name}>"
        return None
    target = name.split("/")[0]
    if name.count("/") != 1 or not (root / "src" / name).is_file():
        return f'"{name}" is not the "room/file.h" of a header in src/'
    if target not in ALLOWED[room]:
        return f'{room}/ may not include "{name}": {target}/ is not below it'
    return None


def check_include(root, path, quote, name):
    """None, or what is wrong with this include of path (relative to root)."""
    top = path.parts[0]
    place = str(path.parent)
    wrong = check_library(place, name)
    if wrong:
        return wrong
    if top == "src":
        return check_room(root, path.parts[1], quote, name)
    if top == "include" and (quote == '"' or "/" in name and not name.startswith("stoker/")):
        return f"a public header may include the C library and <stoker/...> only, not {name}"
    if top in USERS and quote == '"':
        own = (root / path.parent / name).resolve()
        if ".." in name or not own.is_relative_to((root / top).resolve()) or not own.is_file():
            return f'{top}/ may include <stoker/...> and its own headers only, not "{name}"'
    return None


def check_tree(root):
    """A list of "file:line: what is wrong"."""
    found = []
    for path in c_files(root):
        relative = path.relative_to(root)
        for line, quote, name in includes(path.read_text(encoding="utf-8")):
            wrong = check_include(root, relative, quote, name)
            if wrong:
                found.append(f"{relative}:{line}: {wrong}")
    return found


# file, its text, and a part of what must be said about it ("" for a good one)
PLANTED = [
    ("src/base/mem.h", "#include <stoker/types.h>\n", ""),
    ("src/base/clock.h", "", ""),
    ("src/io/aio.h", '#include "base/mem.h"\n', ""),
    ("src/io/uring.c", "#include <liburing.h>\n", ""),
    ("src/order/order.h", "/* #include <liburing.h> */\n", ""),
    ("src/tier/ram.h", '#include "io/aio.h"\n', ""),
    ("src/base/up.c", '#include "io/aio.h"\n', "io/ is not below"),
    ("src/base/domain.c", "#include <stoker/plan.h>\n", "base/ may know"),
    ("src/io/side.c", '#include "order/order.h"\n', "order/ is not below"),
    ("src/policy/sees_io.c", '#include "io/aio.h"\n', "io/ is not below"),
    ("src/ckpt/side.c", '  #  include "tier/ram.h"\n', "tier/ is not below"),
    ("src/tier/ring.c", "#include <liburing.h>\n", "src/io bench/ only"),
    ("src/io/ucx.c", "#include <ucp/api/ucp.h>\n", "src/comm bench/ only"),
    ("src/tier/h5.c", "#include <hdf5.h>\n", "src/format/ only"),
    ("src/ckpt/crc.c", "#include <isa-l/crc.h>\n", "src/base cli/ only"),
    ("src/model/now.c", '#include "base/clock.h"\n', "is pure"),
    ("src/order/file.c", "#include <fcntl.h>\n", "is pure"),
    ("src/tier/gone.c", '#include "base/gone.h"\n', "is not the"),
    ("src/tier/flat.c", '#include "ram.h"\n', "is not the"),
    ("src/attic/x.c", '#include "base/mem.h"\n', "no room"),
    ("include/stoker/bad.h", "#include <sys/uio.h>\n", "public header"),
    ("cli/args.h", "", ""),
    ("cli/main.c", '#include <stoker/stoker.h>\n#include "args.h"\n', ""),
    ("cli/inner.c", '#include "base/mem.h"\n', "its own headers"),
    ("examples/inner.c", '#include "../src/base/mem.h"\n', "its own headers"),
    ("bench/ring.c", "#include <liburing.h>\n", ""),
    ("cli/ring.c", "#include <liburing.h>\n", "src/io bench/ only"),
    ("tests/test_x.c", '#include <cmocka.h>\n#include "io/aio.h"\n', ""),
]


def self_test():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = check_tree(root)
    for name, _, expected in PLANTED:
        said = [line for line in found if line.startswith(name + ":")]
        if bool(said) != bool(expected) or (expected and expected not in said[0]):
            failed.append(f"self-test: {name}: expected {expected!r}, got {said}")
    return failed


def main():
    found = self_test() if "--self-test" in sys.argv[1:] else check_tree(ROOT)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
