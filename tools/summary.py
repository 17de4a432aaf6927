#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up test runs and says the result in one line, the last one.

    summary.py [--steps FILE] LABEL=TESTLOG ...

TESTLOG is a meson-logs/testlog.json. A program that tells of its own tests (cmocka does) counts
as those; any other counts as one. FILE has a line per step that is no meson run: "OK name",
"FAIL name" or "SKIP name: reason". A skipped test fails the run unless tests/allowed_skips.txt
names it. A testlog that is missing, empty or cut off is a failure.
"""

import argparse
import fnmatch
import json
import re
import sys

from c_source import ROOT

ALLOWED_SKIPS = ROOT / "tests" / "allowed_skips.txt"
LINE = r"^\[ *{} *\] (?!\d+ test)(?:\w+: )?(\w+)$"
GOOD = {"OK", "EXPECTEDFAIL"}


def allowed_skips():
    """[(pattern, reason)]; a line without a reason is an error of its own."""
    allowed = []
    for number, line in enumerate(ALLOWED_SKIPS.read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        pattern, _, reason = line.partition(": ")
        if not reason.strip():
            sys.exit(f"{ALLOWED_SKIPS}:{number}: a skip needs a reason: 'pattern: reason'")
        allowed.append((pattern.strip(), reason.strip()))
    return allowed


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add(self, name, result):
        if result in GOOD:
            self.passed += 1
        elif result == "SKIP":
            self.skipped.append(name)
        else:
            self.failed.append(f"{name} ({result})")

    def add_program(self, label, entry):
        """A line of a testlog: the tests inside where the program names them."""
        name = f"{label}/{entry['name'].split(' / ')[-1].split(':')[-1]}"
        output = (entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")
        good = set(re.findall(LINE.format("OK"), output, re.M))
        skipped = set(re.findall(LINE.format("SKIPPED"), output, re.M)) - good
        bad = set(re.findall(LINE.format("FAILED"), output, re.M)) - good
        for inner in sorted(good):
            self.add(f"{name}:{inner}", "OK")
        for inner in sorted(skipped):
            self.add(f"{name}:{inner}", "SKIP")
        for inner in sorted(bad):
            self.add(f"{name}:{inner}", "FAIL")
        if not (good or skipped or bad) or (entry["result"] not in GOOD | {"SKIP"} and not bad):
            self.add(name, entry["result"])

    def add_testlog(self, label, path):
        try:
            with open(path, encoding="utf-8") as lines:
                entries = [json.loads(line) for line in lines if line.strip()]
        except (OSError, ValueError) as error:
            self.failed.append(f"{label} (no result: {error})")
            return
        if not entries:
            self.failed.append(f"{label} (no test ran)")
        for entry in entries:
            self.add_program(label, entry)

    def add_steps(self, path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                result, _, name = line.rstrip("\n").partition(" ")
                self.add(name.partition(": ")[0], result)

    def judge_skips(self):
        """Prints each skip with its reason; those that nobody allowed have failed."""
        allowed = allowed_skips()
        kept = []
        for name in self.skipped:
            reasons = [why for pattern, why in allowed if fnmatch.fnmatchcase(name, pattern)]
            if reasons:
                kept.append(name)
                print(f"skipped: {name}: {reasons[0]}")
            else:
                self.failed.append(f"{name} (skipped, and not in {ALLOWED_SKIPS.name})")
        self.skipped = kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps")
    parser.add_argument("logs", nargs="*", metavar="LABEL=TESTLOG")
    args = parser.parse_args()
    tally = Tally()
    if args.steps:
        tally.add_steps(args.steps)
    for log in args.logs:
        label, _, path = log.partition("=")
        tally.add_testlog(label, path)
    tally.judge_skips()
    for name in tally.failed:
        print(f"failed: {name}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
