# SPDX-License-Identifier: Apache-2.0
import builtins
import io
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, SupportsIndex, TypedDict, final, overload, type_check_only

from typing_extensions import Buffer, CapsuleType, Self

__all__ = [
    "Array",
    "Batch",
    "Checkpoints",
    "Comm",
    "Dataset",
    "E_BORROW",
    "E_CORRUPT",
    "E_INFEASIBLE",
    "E_MISMATCH",
    "E_SAMPLE",
    "E_STALE",
    "E_VERSION",
    "Engine",
    "Error",
    "Holding",
    "Loader",
    "Order",
    "Tensors",
    "View",
    "__version__",
    "open",
]

__version__: Final[str]

E_CORRUPT: Final[int]
E_VERSION: Final[int]
E_STALE: Final[int]
E_MISMATCH: Final[int]
E_SAMPLE: Final[int]
E_BORROW: Final[int]
E_INFEASIBLE: Final[int]

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Extent = tuple[_Path, int, int] | tuple[_Path, int, int, int]
_Box = tuple[Sequence[int], Sequence[int], Buffer]
_Format = Literal["auto", "class-folder", "folder", "record", "npy", "idx", "window", "tar"]
_Kind = Literal["default", "sequential", "torch", "keyed", "list"]
_Sampler = Literal["default", "distributed", "dataloader", "generator", "stateful"]
_Workers = Literal["none", "some", "persistent"]
_Policy = Literal["default", "none", "pin", "lru", "next-use", "coordinated", "paper"]
_Layout = Literal["auto", "raw", "fixed"]
_BadSample = Literal["default", "fail", "replace"]

class Error(OSError):
    code: int
    message: str
    path: str | None
    sample: int | None
    rank: int | None
    def __init__(
        self,
        code: int,
        message: str,
        path: str | None = None,
        sample: int | None = None,
        rank: int | None = None,
    ) -> None: ...

class Comm:
    rank: int
    world: int
    host: str | None
    port: int | None
    secret: str | None
    exchange: Callable[[bytes], Sequence[bytes]] | None
    hosts: Sequence[str] | None
    method: str | None
    node: str | None
    transports: str | None
    start_timeout: float | None
    timeout: float | None
    close_timeout: float | None
    tiers_per_rank: bool
    def __init__(
        self,
        rank: int,
        world: int,
        *,
        host: str | None = None,
        port: int | None = None,
        secret: str | None = None,
        exchange: Callable[[bytes], Sequence[bytes]] | None = None,
        hosts: Sequence[str] | None = None,
        method: str | None = None,
        node: str | None = None,
        transports: str | None = None,
        start_timeout: float | None = None,
        timeout: float | None = None,
        close_timeout: float | None = None,
        tiers_per_rank: bool = False,
    ) -> None: ...

class Holding:
    ranks: Sequence[int] | None
    global_shape: Sequence[int] | None
    start: Sequence[int] | None
    def __init__(
        self,
        ranks: Sequence[int] | None = None,
        global_shape: Sequence[int] | None = None,
        start: Sequence[int] | None = None,
    ) -> None: ...

@type_check_only
class _EngineStats(TypedDict):
    reads: int
    read_bytes: int
    submit_calls: int
    loop_wakeups: int
    io_errors: int
    allocations: int

@type_check_only
class _DatasetInfo(TypedDict):
    format: _Format
    classes: int
    samples: int
    bytes: int
    max_sample_bytes: int
    record_bytes: int
    fingerprint: int
    dtype: str | None
    shape: tuple[int, ...] | None
    index_built: bool

@type_check_only
class _ByTier(TypedDict):
    ram: int
    ssd: int
    peer: int
    origin: int

@type_check_only
class _LoaderStats(TypedDict):
    epoch: int | None
    batches: int
    samples: int
    bytes: int
    wait_ns: int
    elapsed_ns: int
    wait_p50_ns: int
    wait_p99_ns: int
    wait_max_ns: int
    tier_samples: _ByTier
    tier_bytes: _ByTier
    origin_bytes: int
    bound_bytes: int
    capacity_bytes: int
    resident_bytes: int
    replaced: int
    allocations: int
    ssd_bytes: int
    ssd_written_bytes: int
    ssd_refused: int
    ssd_dropped: int

