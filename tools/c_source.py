# SPDX-License-Identifier: Apache-2.0
"""What the checkers share: finding C files, and telling code from comments and strings."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
C_FOLDERS = ("include", "src", "cli", "python", "examples", "bench", "tests")

# Comments, strings and characters, in one pass, so that a quote in a comment is not a string.
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def c_files(root=ROOT):
    """Every .c and .h of the project, in a fixed order."""
    for folder in C_FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]")):
            yield path


def blank(text, keep_strings=False):
    """The text with comments (and strings) turned into blanks; lines stay where they are."""

    def replace(match):
        token = match.group(0)
        if keep_strings and token[0] in "\"'":
            return token
        return re.sub(r"[^\n]", " ", token)

    return TOKEN.sub(replace, text)


def comments(text):
    """(line number, comment) of every comment."""
    for match in TOKEN.finditer(text):
        if match.group(0).startswith("/"):
            yield text.count("\n", 0, match.start()) + 1, match.group(0)


def includes(text):
    """(line number, "<" or '"', name) of every include."""
    code = blank(text, keep_strings=True)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', code, re.M):
        yield code.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)
