#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tar shards as others write them, and as nobody should.

    tar_shards.py SHARD_DUMP

Archives are made with GNU tar in each of its formats and with tarfile, read through the library
and compared with the files that went in; hostile ones are made by hand and have to be refused
with words that name what is wrong. STOKER_TEST_METHODS chooses the I/O methods.
"""

import io
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

DUMP = sys.argv[1]
METHODS = os.environ.get("STOKER_TEST_METHODS", "sync auto").split()
KEY = re.compile(r"^((?:.*/|)[^./][^./]*)\.([^/]*)$")


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return f"{crc ^ 0xFFFFFFFF:08x}"


def dump(path, fields="", method=METHODS[0], files=64):
    """What comes out: samples as (name, label, {field: (length, crc) or None}), or an error."""
    done = subprocess.run([DUMP, method, str(files), fields, str(path)], capture_output=True)
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    if done.returncode:
        return done.stderr.decode(errors="replace")
    samples = []
    for line in done.stdout.split(b"\0")[:-1]:
        name, label, *rest = line.split(b"\t")
        found = {}
        for part in rest:
            field, _, value = part.partition(b"=")
            found[field.decode()] = None if value == b"-" else value.decode()
        samples.append((os.fsdecode(name), int(label), found))
    return samples


def expect(members, fields=None):
    """The same from (path, bytes) in the order of the archive, as WebDataset groups them."""
    samples, names = [], []
    for path, data in members:
        match = KEY.match(path)
        if not match or re.search(r"(^|/)__[^/]*__$", path):
            continue
        key, field = match.group(1), match.group(2).lower()
        if not samples or samples[-1][0] != key:
            samples.append((key, -1, {}))
        if field == "cls":
            samples[-1] = (key, int(data), samples[-1][2])
        elif field not in names:
            names.append(field)
        if fields is None or field in fields:
            if field != "cls" or fields:
                samples[-1][2][field] = f"{len(data)}:{crc32c(data)}"
    for _, _, found in samples:
        for name in fields or names:
            found.setdefault(name, None)
    return samples


def refuse(path, words, fields=""):
    answer = dump(path, fields)
    assert isinstance(answer, str), f"{path} was read"
    for word in [words] if isinstance(words, str) else words:
        assert word in answer, f"{word!r} is not in {answer!r}"


def tree(root, rng, n=40):
    members = []
    for i in range(n):
        directory = ["", "a/", "a/b.c/", "x" * 90 + "/" + "y" * 60 + "/"][i % 4]
        stem = f"{directory}{i:05d}" + ("n" * 120 if i % 10 == 3 else "")
        sizes = [0, 1, 511, 512, 513, 3000, 40000, 70000]
        files = [(f"{stem}.cls", str(i * 7).encode() + (b"\n" if i % 3 == 0 else b"")),
                 (f"{stem}.img.JPG", rng.randbytes(rng.choice(sizes))),
                 (f"{stem}.json", rng.randbytes(rng.choice(sizes[:5])))]
        if i % 5 == 4:
            files.pop()
        members += files
    members.sort()
    for path, data in members:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return members


def test_gnu_tar(top, rng):
    members = tree(top / "in", rng)
    short = [(p, d) for p, d in members if max(map(len, p.split("/"))) < 100 and len(p) < 100]
    for form in ["gnu", "oldgnu", "pax", "posix", "ustar", "v7"]:
        chosen = short if form in ("ustar", "v7") else members
        shard = top / f"{form}.tar"
        listing = top / "list"
        listing.write_text("".join(p + "\n" for p, _ in chosen))
        subprocess.run(["tar", f"--format={form}", "-C", top / "in", "-cf", shard, "-T", listing],
                       check=True)
        for method in METHODS:
            assert dump(shard, method=method) == expect(chosen), form
        assert dump(shard, "img.jpg") == expect(chosen, ["img.jpg"]), form
    assert dump(top / "gnu.tar", "cls img.jpg")[0][2].keys() == {"cls", "img.jpg"}
    refuse(top / "gnu.tar", ['has no field "json"', 'key "00004"'], "json")
    refuse(top / "gnu.tar", 'no field "png"', "png")
    # A whole tree, with directories between, and a list that names the archives.
    subprocess.run(["tar", "--sort=name", "-C", top / "in", "-cf", top / "t-07.tar", "a"],
                   check=True)
    inside = [(p, d) for p, d in members if p.startswith("a/")]
    assert sorted(dump(top / "t-07.tar")) == sorted(expect(inside))
    both = dump(str(top / "{gnu,pax}.tar"))
    assert both == expect(members) * 2
    assert dump(str(top / "t-{5..7}.tar").replace("5..7", "07..07")) == dump(top / "t-07.tar")
    refuse(str(top / "t-{05..07}.tar"), ["t-05.tar", "No such file"])


def test_tarfile(top, rng):
    for form in [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]:
        members = []
        shard = top / f"py{form}.tar"
        with tarfile.open(shard, "w", format=form, pax_headers={"comment": "x"}) as tar:
            for i in range(200):
                path = f"dir/{i:04d}" + ("é" * 60 if i % 7 == 1 and form else "")
                if form == tarfile.USTAR_FORMAT:
                    path = f"dir/{i:04d}"
                for field, size in [("bin", rng.randrange(2000)), ("txt", rng.randrange(20))]:
                    info = tarfile.TarInfo(f"{path}.{field}")
                    info.size = size
                    data = rng.randbytes(size)
                    tar.addfile(info, io.BytesIO(data))
                    members.append((f"{path}.{field}", data))
        assert dump(shard) == expect(members)
    # Kinds that are passed over, and names that belong to no sample.
    with tarfile.open(top / "kinds.tar", "w") as tar:
        for name, kind in [("d.x", tarfile.DIRTYPE), ("f.x", tarfile.FIFOTYPE),
                           ("c.x", tarfile.CHRTYPE), ("nodot", tarfile.REGTYPE),
                           (".hid.x", tarfile.REGTYPE), ("__meta.x__", tarfile.REGTYPE),
                           ("k.x", tarfile.REGTYPE)]:
            info = tarfile.TarInfo(name)
            info.type = kind
            tar.addfile(info)
    assert [s[0] for s in dump(top / "kinds.tar")] == ["k"]


def header(name=b"k.x", size=b"00000000000\0", kind=b"0", magic=b"ustar\00000", prefix=b""):
    block = bytearray(512)
    block[0:len(name)] = name
    block[124:124 + len(size)] = size
    block[156:157] = kind
    block[257:257 + len(magic)] = magic
    block[345:345 + len(prefix)] = prefix
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def octal(n):
    return b"%011o\0" % n


def padded(data):
    return data + bytes(-len(data) % 512)


def pax(*records, kind=b"x"):
    data = b""
    for record in records:
        length = len(record) + 2
        while len(b"%d %s\n" % (length, record)) != length:
            length = len(b"%d %s\n" % (length, record))
        data += b"%d %s\n" % (length, record)
    return header(b"pax", octal(len(data)), kind) + padded(data)


END = bytes(1024)
GOOD = header(b"good.x", octal(3)) + padded(b"abc")

HOSTILE = [
    ("empty", b"", "cut off"),
    ("zeros", END, "empty"),
    ("text", b"hello" * 300, "no tar archive"),
    ("short", GOOD[:300], "cut off"),
    ("gzip", b"\x1f\x8b" + bytes(600), "gunzip -k"),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(600), "zstd -d"),
    ("xz", b"\xfd7zXZ\0" + bytes(600), "xz -dk"),
    ("past", header(size=octal(5000)) + bytes(1024), ["cut off", "5000"]),
    ("past-far", GOOD + header(size=b"\x80" + bytes(3) + b"\x7f" + b"\xff" * 7) + END, "cut off"),
    ("huge", header(size=b"\x80" + b"\xff" * 11) + END, "no number"),
    ("negative", header(size=b"\xff" * 12) + END, "negative"),
    ("minus", header(size=b"-0000000001\0") + END, "no number"),
    ("letters", header(size=b"12x45\0") + END, "no number"),
    ("sum", b"A" + GOOD[1:] + END, "no tar archive"),
    ("sum-later", GOOD + b"A" + GOOD[1:] + END, ["offset 1024", "checksum"]),
    ("sparse", header(kind=b"S", magic=b"ustar  \0") + END, "--sparse"),
    ("sparse-pax", pax(b"GNU.sparse.major=1") + GOOD + END, "--sparse"),
    ("volume", header(kind=b"M", magic=b"ustar  \0") + END, "multi-volume"),
    ("link", GOOD + header(b"l.x", kind=b"1") + END, "--hard-dereference"),
    ("symlink", GOOD + header(b"l.x", kind=b"2") + END, "--dereference"),
    ("strange", GOOD + header(b"l.x", kind=b"Q") + END, "0x51"),
    ("twice", GOOD + GOOD + END, ['"x" twice', "1024"]),
    ("twice-case", GOOD + header(b"good.X") + END, '"x" twice'),
    ("apart", GOOD + header(b"b.x") + header(b"good.y") + END,
     ["not adjacent", '"good"', '"good.y"', "offset 0", "1536"]),
    ("pax-size", pax(b"size=99999") + header(b"a.x", octal(3)) + padded(b"abc") + END, "cut off"),
    ("pax-minus", pax(b"size=-1") + GOOD + END, "no number"),
    ("pax-big", pax(b"size=99999999999999999999") + GOOD + END, "no number"),
    ("pax-length", header(size=octal(20), kind=b"x") + padded(b"999999 path=a\n") + GOOD + END,
     "damaged pax"),
    ("pax-zero", header(size=octal(7), kind=b"x") + padded(b"0 a=b\n\n") + GOOD + END,
     "damaged pax"),
    ("pax-nul", pax(b"path=a\0.x") + GOOD + END, "NUL"),
    ("pax-global", pax(b"path=all.x", kind=b"g") + GOOD + END, "all files one name"),
    ("pax-long", pax(b"path=" + b"p" * 5000 + b".x") + GOOD + END, "4096"),
    ("pax-vast", header(size=octal(3 << 20), kind=b"x") + bytes(3 << 20) + GOOD + END, "1 MiB"),
    ("gnu-long", header(size=octal(5000), kind=b"L") + padded(b"n" * 5000) + GOOD + END, "4096"),
    ("field-long", header(b"a." + b"f" * 70) + END, "63"),
    ("fields-many", b"".join(header(b"a.f%d" % i) for i in range(40)) + END, "more than 32"),
    ("label-only", header(b"a.cls", octal(1)) + padded(b"7") + header(b"b.x") + END,
     "nothing but a label"),
]

# (name, archive, samples): what looks hostile but has a meaning.
ODD = [
    ("no-end", GOOD, [("good", -1, {"x": "abc"})]),
    ("no-padding", GOOD[:515], [("good", -1, {"x": "abc"})]),
    ("behind-end", GOOD + END + b"rubbish", [("good", -1, {"x": "abc"})]),
    ("climbing", header(b"../../etc/passwd.x") + END, [("../../etc/passwd", -1, {"x": ""})]),
    ("absolute", header(b"/etc/passwd.x") + END, [("/etc/passwd", -1, {"x": ""})]),
    ("escape", header(b"\x1b[31m.x") + END, [("\x1b[31m", -1, {"x": ""})]),
    ("no-field", header(b"a.") + END, [("a", -1, {"": ""})]),
    ("full-name", header(b"n" * 98 + b".x") + END, [("n" * 98, -1, {"x": ""})]),
    ("prefix", header(b"n" * 98 + b".x", prefix=b"p" * 155) + END,
     [("p" * 155 + "/" + "n" * 98, -1, {"x": ""})]),
    ("gnu-no-prefix", header(magic=b"ustar  \0", prefix=b"123") + END, [("k", -1, {"x": ""})]),
    ("base-256", header(size=b"\x80" + bytes(10) + b"\3") + padded(b"xyz") + END,
     [("k", -1, {"x": "xyz"})]),
    ("pax-override", pax(b"size=2", b"path=new.y") + header(size=octal(0)) + padded(b"hi") + END,
     [("new", -1, {"y": "hi"})]),
    ("pax-once", pax(b"path=new.x") + header() + header() + END,
     [("new", -1, {"x": ""}), ("k", -1, {"x": ""})]),
    ("label", header(b"a.cls", octal(2)) + padded(b"42") + header(b"a.x") + END,
     [("a", 42, {"x": ""})]),
    ("label-text", header(b"a.cls", octal(2)) + padded(b"4x") + header(b"a.x") + END,
     [("a", -1, {"cls": "4x", "x": ""})]),
    ("label-alone", header(b"a.cls", octal(2)) + padded(b"42") + END, [("a", 42, {"cls": "42"})]),
]


def test_hostile(top, _rng):
    for name, data, words in HOSTILE:
        path = top / f"{name}.tar"
        path.write_bytes(data)
        try:
            refuse(path, words)
            assert not path.with_name(path.name + ".stoker-index").exists()
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    for name, data, samples in ODD:
        path = top / f"{name}.tar"
        path.write_bytes(data)
        wanted = [(key, label, {f: f"{len(v)}:{crc32c(v.encode())}" for f, v in fields.items()})
                  for key, label, fields in samples]
        found = dump(path)
        assert found == wanted, f"{name}: {found} is not {wanted}"


def test_many(top, rng):
    """1,000 shards through few open files, in a directory, then one more, one changed."""
    members = []
    for i in range(1000):
        with tarfile.open(top / f"s{i:04d}.tar", "w") as tar:
            for j in range(3):
                data = rng.randbytes(rng.choice([10, 900, 33000 if i % 50 == 0 else 50]))
                info = tarfile.TarInfo(f"{i:04d}-{j}.bin")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
                members.append((info.name, data))
    (top / "dataset.json").write_text("{}")
    wanted = expect(members)
    for method in METHODS:
        for files in (4, 64):
            assert dump(top, method=method, files=files) == wanted
    before = (top / ".stoker-index").stat().st_mtime_ns
    assert dump(str(top / "s{0000..0999}.tar")) == wanted
    assert dump(str(top / "s*.tar")) == wanted
    assert dump(str(top / "{s00,s01}*.tar")) == wanted[:600]
    assert dump(top) == wanted and (top / ".stoker-index").stat().st_mtime_ns == before
    shutil.copy(top / "s0000.tar", top / "t.tar")
    refuse(top, ["1001", "1000", "rebuild"])
    refuse(str(top / "s{0000..0999}.tar,"), "No such file")
    (top / "t.tar").unlink()
    os.utime(top / "s0500.tar", ns=(1, 1))
    refuse(top, ["s0500.tar", "mtime"])
    refuse(str(top / "s{0500..0501}"), "No such file")
    refuse(str(top / "s{0500"), "without its }")
    refuse(str(top / "x*.tar"), "no file in it")
    refuse(str(top / "*/s.tar"), "last part")
    refuse(str(top / "{s0001,s0001}.tar"), "twice")
    refuse(str(top / "{..,.}/s0001.tar"), "leads out")


def test_index_is_stable(top, rng):
    """The index does not depend on which shard was read first."""
    for i in range(60):
        with tarfile.open(top / f"{i}.tar", "w") as tar:
            for j in range(rng.randrange(1, 400)):
                info = tarfile.TarInfo(f"{j:04d}.{rng.choice('abc')}")
                tar.addfile(info)
    images = set()
    for _ in range(4):
        dump(top)
        images.add((top / ".stoker-index").read_bytes())
        (top / ".stoker-index").unlink()
    assert len(images) == 1


def main():
    rng = random.Random(7)
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="stoker-shards-") as top:
            test(pathlib.Path(top), rng)
        print("ok", test.__name__)


if __name__ == "__main__":
    main()
