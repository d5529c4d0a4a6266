"""Which device was asked for, and whether it is there."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array

from ..errors import Argument, ArgumentError, DeviceError, InputError
from .arrays import Array, device_name

log = logging.getLogger("rcurc_gpu")

# Observations from which a command that reads files takes a GPU. An estimate, made without one: two CPU cores take 10 ns for
# an observation, a GPU is expected to take 2 ns for one that streams there from the host, and a process needs 1 to 2 s to
# begin (the context, kernels that are loaded or compiled). `rcurc-gpu bench` measures it.
ESTIMATED_CROSSOVER = 200_000_000


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
        problem = "CuPy finds no CUDA device"
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


def device_for_file(device: str, n_obs: int) -> str:
    """Where a command solves `n_obs` observations that it read: for ``"auto"`` a GPU, if there are enough of them.

    Returns
    -------
    str
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Raises what `namespace_for_device` does.
    """
    if device != "auto":
        return namespace_for_device(device)[1]
    if n_obs < ESTIMATED_CROSSOVER:
        return "cpu"
    found = namespace_for_device("auto")[1]
    if found != "cpu":
        enough = f"{n_obs:,} observations are more than {ESTIMATED_CROSSOVER:,}, an estimate of where a GPU is faster"
        log.info("%s: %s is taken; device='cpu' keeps off it", enough, found)
    return found


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
