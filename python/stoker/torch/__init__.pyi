# SPDX-License-Identifier: Apache-2.0
import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import Any, Literal, Protocol, TypedDict, TypeVar, type_check_only

import stoker
import torch
from typing_extensions import Self

__all__ = ["Checkpointer", "DataLoader"]

_Path = str | os.PathLike[str]
_T_co = TypeVar("_T_co", covariant=True)

@type_check_only
class _MapStyle(Protocol[_T_co]):
    def __getitem__(self, index: Any, /) -> _T_co: ...

@type_check_only
class _Stats(TypedDict, total=False):
    batches: int
    waited_ns: int
    stream: Mapping[str, Any]

class DataLoader:
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    pin_memory_device: str
    drop_last: bool
    timeout: float
    sampler: Iterable[Any]
    batch_sampler: Iterable[Any] | None
    generator: torch.Generator | None
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], object] | None
    persistent_workers: bool
    epochs: int | None
    dataset: Any
    def __init__(
        self,
        dataset: _Path | stoker.Dataset | _MapStyle[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        epochs: int | None = None,
        seed: int | None = None,
        tiers: str | None = None,
        cache_dir: _Path | None = None,
        world: int | None = None,
        rank: int | None = None,
        engine: stoker.Engine | None = None,
        data_options: Mapping[str, Any] | None = None,
        stream_options: Mapping[str, Any] | None = None,
        transform_seed: Literal["sample", "worker"] = "sample",
    ) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def stats(self) -> _Stats: ...
    def explain(self) -> str: ...

_Device = str | torch.device

class Checkpointer:
    directory: str
    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        engine: stoker.Engine | None = None,
        keep: int | None = 2,
        roots: str | None = None,
        slot_bytes: int | None = None,
        slots: int | None = None,
        chunk_bytes: int | None = None,
        outstanding: int | None = None,
        buffered: bool = False,
        read_only: bool = False,
        alone: bool = False,
        unique: Iterable[str] = (),
        replicated: Iterable[str] = (),
        vote_timeout: float | None = None,
        check_replicas: bool = False,
        writers: Literal["all", "node", "socket"] = "all",
        shared: _Path | None = None,
        shared_every: int | None = None,
        shared_keep: int | None = None,
        node_local: bool = False,
        partner: bool = False,
    ) -> None: ...
    def save(
        self,
        step: int,
        *,
        rng: bool = True,
        pickle: bool = False,
        shared: bool = False,
        **parts: Any,
    ) -> None: ...
    def fence(self) -> None: ...
    def wait(
        self,
        timeout: float | None = None,
        *,
        level: Literal["local", "partner", "shared"] = "local",
    ) -> None: ...
    def load(
        self,
        step: int | None = None,
        *,
        map_location: _Device | Mapping[str, _Device] | None = None,
        strict: bool = True,
        rng: bool = True,
        pickle: bool = False,
        together: bool = False,
        **into: Any,
    ) -> dict[str, Any] | None: ...
    def latest(self) -> int | None: ...
    def list(self) -> builtins.list[dict[str, int]]: ...
    def prune(self, keep: int, *, orphans: bool = False) -> int: ...
    def verify(self, step: int | None = None) -> int: ...
    def status(self) -> dict[str, int | None]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
