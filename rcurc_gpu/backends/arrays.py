"""The only room that knows where arrays live.

Everything else asks this module for a namespace, a device or a transfer, so that NumPy, CuPy and any other
array-API namespace run the same lines.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_cupy_array, is_numpy_array
from array_api_compat import device as device_of

__all__ = [
    "Array",
    "array_namespace",
    "asarray_on",
    "bring",
    "default_chunk_bytes",
    "device_name",
    "device_of",
    "device_scope",
    "free_memory",
    "gather",
    "inverse",
    "is_array",
    "profiled",
    "qr",
    "quantile_abs",
    "same_place",
    "scatter",
    "sparse_module",
    "take_rows",
    "to_numpy",
]

Array = Any  # an array of any array-API namespace


def is_array(x: object) -> bool:
    """Whether `x` is an array of a namespace that array-api-compat knows."""
    return bool(is_array_api_obj(x))


def to_numpy(x: Array) -> np.ndarray:
    """Copy `x` to the host, explicitly."""
    if is_numpy_array(x):
        return np.asarray(x)
    if is_cupy_array(x):
        return x.get()
    if hasattr(x, "to_device"):
        x = x.to_device(_host_device(x))
    return np.asarray(x)


def _host_device(x: Array) -> Any:
    xp = array_namespace(x)
    info = getattr(xp, "__array_namespace_info__", None)
    return info().default_device() if info is not None else "cpu"


def asarray_on(x: Any, like: Array, dtype: Any = None) -> Array:
    """Bring host data `x` to the namespace and device of `like`."""
    xp = array_namespace(like)
    if dtype is not None and not is_array(x):
        return xp.asarray(x, dtype=dtype, device=device_of(like))
    out = xp.asarray(x, device=device_of(like))
    return out if dtype is None else xp.astype(out, dtype, copy=False)


def device_name(x: Array) -> str:
    """A word for where `x` lives: ``"cpu"``, ``"cuda:0"``, or the namespace's own name of the device."""
    if is_numpy_array(x):
        return "cpu"
    if is_cupy_array(x):
        return f"cuda:{x.device.id}"
    return str(device_of(x))


def same_place(x: Array, y: Array) -> bool:
    """Whether two arrays are of one namespace and on one device."""
    return array_namespace(x) is array_namespace(y) and device_of(x) == device_of(y)


def bring(x: Array, like: Array) -> Array:
    """`x` in the namespace and on the device of `like`; through the host, if it is not there already."""
    return x if same_place(x, like) else asarray_on(to_numpy(x), like)


def device_scope(like: Array) -> AbstractContextManager[Any]:
    """A context in which CuPy's new arrays and kernels go to the device of `like`; nothing for others."""
    return like.device if is_cupy_array(like) else nullcontext()


def profiled(name: str, like: Array) -> AbstractContextManager[Any]:
    """A range that NVIDIA's profilers show, on CuPy; nothing for others."""
    if not is_cupy_array(like):
        return nullcontext()
    import cupy
    from cupyx.profiler import time_range  # type: ignore[import-not-found]

    return time_range(f"rcurc: {name}") if cupy.cuda.nvtx.available else nullcontext()


def free_memory(like: Array) -> None:
    """Give the device memory that CuPy keeps for later back."""
    if is_cupy_array(like):
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


def sparse_module(x: Array) -> Any:
    """``scipy.sparse`` or ``cupyx.scipy.sparse``, whichever holds arrays like `x`."""
    if is_numpy_array(x):
        import scipy.sparse

        return scipy.sparse
    if is_cupy_array(x):
        import cupyx.scipy.sparse  # type: ignore[import-not-found]

        return cupyx.scipy.sparse
    name = array_namespace(x).__name__
    raise TypeError(f"{name} has no sparse matrices; use the observations' indptr, index and value instead")


