"""One driver: samples -> core -> extend -> judge -> result."""

from typing import TYPE_CHECKING

from .._lazy import later

if TYPE_CHECKING:
    from .output import open_result as open_result
    from .paper import PAPER_GAMMA as PAPER_GAMMA
    from .pca import cross_size as cross_size
    from .pca import robust_pca as robust_pca

__all__ = ["PAPER_GAMMA", "cross_size", "open_result", "robust_pca"]

__getattr__ = later(
    __name__,
    {"PAPER_GAMMA": ".paper", "open_result": ".output", "cross_size": ".pca", "robust_pca": ".pca"},
)
