# SPDX-License-Identifier: Apache-2.0
"""The exception that everything of the library's raises."""

import errno as _errno

_FIRST_OWN_CODE = -10001  # from here down codes are Stoker's, above they are errno's


class Error(OSError):
    """What went wrong, as the library says it.

    code: negative, -errno.ENOENT or one of the E_ codes. errno is None for the latter. path,
    sample and rank are None where the error is not about one.
    """

    def __init__(self, code, message, path=None, sample=None, rank=None):
        number = -code if code > _FIRST_OWN_CODE else None
        super().__init__(number, message)
        self.code = code
        self.message = message
        self.path = path
        self.sample = sample
        self.rank = rank
        self.filename = path

    def __str__(self):
        name = _errno.errorcode.get(self.errno)
        text = f"[{name}] {self.message}" if name else self.message
        if self.path and self.path not in self.message:
            text += f": {self.path}"
        return text

    def __reduce__(self):
        return type(self), (self.code, self.message, self.path, self.sample, self.rank)


Error.__module__ = "stoker"
