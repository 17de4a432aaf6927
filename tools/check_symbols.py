#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the public headers, the version script and the built library name the same symbols.

    check_symbols.py libstoker.so
"""

import re
import subprocess
import sys

from c_source import ROOT, blank

MAP = ROOT / "src" / "api" / "stoker.map"


def in_map():
    body = re.sub(r"/\*.*?\*/|#[^\n]*", " ", MAP.read_text(encoding="utf-8"), flags=re.S)
    names = set()
    for part in re.findall(r"global:(.*?)(?:local:|\})", body, re.S):
        names |= {name.strip() for name in part.split(";") if name.strip()}
    return names


def in_headers():
    """(functions marked STK_API, stk_ functions declared without it)."""
    marked, unmarked = set(), set()
    for path in sorted((ROOT / "include").rglob("*.h")):
        code = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", blank(path.read_text("utf-8")), flags=re.M)
        for statement in code.split(";"):
            if "typedef" in statement or "{" in statement.split("STK_API")[-1]:
                continue
            match = re.search(r"\b(stk_\w+)\s*\(", statement)
            if match:
                (marked if "STK_API" in statement else unmarked).add(match.group(1))
    return marked, unmarked


def in_library(path):
    """(exported names, names that are not functions)."""
    listing = subprocess.run(["nm", "-D", "--defined-only", path], check=True,
                             capture_output=True, text=True).stdout
    names, others = set(), set()
    for line in listing.splitlines():
        kind, name = line.split()[-2:]
        name = name.split("@")[0]
        if kind == "A":  # the version node itself
            continue
        (names if kind == "T" else others).add(name)
    return names, others


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip())
        return 2
    script = in_map()
    marked, unmarked = in_headers()
    exported, others = in_library(sys.argv[1])
    findings = [
        (marked - script, "is in a public header, not in stoker.map"),
        (script - marked, "is in stoker.map, in no public header with STK_API"),
        (unmarked, "is declared in a public header without STK_API"),
        (script - exported, "is in stoker.map, not exported by the library"),
        (exported - script, "is exported by the library, not in stoker.map"),
        (others, "is exported and no function"),
        ({name for name in exported if not name.startswith("stk_")}, "has no stk_ prefix"),
    ]
    wrong = [f"{name} {what}" for names, what in findings for name in sorted(names)]
    for line in wrong:
        print(line)
    if not wrong:
        print(f"{len(exported)} symbols agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
