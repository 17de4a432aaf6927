# SPDX-License-Identifier: Apache-2.0
"""torchvision's ImageFolder and DatasetFolder, their files read by Stoker.

The data set's own list of files decides. Stoker's index must have the same files in the same order;
where it has not (a filter of the caller's own, a list that was changed), the data set is used as
any other.
"""

import functools
import io
import os

import stoker
from stoker.torch._files import Files

_MODULE = "torchvision.datasets.folder"


def is_folder(dataset):
    """Whether it is one, with the __getitem__ that is known here."""
    for kind in type(dataset).__mro__:
        if kind.__name__ == "DatasetFolder" and kind.__module__ == _MODULE:
            return type(dataset).__getitem__ is kind.__getitem__ and \
                not getattr(type(dataset), "__getitems__", None)
    return False


def _load_image(content):
    from PIL import Image
    return Image.open(io.BytesIO(content)).convert("RGB")


def _load_file(loader, content):
    return loader(io.BytesIO(content))


class Folder(Files):
    """A DatasetFolder over a Stoker data set of the same files."""

    def __init__(self, engine, dataset, options):
        self.dataset = dataset
        endings = getattr(dataset, "extensions", None)
        options = dict({"extensions": " ".join(endings) if endings else "*"}, **(options or {}))
        super().__init__(engine, _open(engine, dataset.root, options), None)
        self.load = self._loader_of(dataset.loader)

    def differs(self):
        """None, or how the data set's list of files is not the index's."""
        if len(self.data) != len(self.dataset.samples):
            return f"it lists {len(self.dataset.samples)} files, its folder has {len(self.data)}"
        root = os.path.abspath(self.dataset.root)
        for sample, (path, _) in enumerate(self.dataset.samples):
            if os.path.abspath(path) != path:
                path = os.path.abspath(path)
            found = self.data.locate(sample)[0]
            if found != path and os.path.relpath(os.path.abspath(found), root) != \
                    os.path.relpath(path, root):
                return f"its file {sample} is {path}, its folder's is {found}"
        return None

    def _loader_of(self, loader):
        """The data set's loader as a function of bytes."""
        is_known = getattr(loader, "__module__", None) == _MODULE and \
            getattr(loader, "__name__", None) in ("default_loader", "pil_loader")
        if is_known:
            return _load_image
        return functools.partial(_load_file if getattr(loader, "stoker_file", False)
                                 else _load_by_path, loader)

    def decoder(self):
        """A function of a file's bytes and target(); one that knows nothing of the list."""
        return functools.partial(_make, self.load, self.dataset.transform,
                                 self.dataset.target_transform)

    def target(self, sample):
        return self.dataset.samples[sample][1]

    def decode(self, content, sample):
        """What the data set's __getitem__ makes of a file's bytes."""
        return self.decoder()(content, self.target(sample))

    def __getitem__(self, sample):
        sample = range(len(self))[sample]
        return self.decode(self.read(sample)[0], sample)


def _make(load, transform, target_transform, content, target):
    thing = load(content)
    if transform is not None:
        thing = transform(thing)
    if target_transform is not None:
        target = target_transform(target)
    return thing, target


def _open(engine, root, options):
    """The folder by its index, which is made anew where it is of an earlier time."""
    try:
        return stoker.Dataset(engine, root, "class-folder", **options)
    except stoker.Error as error:
        if error.code != stoker.E_STALE:
            raise
    return stoker.Dataset(engine, root, "class-folder", **dict(options, rebuild=True))


def _load_by_path(loader, content):
    """For a loader that opens a path: one to a file in memory."""
    file = os.memfd_create("stoker-sample", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view):]
        return loader(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
