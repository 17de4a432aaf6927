# SPDX-License-Identifier: Apache-2.0
"""Storage for torch.distributed.checkpoint: FSDP, DTensor, any number of ranks.

    import torch.distributed.checkpoint as dcp
    from stoker.torch.dcp import Reader, Writer

    dcp.save(state, storage_writer=Writer("/lustre/run1/step100"))
    dcp.load(state, storage_reader=Reader("/lustre/run1/step100"))

The files are those of torch's FileSystemWriter, so either reads what the other has written. They
are written by Stoker: each is there, whole and durable, or not at all. A checkpoint that is saved
over another one has files of its own until its .metadata takes the other's place in one step: after
a crash at any moment there is the one or the other.
"""

import contextlib
import dataclasses
import os
import pickle

import stoker

try:
    import torch
    from torch.distributed.checkpoint.filesystem import (CURRENT_DCP_VERSION, FileSystem,
                                                         FileSystemReader, FileSystemWriter,
                                                         _StoragePrefix)
except ImportError as _error:
    raise ImportError("stoker.torch.dcp needs a torch with torch.distributed.checkpoint of version "
                      f"2.6 or newer, and this is torch {torch.__version__}: {_error}") from _error

__all__ = ["Reader", "Writer"]

_ENDING = ".distcp"


class _Files(FileSystem):
    """Files by stoker.open()."""

    def __init__(self, engine=None):
        super().__init__()
        self._engine = engine

    @contextlib.contextmanager
    def create_stream(self, path, mode):
        with stoker.open(path, mode, engine=self._engine) as stream:
            yield stream

    def mkdir(self, path):
        path = os.path.abspath(path)
        if os.path.isdir(path):
            return
        self.mkdir(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        above = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(above)  # or a power cut takes the directory, and all that is durable in it
        finally:
            os.close(above)


class Writer(FileSystemWriter):
    """A StorageWriter for dcp.save() and dcp.async_save().

    path      the directory of the checkpoint, made if it is not there; other files in it whose
              names end in .distcp are removed when a save has succeeded
    engine    a stoker.Engine to use; default: one that the process's files share
    options   those of torch's FileSystemWriter: single_file_per_rank, thread_count,
              per_thread_copy_ahead, cache_staged_state_dict
    """

    def __init__(self, path, *, engine=None, **options):
        for name in ("sync_files", "overwrite"):
            if not options.pop(name, True):
                raise ValueError(f"{name} cannot be switched off: checkpoints are always durable, "
                                 "and replaced in one step")
        super().__init__(path, sync_files=False, **options)  # closing a file makes it durable
        self.fs = _Files(engine)

    def prepare_local_plan(self, plan):
        if not self.use_collectives:
            raise ValueError("use_collectives=False is not supported: ranks have one .metadata, "
                             "so that they have one checkpoint")
        self.fs.mkdir(self.path)
        return plan

    def prepare_global_plan(self, plans):
        # The coordinator's id: all ranks' files are of this save, and no other has their names.
        return [dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{self.save_id}_{rank}_"))
                for rank, plan in enumerate(plans)]

    def finish(self, metadata, results):
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {result.index: result.storage_data
                                 for of_rank in results for result in of_rank}
        metadata.storage_meta = self.storage_meta()
        with self.fs.create_stream(os.path.join(self.path, ".metadata"), "wb") as file:
            pickle.dump(metadata, file)
        used = {info.relative_path for info in metadata.storage_data.values()}
        for name in os.listdir(self.path):
            if name.endswith(_ENDING) and name not in used:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.path, name))


class Reader(FileSystemReader):
    """A StorageReader for dcp.load(), of what Writer or torch's FileSystemWriter has written."""

    def __init__(self, path):
        super().__init__(path)
        self.fs = _Files()
