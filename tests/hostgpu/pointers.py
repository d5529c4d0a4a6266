"""NumPy arrays on "device" pointers, and modules that stand in for CUDA libraries."""

from __future__ import annotations

import collections
import ctypes
import functools
import re
import sys
import types
from collections.abc import Callable

import numpy as np

# cudaDataType -> dtype
DTYPES = {0: np.float32, 1: np.float64}

# The letter in the names of BLAS and LAPACK routines -> dtype
LETTERS = {"s": np.float32, "d": np.float64}

# How often each function of a stand-in was called, such as "cublas.gemmEx"
library_calls: collections.Counter[str] = collections.Counter()


class Capture:
    """Whether a stream captures, and what to do with what must not happen then; install() sets the driver."""

    driver: ctypes.PyDLL | None = None
    listener: Callable[[str, int], None] | None = None  # see set_listener()

    @classmethod
    def refuse(cls, error: type[Exception], what: str) -> None:
        """Raise `error`, and spoil the capture, if there is one."""
        if cls.driver is not None and cls.driver.hostgpu_capturing():
            cls.driver.hostgpu_spoil_capture()
            raise error(f"{what} during stream capture")


def array(pointer: int, shape, dtype, strides=None) -> np.ndarray:
    """The memory at this address as an array."""
    dtype = np.dtype(dtype)
    shape = tuple(np.atleast_1d(shape).tolist())
    if 0 in shape:
        return np.empty(shape, dtype)
    if strides is None:
        before, after = 0, (int(np.prod(shape)) - 1) * dtype.itemsize
    else:
        spans = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
        before = -sum(span for span in spans if span < 0)
        after = sum(span for span in spans if span > 0)
    memory = (ctypes.c_char * (before + after + dtype.itemsize)).from_address(pointer - before)
    return np.ndarray(shape, dtype, buffer=memory, offset=before, strides=strides)


def vector(pointer: int, n: int, dtype, step: int = 1) -> np.ndarray:
    """A vector with a step between its elements, as BLAS has them."""
    itemsize = np.dtype(dtype).itemsize
    return array(pointer, n, dtype, (step * itemsize,))


def matrix(pointer: int, ld: int, rows: int, cols: int, dtype) -> np.ndarray:
    """A matrix in column-major order with a leading dimension."""
    itemsize = np.dtype(dtype).itemsize
    return array(pointer, (rows, cols), dtype, (itemsize, ld * itemsize))


def scalar(pointer: int, dtype):
    """The number at this address."""
    return array(pointer, 1, dtype)[0]


def view(a) -> np.ndarray:
    """The memory of a cupy.ndarray; no copy is made, and none is counted."""
    if a.ndim == 0:
        return array(a.data.ptr, 1, a.dtype).reshape(())
    return array(a.data.ptr, a.shape, a.dtype, a.strides)


def from_numpy(a: np.ndarray, order: str = "C"):
    """A cupy.ndarray with these values; not counted as a transfer."""
    import cupy

    result = cupy.empty(a.shape, a.dtype, order)
    if a.size:
        view(result)[...] = a
    return result


def counted(module: str, name: str, function):
    """The function, under this name and with its calls counted."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        Capture.refuse(NotImplementedError, f"{module}.{name} was called")  # CuPy refuses it, too, in setStream
        library_calls[f"{module}.{name}"] += 1
        if Capture.listener is not None:
            Capture.listener(f"{module}.{name}", -1)
        return function(*args, **kwargs)

    call.__name__ = name
    return call


def quiet(*args, **kwargs):
    """For what sets a handle, a stream or a mode: nothing happens."""


def one(*args, **kwargs) -> int:
    """For what returns a handle or the size of a workspace."""
    return 1


# Handles, modes and workspaces: not counted as calls.
_HOUSEKEEPING = re.compile(r"_?(sp)?(get|set|create|destroy|check|is_)|.*_bufferSize", re.I)


def stand_in(full_name: str, constants: dict, functions: dict) -> types.ModuleType:
    """A module with these contents, in sys.modules; what it lacks says so when called."""
    module = types.ModuleType(full_name, f"hostgpu's stand-in for {full_name}")
    short = full_name.rpartition(".")[2].lstrip("_")
    for name, value in constants.items():
        setattr(module, name, value)
    for name, function in functions.items():
        uncounted = _HOUSEKEEPING.match(name)
        setattr(module, name, function if uncounted else counted(short, name, function))

    def missing(name: str):
        if name.startswith("__"):
            raise AttributeError(name)

        def not_there(*args, **kwargs):
            raise NotImplementedError(f"hostgpu has no stand-in for {full_name}.{name}")

        not_there.__name__ = name
        return not_there

    module.__getattr__ = missing
    sys.modules[full_name] = module
    parent, _, child = full_name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module
