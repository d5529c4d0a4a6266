"""The kernels on CUDA devices, through CuPy; their sources are in ``kernels/``."""

from typing import TYPE_CHECKING

from ..._lazy import later
from .sources import KERNELS, options, source

if TYPE_CHECKING:
    from . import calls as calls
    from . import elementwise as elementwise
    from .launch import kernel as kernel

# The modules, and `kernel`, are loaded when they are asked for: they import CuPy.
__all__ = ["KERNELS", "calls", "elementwise", "kernel", "options", "source"]

__getattr__ = later(__name__, {"kernel": ".launch"})
