"""The kernels on CUDA devices, through CuPy; their sources are in ``kernels/``."""

from typing import TYPE_CHECKING

from ..._lazy import later
from .sources import KERNELS, options, source

if TYPE_CHECKING:
    from .launch import kernel as kernel

__all__ = ["KERNELS", "kernel", "options", "source"]

__getattr__ = later(__name__, {"kernel": ".launch"})  # which imports CuPy
