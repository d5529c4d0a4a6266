"""How close two videos are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backends import to_numpy
from ..errors import check_choice, check_number

_ENTRIES_AT_ONCE = 1 << 23  # 32 MB as float32, and a few copies


def psnr(found: Any, reference: Any, *, peak: float = 255.0, undetermined: str = "nan") -> float:
    """Peak signal-to-noise ratio in dB, ``10 log10(peak^2 / mean square difference)``, over all pixels and frames.

    Parameters
    ----------
    found, reference : (n1, n2) arrays, CURMatrix or LowRankMatrix
        Pixels x frames. Products of factors are formed for a few frames at a time.
    peak : float
        The largest value that a pixel can have.
    undetermined : {"nan", "skip"}
        What to do with entries that are NaN: the ratio is NaN, or is taken over the others.

    Returns
    -------
    float
        Infinite if there is no difference.

    Examples
    --------
    >>> import numpy as np
    >>> from rcurc_gpu.video import psnr
    >>> round(psnr(np.full((4, 3), 101.0), np.full((4, 3), 100.0)), 1)  # off by one grey level
    48.1
    """
    peak = check_number("peak", peak, open_low=True)
    check_choice("undetermined", undetermined, ("nan", "skip"))
    shapes = tuple(found.shape), tuple(reference.shape)
    if len(shapes[0]) != 2 or shapes[0] != shapes[1]:
        raise ValueError(f"found and reference must be matrices of one shape, pixels x frames, got {shapes[0]}, {shapes[1]}")
    n1, n2 = shapes[0]
    step = max(_ENTRIES_AT_ONCE // max(n1, 1), 1)
    total, count = 0.0, 0
    for start in range(0, n2, step):
        a, b = (to_numpy(x[:, start : start + step]) for x in (found, reference))
        difference = np.subtract(a, b, dtype=np.result_type(a, b, np.float32))
        if undetermined == "skip":
            difference = difference[~np.isnan(difference)]
        total += float(np.sum(np.square(difference), dtype=np.float64))
        count += difference.size
    return decibels(total, count, peak)


def decibels(total: float, count: int, peak: float = 255.0) -> float:
    """The ratio of `count` entries whose squared differences have the sum `total`; NaN if there are none."""
    if count == 0:
        return math.nan
    return math.inf if total == 0 else 10 * math.log10(peak**2 * count / total)
