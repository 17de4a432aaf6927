#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what neither the compiler nor clang-format does: docs/STYLE.md says why.

    check_style.py              checks this tree; says how many warnings there are
    check_style.py --warnings   the same, and lists them
    check_style.py --self-test  checks that planted violations are found
"""

import pathlib
import re
import sys
import tempfile

from c_source import ROOT, TOKEN, blank, c_files, comments

MAX_COLUMNS = 100
MAX_COMMENT_COLUMNS = 90
WARN_LINES = 600
MAX_LINES = 900
MAX_FUNCTION_LINES = 100
MAX_DEPTH = 5  # braces, the function's own included

# Everywhere: no safe use. In src/ the poison of base/banned.h says so already; here for others.
UNSAFE = "strcpy strcat strncpy strtok sprintf vsprintf gets atoi atol atoll alloca rand srand"
# In src/: the library does not print, exit, fork, look at the environment or touch signals.
LIBRARY = (
    "printf vprintf fprintf vfprintf puts fputs putchar fputc perror exit _exit quick_exit fork "
    "vfork execv execve execvp execl execlp posix_spawn popen signal sigaction raise kill alarm "
    "secure_getenv putenv unsetenv setlocale nanosleep clock_nanosleep atexit daemon chdir umask"
)
# In src/: one door each.
DOORS = {
    "src/base/mem.c": "malloc calloc realloc reallocarray free strdup strndup asprintf vasprintf "
    "posix_memalign aligned_alloc",
    "src/base/thread.c": "pthread_create pthread_join pthread_detach pthread_mutex_init "
    "pthread_mutex_lock pthread_mutex_unlock pthread_mutex_trylock pthread_cond_init "
    "pthread_cond_wait pthread_cond_timedwait pthread_sigmask",
    "src/base/clock.h": "clock_gettime gettimeofday time",
    "src/base/error.c": "strerrordesc_np strerror_r",
}
TEXT_FILES = ("*.py", "*.sh", "meson.build", "meson_options.txt", "Makefile", "*.md", "*.map")
NEEDS_SPDX = (".c", ".h", ".py", ".sh")
# Notes to oneself; taken apart so that this file does not find itself.
NOTES = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")


def calls(code, names):
    """(line number, name) of every call of one of the names; a member of that name is none."""
    pattern = r"(?<![\w.>])(" + "|".join(names.split()) + r")\s*\("
    for match in re.finditer(pattern, code):
        yield code.count("\n", 0, match.start()) + 1, match.group(1)


def check_calls(name, code):
    for line, function in calls(code, UNSAFE):
        yield line, f"{function}() has no safe use here"
    if not name.startswith("src/"):
        return
    for line, function in calls(code, LIBRARY):
        yield line, f"{function}(): the library does not print, exit, fork, sleep or touch signals"
    for door, names in DOORS.items():
        if name != door:
            for line, function in calls(code, names):
                yield line, f"{function}() is called in {door} only"


def check_comments(text):
    lines = text.split("\n")
    for first, comment in comments(text):
        if comment.startswith("//"):
            yield first, "comments are /* */"
        for line in range(first, first + comment.count("\n") + 1):
            whole = lines[line - 1]
            if len(whole) > MAX_COMMENT_COLUMNS and is_all_comment(whole):
                yield line, f"a comment beyond column {MAX_COMMENT_COLUMNS}"


def is_all_comment(line):
    """Whether a line has no code beside its comment: the limit is that of code otherwise."""
    stripped = line.strip()
    is_end = stripped.endswith("*/") and "/*" not in stripped
    return stripped.startswith(("/*", "*")) or is_end


def check_functions(code):
    """Linux braces and clang-format: a brace at column 0 opens and closes a function."""
    start = depth = 0
    for line, content in enumerate(code.split("\n"), 1):
        if content.rstrip() == "{":
            start, depth = line, 0
        if start:
            for char in content:
                depth += (char == "{") - (char == "}")
                if char == "{" and depth == MAX_DEPTH + 1:
                    yield line, f"nested deeper than {MAX_DEPTH - 1} levels"
        if start and content.startswith("}"):
            length = line - start - 1
            if length > MAX_FUNCTION_LINES:
                yield start, f"a function of {length} lines (at most {MAX_FUNCTION_LINES})"
            start = 0


def check_lines(text):
    for line, content in enumerate(text.split("\n"), 1):
        if "\t" in content:
            yield line, "a tab"
        if content != content.rstrip():
            yield line, "blanks at the end of a line"
        if len(content) > MAX_COLUMNS:
            yield line, f"beyond column {MAX_COLUMNS}"
        if NOTES.search(content):
            yield line, "a note of something undone"


def check_head(name, text):
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.split("\n")[:3]):
        yield 1, "no SPDX line"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield 1, "does not end with one newline"
    if name.endswith(".h"):
        guard = re.sub(r"[^A-Za-z0-9]", "_", re.sub(r"^(src|include)/", "", name)).upper()
        if not re.search(rf"^#ifndef (STI_)?{guard}$", blank(text), re.M):
            yield 1, f"the include guard is not {guard} or STI_{guard}"


def check_c_file(name, text):
    """(line, what is wrong, is an error) for one C file."""
    code = blank(text)
    n_lines = text.count("\n")
    if n_lines > MAX_LINES:
        yield 1, f"{n_lines} lines: split it (at most {MAX_LINES})", True
    elif n_lines > WARN_LINES:
        yield 1, f"{n_lines} lines: does it hold two concepts?", False
    for line, wrong in check_comments(text):
        yield line, wrong, "beyond" not in wrong
    for check in (check_head(name, text), check_lines(text), check_functions(code),
                  check_calls(name, code)):
        for line, wrong in check:
            yield line, wrong, True


def check_text_file(path, text):
    tabs_allowed = path.name == "Makefile"
    for line, content in enumerate(text.split("\n"), 1):
        if NOTES.search(content):
            yield line, "a note of something undone", True
        if path.suffix == ".md":
            continue
        if "\t" in content and not tabs_allowed:
            yield line, "a tab", True
        if len(content) > MAX_COLUMNS:
            yield line, f"beyond column {MAX_COLUMNS}", True
    if path.suffix in NEEDS_SPDX and "SPDX-License-Identifier" not in text[:200]:
        yield 1, "no SPDX line", True


def text_files(root):
    for pattern in TEXT_FILES:
        for path in sorted(root.rglob(pattern)):
            top = path.relative_to(root).parts[0]
            if not top.startswith(("build", ".")):
                yield path


def check_tree(root):
    """(file, line, what, is an error) of everything found."""
    for path in c_files(root):
        name = str(path.relative_to(root))
        for line, wrong, is_error in check_c_file(name, path.read_text(encoding="utf-8")):
            yield name, line, wrong, is_error
    for path in text_files(root):
        name = str(path.relative_to(root))
        for line, wrong, is_error in check_text_file(path, path.read_text(encoding="utf-8")):
            yield name, line, wrong, is_error


SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
PLANTED = [
    ("src/base/good.c", SPDX + 'int\nf(void)\n{\n    return g("printf(// TO" "DO)");\n}\n', ""),
    ("src/base/clock.h", SPDX + "#ifndef STI_BASE_CLOCK_H\n#define STI_BASE_CLOCK_H\n#endif\n", ""),
    ("src/io/member.c", SPDX + "int x = table->free(1) + a.exit(2);\n", ""),
    ("src/io/nospdx.c", "int x;\n", "no SPDX"),
    ("src/io/guard.h", SPDX + "#ifndef G_H\n#define G_H\n#endif\n", "include guard"),
    ("src/io/slashes.c", SPDX + "int x; // note\n", "comments are"),
    ("src/io/tab.c", SPDX + "\tint x;\n", "a tab"),
    ("src/io/wide.c", SPDX + "int " + "x" * 100 + ";\n", "column 100"),
    ("src/io/widecomment.c", SPDX + "/* " + "x" * 92 + " */\n", "column 90"),
    ("src/io/long.c", SPDX + "int x;\n" * 901, "split it"),
    ("src/io/longish.c", SPDX + "int x;\n" * 601, "two concepts"),
    ("src/io/function.c", SPDX + "int\nf(void)\n{\n" + "    x++;\n" * 101 + "}\n", "a function of"),
    ("src/io/deep.c", SPDX + "int\nf(void)\n{\n{{{{{x;\n}}}}}\n}\n", "nested deeper"),
    ("src/io/prints.c", SPDX + 'int x = printf("x");\n', "does not print"),
    ("src/io/exits.c", SPDX + "int x = exit (1);\n", "does not print"),
    ("src/io/mallocs.c", SPDX + "int x = malloc(1);\n", "base/mem.c only"),
    ("src/io/locks.c", SPDX + "int x = pthread_mutex_lock(y);\n", "base/thread.c only"),
    ("src/io/times.c", SPDX + "int x = clock_gettime(1, 2);\n", "base/clock.h only"),
    ("cli/unsafe.c", SPDX + "int x = atoi(y);\n", "no safe use"),
    ("cli/prints.c", SPDX + 'int x = printf("x");\n', ""),
    ("src/io/note.c", SPDX + "/* TO" "DO: later */\n", "undone"),
    ("src/io/trailing.c", SPDX + "int x; \n", "blanks at"),
    ("docs/note.md", "FIX" "ME\n", "undone"),
    ("tools/x.sh", "#!/bin/sh\n", "no SPDX"),
]


def self_test():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = list(check_tree(root))
    for name, _, expected in PLANTED:
        said = [wrong for where, _, wrong, _ in found if where == name]
        if bool(said) != bool(expected) or (expected and not any(expected in s for s in said)):
            failed.append((name, 1, f"self-test: expected {expected!r}, got {said}", True))
    if TOKEN.sub("", "a /* ' */ b // c\n'\"' d") != "a  b \n d":
        failed.append(("tools/c_source.py", 1, "self-test: comments and strings", True))
    return failed


def main():
    found = self_test() if "--self-test" in sys.argv[1:] else list(check_tree(ROOT))
    shown = [entry for entry in found if entry[3] or "--warnings" in sys.argv[1:]]
    for name, line, wrong, is_error in shown:
        print(f"{name}:{line}: {'' if is_error else 'warning: '}{wrong}")
    if len(shown) < len(found):
        print(f"check_style: {len(found) - len(shown)} warnings (--warnings lists them)")
    return 1 if any(is_error for *_, is_error in found) else 0


if __name__ == "__main__":
    sys.exit(main())
