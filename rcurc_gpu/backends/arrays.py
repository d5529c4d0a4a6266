"""The only room that knows where arrays live.

Everything else asks this module for a namespace, a device or a transfer, so that NumPy, CuPy and any other
array-API namespace run the same lines.

NumPy and CuPy arrays are native: all kernels are made for them. Arrays that bring a namespace of their own
(``__array_namespace__``) are computed with as they are, by plain code. All others that can share their memory (by DLPack or
``__cuda_array_interface__``), torch tensors above all, are foreign: the library works on a native view of them, and what
comes out becomes foreign again where array-api-compat knows their library. For others it is NumPy or CuPy, of which they can
take a view in turn.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import array_api_compat
import numpy as np
from array_api_compat import is_array_api_obj, is_cupy_array, is_dask_array, is_numpy_array

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
    "hand_back",
    "home_of",
    "inverse",
    "is_array",
    "is_foreign",
    "is_out_of_memory",
    "native",
    "profiled",
    "quantile_abs",
    "repeat_each",
    "same_place",
    "scatter",
    "sparse_module",
    "take_rows",
    "to_numpy",
]

Array = Any  # an array of any array-API namespace

_ON_HOST = (1, 3, 11)  # DLPack's numbers for memory that NumPy can read: of the CPU, pinned for CUDA, pinned for ROCm


_NUMPY: Any = array_api_compat.array_namespace(np.empty(0))


def array_namespace(*arrays: Array) -> Any:
    """The namespace of some arrays; for those of NumPy, which are usual, in a tenth of the time that others take."""
    for x in arrays:
        if type(x) is not np.ndarray:
            return array_api_compat.array_namespace(*arrays)
    return _NUMPY


def device_of(x: Array) -> Any:
    """Where an array lives."""
    return "cpu" if type(x) is np.ndarray else array_api_compat.device(x)


def is_array(x: object) -> bool:
    """Whether `x` is an array of a namespace that array-api-compat knows."""
    return bool(is_array_api_obj(x))


def to_numpy(x: Array) -> np.ndarray:
    """Copy `x` to the host, explicitly."""
    if type(x) is np.ndarray:
        return x
    if is_numpy_array(x):
        return np.asarray(x)
    x = native(x)
    if is_cupy_array(x):
        return x.get()
    if hasattr(x, "to_device"):
        x = x.to_device(_host_device(x))
    return np.asarray(x)


def _host_device(x: Array) -> Any:
    xp = array_namespace(x)
    info = getattr(xp, "__array_namespace_info__", None)
    return info().default_device() if info is not None else "cpu"


def is_foreign(x: Any) -> bool:
    """Whether `x` is an array of a library that is neither NumPy nor CuPy and has no namespace of the array API."""
    if is_numpy_array(x) or is_cupy_array(x) or is_dask_array(x) or hasattr(x, "__array_namespace__"):
        return False
    if isinstance(x, (np.generic, type)) or hasattr(x, "tocoo"):
        return False
    return hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__")


def native(x: Any, name: str = "the array") -> Any:
    """A NumPy or CuPy array on the memory of a foreign one, never a copy; anything else as it is. `name` is for errors."""
    if not is_foreign(x):
        return x
    x = x.detach() if getattr(x, "requires_grad", False) else x  # torch shares nothing that has a gradient
    try:
        if hasattr(x, "__dlpack__") and x.__dlpack_device__()[0] in _ON_HOST:
            return np.from_dlpack(x)
        import cupy  # type: ignore[import-not-found]

        # from_dlpack makes the two libraries' streams wait for each other
        return cupy.from_dlpack(x) if hasattr(x, "__dlpack__") else cupy.asarray(x)
    except ImportError as error:
        kind = f"{type(x).__module__.partition('.')[0]} array on a device"
        raise RuntimeError(f"{name} is a {kind}, which needs CuPy (the extra 'cuda12x' or 'cuda13x')") from error
    except (BufferError, RuntimeError, TypeError) as error:
        kind = f"{type(x).__module__.partition('.')[0]} array of {getattr(x, 'dtype', 'an unknown dtype')}"
        raise TypeError(f"{name} must share its memory with NumPy or CuPy, got a {kind} that does not: {error}") from error


def home_of(x: Any) -> Any:
    """An empty array of the library and device of a foreign array, for `hand_back`; None for others."""
    if not is_foreign(x) or not is_array(x):
        return None
    return array_namespace(x).empty(0, device=device_of(x))  # not a slice, which would keep the user's memory


def hand_back(x: Any, home: Any) -> Any:
    """A native array as one of the library of `home`, on the same memory if it may be written to; itself without a home."""
    if home is None:
        return x
    return array_namespace(home).from_dlpack(_writable(x))


def _writable(x: Any) -> Any:
    """`x`, or a copy of a NumPy array that must not be written to: other libraries would do it all the same."""
    return x.copy() if is_numpy_array(x) and not x.flags.writeable else x


def asarray_on(x: Any, like: Array, dtype: Any = None) -> Array:
    """Bring host data `x` to the namespace and device of `like`."""
    if type(x) is type(like) is np.ndarray:
        return np.asarray(x, dtype=dtype)
    xp = array_namespace(like)
    x = _writable(x) if is_foreign(like) else x
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


def takes_kernels(x: Array) -> bool:
    """Whether CUDA kernels work on `x`: it is CuPy's, and not on one of AMD's GPUs, many of which have warps of 64."""
    if not is_cupy_array(x):
        return False
    import cupy

    return not cupy.cuda.runtime.is_hip


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


# Statuses of CUDA and its libraries that mean the same as MemoryError (CUDA_ERROR_OUT_OF_MEMORY, ALLOC_FAILED). CuPy raises
# them as they are when it loads a kernel, or makes a handle of a library.
_SHORT_OF_MEMORY = {"CUDADriverError": 2, "CUDARuntimeError": 2, "CUBLASError": 3, "CUSOLVERError": 2, "CuSparseError": 2}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory, on the host or on a device."""
    status = _SHORT_OF_MEMORY.get(type(error).__name__)
    return isinstance(error, MemoryError) or (status is not None and getattr(error, "status", None) == status)


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