def default_chunk_bytes(x: Array) -> int:
    """Working memory of one chunk: small enough for a CPU's cache, large enough to fill a GPU."""
    # Larger chunks do not stay in the cache of a CPU. On a GPU smaller ones leave multiprocessors idle; larger ones take
    # memory, twice where observations are streamed.
    return 256 << 20 if is_cupy_array(x) else 8 << 20


def gather(x: Array, index: Array) -> Array:
    """``x[index]`` for a vector `x` and an index array of any shape."""
    xp = array_namespace(x, index)
    return xp.reshape(xp.take(x, xp.reshape(index, (-1,)), axis=0), index.shape)


def take_rows(x: Array, index: Array) -> Array:
    """``x[index, :]`` for a matrix `x` (n, r) and an index array of any shape: (*index.shape, r)."""
    xp = array_namespace(x, index)
    rows = xp.take(x, xp.reshape(index, (-1,)), axis=0)
    return xp.reshape(rows, (*index.shape, x.shape[1]))


def scatter(place: Array, value: Array, shape: tuple[int, int]) -> Array:
    """A dense array of `shape` with `value` at the ascending flat positions `place` and 0 elsewhere."""
    xp = array_namespace(value)
    device = device_of(value)
    if is_numpy_array(value) or is_cupy_array(value):
        out = xp.zeros(shape[0] * shape[1], dtype=value.dtype, device=device)
        out[place] = value
        return xp.reshape(out, shape)
    # The array API cannot assign by index arrays: every cell looks up whether it is among the places.
    if place.shape[0] == 0:
        return xp.zeros(shape, dtype=value.dtype, device=device)
    everything = xp.arange(shape[0] * shape[1], dtype=xp.int64, device=device)
    found = xp.searchsorted(place, everything)
    found = xp.where(found < place.shape[0], found, xp.zeros_like(found))
    hit = gather(place, found) == everything
    return xp.reshape(xp.where(hit, gather(value, found), xp.zeros_like(value[:1])), shape)


def qr(x: Array) -> tuple[Array, Array]:
    """Q (m, k) with orthonormal columns and R (k, k), ``x = Q @ R``, for a tall matrix."""
    if is_numpy_array(x) and x.shape[0] >= x.shape[1]:
        # a third of the time of numpy.linalg.qr, most of which is not spent in LAPACK for matrices of a few columns
        from scipy.linalg import lapack

        single = x.dtype == np.float32
        geqrf, orgqr = (lapack.sgeqrf, lapack.sorgqr) if single else (lapack.dgeqrf, lapack.dorgqr)
        a, tau, _, _ = geqrf(np.array(x, order="F"), overwrite_a=1)
        R = np.where(_upper(x.shape[1]), a[: x.shape[1]], x.dtype.type(0))
        Q, _, _ = orgqr(a, tau, overwrite_a=1)
        return Q, R
    found = array_namespace(x).linalg.qr(x)
    return found[0], found[1]


def inverse(x: Array) -> Array:
    """Inverses of matrices (u, k, k)."""
    xp = array_namespace(x)
    eye = xp.eye(x.shape[-1], dtype=x.dtype, device=device_of(x))
    return xp.linalg.solve(x, xp.broadcast_to(eye, x.shape))


@cache
def _upper(k: int) -> np.ndarray:
    """Where an upper triangular matrix is not 0; `numpy.triu` would make it anew each time."""
    return ~np.tri(k, k, -1, dtype=bool)


def quantile_abs(x: Array, q: float = 0.5) -> Array:
    """The `q`-quantile of abs(x) for a vector `x`, as a 0-d array on its device (the lower of two neighbours)."""
    xp = array_namespace(x)
    x = xp.abs(x)
    k = int(q * (x.shape[0] - 1))
    if is_numpy_array(x):  # selection instead of a sort
        return np.partition(x, k)[k]
    return xp.sort(x)[k]


def unpacking(k: int) -> np.ndarray:
    """Where the entries of a symmetric matrix are when it is packed (k, k)."""
    q, p = np.tril_indices(k)
    place = np.empty((k, k), dtype=np.int64)
    place[q, p] = place[p, q] = np.arange(len(q))
    return place
