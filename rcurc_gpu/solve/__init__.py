"""One driver: samples -> core -> extend -> judge -> result."""

from typing import TYPE_CHECKING

from .._lazy import later

if TYPE_CHECKING:
    from .output import last_seed as last_seed
    from .output import open_result as open_result
    from .paper import PAPER_GAMMA as PAPER_GAMMA

__all__ = ["PAPER_GAMMA", "last_seed", "open_result"]

__getattr__ = later(__name__, {"PAPER_GAMMA": ".paper", "last_seed": ".output", "open_result": ".output"})
