#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lists of a manual page are closed where they are to be: before the next section, once.

Usage: man_page.py FILE..."""
import re
import sys


def faults(path):
    opened = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            macro = re.match(r"\.(Bl|El|Sh|Ss)\b", line)
            if not macro:
                continue
            if macro[1] == "Bl":
                opened.append(number)
            elif macro[1] == "El":
                if not opened:
                    yield f"{path}:{number}: .El without .Bl"
                opened = opened[:-1]
            else:
                yield from (f"{path}:{begin}: .Bl without .El" for begin in opened)
                opened = []
    yield from (f"{path}:{begin}: .Bl without .El" for begin in opened)


def main():
    found = [fault for path in sys.argv[1:] for fault in faults(path)]
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
