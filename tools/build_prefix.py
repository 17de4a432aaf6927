#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the prefix that a build directory is set up for: build_prefix.py BUILD_DIR"""

import json
import pathlib
import sys

options = json.loads((pathlib.Path(sys.argv[1]) / "meson-info/intro-buildoptions.json").read_text())
print(next(option["value"] for option in options if option["name"] == "prefix"))
