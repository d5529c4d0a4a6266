"""Pictures in grey, and small ones."""

from __future__ import annotations

import numpy as np


def grey(picture: np.ndarray) -> np.ndarray:
    """A picture (height, width) or (height, width, 3) in grey, float32 (height, width)."""
    return picture.mean(axis=2, dtype=np.float32) if picture.ndim == 3 else picture.astype(np.float32)


def shrink(picture: np.ndarray, factor: int) -> np.ndarray:
    """Averages over squares of `factor` pixels and all channels, float32; what is left over at the edges is left out."""
    rows, cols = max(picture.shape[0] // factor, 1), max(picture.shape[1] // factor, 1)
    cut = picture[: rows * factor, : cols * factor]
    sums = np.uint32 if picture.dtype == np.uint8 else np.float32
    # lines first: they lie in one piece of memory
    lines = cut.reshape(rows, cut.shape[0] // rows, -1).sum(axis=1, dtype=sums).reshape(rows, cols, -1)
    return lines.sum(axis=2, dtype=sums).astype(np.float32) * np.float32(rows * cols / cut.size)


def evenly(total: int, count: int) -> np.ndarray:
    """`count` numbers below `total`, or all of them, ascending: spread by the golden section, so that no two are near each
    other and no line or column of a picture is favoured."""
    return np.unique((np.arange(min(count, total)) * 0.6180339887498949 % 1 * total).astype(np.int64))