def dots(left: Array, i: Array, right: Array, j: Array) -> Array:
    """Products of rows, ``left[i] . right[j]``, for two lists of their numbers (n,)."""
    rows, others = take_rows(left, i), take_rows(right, j)
    if is_numpy_array(rows):  # without a look at each row by itself: a fifth of the time
        return np.einsum("nk,nk->n", rows, others)
    return array_namespace(rows).sum(rows * others, axis=1)


def repeat_each(x: Array, indptr: Array, total: int) -> Array:
    """``x[u]`` (n_units,) once for each entry of its unit: entries ``indptr[u]:indptr[u + 1]`` of `total`, from 0 on."""
    xp = array_namespace(x)
    if is_numpy_array(x):
        return np.repeat(x, np.diff(indptr))
    # xp.repeat by an array of counts: CuPy has it from 14.1 on. Entries look up their unit instead.
    entry = xp.arange(total, dtype=indptr.dtype, device=device_of(x))
    return gather(x, xp.searchsorted(indptr[1:], entry, side="right"))


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


def inverse(x: Array) -> Array:
    """Inverses of matrices (u, k, k)."""
    xp = array_namespace(x)
    eye = xp.eye(x.shape[-1], dtype=x.dtype, device=device_of(x))
    return xp.linalg.solve(x, xp.broadcast_to(eye, x.shape))


MAD_TO_SIGMA = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


def quantile_abs(x: Array, q: float = 0.5) -> Array:
    """The `q`-quantile of abs(x) for a vector `x`, as a 0-d array on its device (the lower of two neighbours)."""
    xp = array_namespace(x)
    x = xp.abs(x)
    k = int(q * (x.shape[0] - 1))
    if is_numpy_array(x):  # selection instead of a sort
        return np.partition(x, k)[k]
    return xp.sort(x)[k]


@cache
def triangle(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries of a packed symmetric matrix, the lower triangle row by row; not to be written to.

    NumPy makes them in 75 microseconds; the sweeps of a small noise model ask for them so often that it was a tenth of all.
    """
    q, p = np.tril_indices(k)
    return q, p


@cache
def diagonal(k: int) -> np.ndarray:
    """Where the diagonal of a symmetric matrix is when it is packed (k,); not to be written to."""
    return np.cumsum(np.arange(1, k + 1)) - 1


@cache
def unpacking(k: int) -> np.ndarray:
    """Where the entries of a symmetric matrix are when it is packed (k, k); not to be written to."""
    q, p = triangle(k)
    place = np.empty((k, k), dtype=np.int64)
    place[q, p] = place[p, q] = np.arange(len(q))
    return place
