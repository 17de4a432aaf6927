# SPDX-License-Identifier: Apache-2.0
"""meson-python, told when there is no limited interface of Python for it: before Python 3.11, whose
is the first with the buffer protocol, and without the interpreter's lock. A wheel is then for one
version."""

import sys
import sysconfig

import mesonpy
from mesonpy import (  # noqa: F401 - what a front end asks for
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)


def _told(settings):
    if sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return settings
    settings = dict(settings or {})
    given = settings.get("setup-args", [])
    given = [given] if isinstance(given, str) else list(given)
    settings["setup-args"] = given + ["-Dpython.allow_limited_api=false"]
    return settings


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return mesonpy.build_wheel(wheel_directory, _told(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return mesonpy.build_editable(wheel_directory, _told(config_settings), metadata_directory)
