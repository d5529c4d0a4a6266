"""Which device was asked for, and whether it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_cupy_array

from ..errors import Argument, ArgumentError, DeviceError, InputError
from .arrays import Array, device_name


def namespace_for_device(device: str) -> tuple[Any, str]:
    """The array namespace that serves ``device``: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.

    Returns
    -------
    xp : module
        NumPy, or CuPy when a CUDA device is there and wanted.
    name : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    """
    kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind not in ("auto", "cpu", "cuda") or (number and (kind != "cuda" or not number.isdecimal())) or device[-1:] == ":":
        raise ArgumentError("device", f"must be 'auto', 'cpu', 'cuda' or 'cuda:1' (and so on), got {device!r}")
    if device == "cpu":
        return np, "cpu"
    try:
        import cupy  # type: ignore[import-not-found]

        if cupy.is_available():
            count = cupy.cuda.runtime.getDeviceCount()
            if number and int(number) >= count:
                only = f" was asked for, but there are only {count} CUDA devices, from cuda:0 on"
                raise InputError(Argument("device", device), only)
            return cupy, "cuda" if device == "auto" else device
        problem = "CuPy is installed but finds no CUDA device"
    except ImportError:
        problem = "CuPy is not installed"
    if kind == "cuda":
        raise DeviceError(
            Argument("device", device),
            f" was asked for, but {problem}; install the extra 'cuda12x' or 'cuda13x' on a machine with an NVIDIA "
            "driver, or use ",
            Argument("device", "cpu"),
            ". 'rcurc-gpu doctor' says what is missing",
        )
    return np, "cpu"


def place_for(device: str, like: Array) -> Array:
    """An empty array of the dtype of `like` where ``device`` says; ``"auto"`` is where `like` is."""
    if device == "auto":
        return like[:0]
    xp, name = namespace_for_device(device)
    if device_name(like) == name or (name == "cuda" and is_cupy_array(like)):
        return like[:0]
    dtype = str(like.dtype).rpartition(".")[2]  # array_api_strict.float64, too
    if xp is np:
        return np.empty(0, dtype=dtype)
    number = name.partition(":")[2]  # without one, the current device
    with xp.cuda.Device(int(number)) if number else xp.cuda.Device():
        return xp.empty(0, dtype=dtype)