class Engine:
    def __init__(
        self,
        tiers: str | None = None,
        *,
        io_method: str | None = None,
        shape: str | None = None,
        ssd_shape: str | None = None,
        cache_dir: _Path | None = None,
        buffered: bool = False,
        workers: int | None = None,
        queue_depth: int | None = None,
        io_threads: int | None = None,
        max_open_files: int | None = None,
        comm: Comm | None = None,
    ) -> None: ...
    @property
    def io_method(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    def stats(self) -> _EngineStats: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

class Dataset:
    @overload
    def __init__(
        self, engine: Engine, path: None = None, *, extents: Sequence[_Extent]
    ) -> None: ...
    @overload
    def __init__(
        self,
        engine: Engine,
        path: _Path,
        format: _Format = "auto",
        *,
        rebuild: bool = False,
        header_bytes: int | None = None,
        record_bytes: int | None = None,
        window_tokens: int | None = None,
        stride_tokens: int | None = None,
        token_bytes: int | None = None,
        labels_path: _Path | None = None,
        extensions: str | None = None,
        index_path: _Path | None = None,
        fields: str | None = None,
        extents: None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    def info(self) -> _DatasetInfo: ...
    def locate(self, sample: SupportsIndex, /) -> tuple[str, int, int, int]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

class Order:
    def __init__(
        self,
        n: int,
        kind: _Kind = "torch",
        *,
        seed: int = 0,
        sampler: _Sampler = "distributed",
        world: int = 1,
        rank: int = 0,
        shuffle: bool = True,
        drop_uneven: bool = False,
        legacy_torch: bool = False,
        replacement: bool = False,
        num_samples: int | None = None,
        workers: _Workers = "none",
    ) -> None: ...
    def __len__(self) -> int: ...
    def ids(self, epoch: int, first: int = 0, count: int | None = None) -> Array: ...
    def frequency(self, first_epoch: int, epochs: int, /) -> Array: ...

class Loader:
    def __init__(
        self,
        engine: Engine,
        dataset: Dataset,
        batch_size: int,
        epochs: int | None = 1,
        *,
        order: Order | _Kind = "torch",
        seed: int = 0,
        sampler: _Sampler = "distributed",
        world: int = 1,
        rank: int = 0,
        shuffle: bool = True,
        drop_uneven: bool = False,
        legacy_torch: bool = False,
        replacement: bool = False,
        num_samples: int | None = None,
        workers: _Workers = "none",
        drop_last: bool = False,
        horizon_epochs: int | None = None,
        policy: _Policy = "next-use",
        layout: _Layout = "auto",
        bad_sample: _BadSample = "fail",
        retries: int | None = None,
        ram_bytes: int | None = None,
        ssd_bytes: int | None = None,
        staging_bytes: int | None = None,
        staging_batches: int | None = None,
        borrow_max: int | None = None,
    ) -> None: ...
    @property
    def borrowed(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Batch: ...
    def epoch(self) -> Iterator[Batch]: ...
    def state(self) -> bytes: ...
    def restore(self, state: Buffer, /) -> None: ...
    def seek(self, epoch: int, epoch_step: int = 0) -> None: ...
    def push(
        self,
        ids: Iterable[SupportsIndex] | Buffer = ...,
        *,
        end_epoch: bool = False,
        end_run: bool = False,
    ) -> None: ...
    def stats(self, epoch: int | None = None) -> _LoaderStats: ...
    def warning(self) -> Error | None: ...
    def replacements(self) -> list[tuple[int, int, int, int]]: ...
    def interrupt(self) -> None: ...
    def leave(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Batch:
    @property
    def epoch(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def epoch_step(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def last_of_epoch(self) -> bool: ...
    @property
    def samples(self) -> Array: ...
    @property
    def labels(self) -> Array: ...
    @property
    def data(self) -> Array | None: ...
    @property
    def items(self) -> Sequence[memoryview]: ...
    @property
    def fields(self) -> dict[str, Sequence[memoryview | None]]: ...
    def release(self) -> bool: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def format(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def tolist(self) -> list[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

_Tensor = Buffer | tuple[str, Sequence[SupportsIndex], Buffer]

@type_check_only
class _CheckpointInfo(TypedDict):
    step: int
    bytes: int
    created_ns: int
    tensors: int
    parts: int
    world: int
    state: int

@type_check_only
class _CheckpointsStatus(TypedDict):
    saves: int
    durable: int
    failed: int
    bytes: int
    save_wait_ns: int
    fence_wait_ns: int
    captured_ns: int
    durable_ns: int
    unfinished: int
    last_captured: int | None
    last_durable: int | None
    shared_unfinished: int
    shared: int
    shared_failed: int
    last_shared: int | None
    partner_unfinished: int
    partner: int
    partner_failed: int
    last_partner: int | None

@type_check_only
class _ViewInfo(TypedDict):
    step: int
    bytes: int
    created_ns: int
    tensors: int
    blobs: int
    parts: int
    world: int
    newer_damaged: int
    mended_bytes: int

@final
class Tensors:
    def __new__(
        cls, tensors: Mapping[str, _Tensor], *, stable: bool | Container[str] = False
    ) -> Self: ...
    def __len__(self) -> int: ...
    def names(self) -> dict[str, bool]: ...

class Checkpoints:
    def __init__(
        self,
        engine: Engine,
        directory: _Path,
        *,
        roots: str | None = None,
        slot_bytes: int | None = None,
        slots: int | None = None,
        chunk_bytes: int | None = None,
        outstanding: int | None = None,
        keep: int | None = None,
        buffered: bool = False,
        read_only: bool = False,
        alone: bool = False,
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
        step: SupportsIndex,
        tensors: Mapping[str, _Tensor]
        | Tensors
        | tuple[Mapping[str, _Tensor] | Tensors, ...],
        *,
        blobs: Mapping[str, Buffer] | None = None,
        metadata: Mapping[str, str] | None = None,
        loader: Loader | None = None,
        stable: bool | Container[str] = False,
        holdings: Mapping[str, Holding] | None = None,
        shared: bool = False,
    ) -> None: ...
    def decline(self, step: SupportsIndex, why: str, /) -> None: ...
    def fence(self) -> None: ...
    def wait(
        self,
        timeout: float | None = None,
        *,
        level: Literal["local", "partner", "shared"] = "local",
    ) -> None: ...
    def latest(self) -> int | None: ...
    def list(self) -> builtins.list[_CheckpointInfo]: ...
    def prune(self, keep: SupportsIndex, *, orphans: bool = False) -> int: ...
    def open(self, step: SupportsIndex | None = None) -> View: ...
    def status(self) -> _CheckpointsStatus: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class View:
    def info(self) -> _ViewInfo: ...
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...], int]]: ...
    def blobs(self, *, rank: SupportsIndex | None = None) -> dict[str, int]: ...
    def metadata(self) -> dict[str, str]: ...
    def load(
        self, targets: Mapping[str, Buffer | _Box], /, *, together: bool = False
    ) -> None: ...
    def blob(self, name: str, /, *, rank: SupportsIndex | None = None) -> bytes: ...
    def verify(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@type_check_only
class _Writer(io.RawIOBase):
    name: str | bytes
    mode: str
    def __init__(self, path: _Path, engine: Engine | None = None) -> None: ...
    def write(self, data: Buffer, /) -> int: ...
    def discard(self) -> None: ...

@overload
def open(path: _Path, mode: Literal["wb"], *, engine: Engine | None = None) -> _Writer: ...
@overload
def open(
    path: _Path, mode: Literal["rb"] = "rb", *, engine: Engine | None = None
) -> io.BufferedReader: ...
