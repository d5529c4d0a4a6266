"""Shards from a stream of observations that is larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from ..errors import check_shape
from ..progress import progress_bar
from ..samples.building import check_finite, float_values, given_array, index_vector, observed, sigma_vector
from .build import MEMORY_BYTES, BuildOptions, CrossPlaces, build
from .folder import workspace
from .samples import SHARD_BYTES, ShardedSamples
from .spool import Spool


def shard_triplets(
    chunks: Iterable[tuple[Any, ...]],
    folder: str | os.PathLike[str],
    shape: tuple[int, int],
    rows: Any = None,
    cols: Any = None,
    *,
    duplicates: str = "error",
    sigma: bool = False,
    dtype: Any = "float64",
    shard_bytes: int = SHARD_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    progress: bool = False,
) -> ShardedSamples:
    """Write the observations that `chunks` gives into a directory of shards; they need not fit into memory.

    The samples are those that `CrossSamples.from_triplets` makes of all chunks together. `chunks` is gone through once.
    While it works, files inside of `folder` take up to 48 bytes for each observation, and the shards 24.

    Parameters
    ----------
    chunks : iterable of (i, j, values)
        Row, column and value of some observations each, vectors of one length, as many as there are.
    folder : path
        A directory that is empty or does not exist yet. After an error, or Ctrl-C, nothing is left in it.
    shape : (int, int)
    rows, cols : index vectors, optional
        I and J. What is not given is chosen as `CrossSamples.from_triplets` does.
    duplicates : {"error", "mean", "median"}
        What to do with repeated observations that disagree; those that lie outside of the cross are not compared.
    sigma : bool
        Whether chunks are (i, j, values, sigma), with the standard deviation of the noise of each value, as
        `CrossSamples.from_triplets` takes it.
    dtype : float32 or float64
        What values become.
    shard_bytes : int
        About how large a shard is.
    memory_bytes : int
        About how much memory to use, beside some 50 bytes for each row and column of the matrix, and the observations in
        the intersection of I and J, which the solvers hold as well.
    progress : bool
        Show bars on standard error.

    Returns
    -------
    ShardedSamples
        What `ShardedSamples.open` gives for `folder`.

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> Y = np.outer(np.arange(1.0, 101.0), np.arange(1.0, 81.0))
    >>> def chunks():  # as they come from a database: never all at once
    ...     for i in range(100):
    ...         yield np.full(80, i), np.arange(80), Y[i]
    >>> samples = rg.shard_triplets(chunks(), "shards", Y.shape, rows=range(20), cols=range(15))
    >>> result = rg.rcurc(samples, rank=1)
    >>> bool(np.allclose(result.cur, Y))
    True
    """
    n1, n2 = check_shape("shape", shape)
    options = BuildOptions.checked(duplicates, dtype, shard_bytes, memory_bytes, progress, bool(sigma))
    rows = None if rows is None else index_vector("rows", rows, n1)
    cols = None if cols is None else index_vector("cols", cols, n2)
    given = None if rows is None or cols is None else CrossPlaces((n1, n2), rows, cols)
    n_unused = 0
    index_dtype = np.int32 if max(n1, n2) <= 1 << 31 else np.int64
    with workspace(folder) as work, closing(Spool(work, index_dtype, options.observed)) as spool:
        with progress_bar("reading", None, options.progress) as shown:
            for i, j, values in _checked_chunks(chunks, (n1, n2), options):
                if given is not None:  # what lies outside of the cross need not be kept
                    used = given.uses(i, j)
                    n_unused += len(i) - int(np.count_nonzero(used))
                    i, j, values = i[used], j[used], values[used]
                spool.append(i, j, values)
                shown.update(len(i) * spool.bytes_each)
        if len(spool) + n_unused == 0:
            raise ValueError("chunks is empty: there are no observations")
        build(spool, folder, (n1, n2), rows, cols, options, n_unused)
    return ShardedSamples.open(folder)


def _checked_chunks(
    chunks: Iterable[tuple[Any, ...]], shape: tuple[int, int], options: BuildOptions
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Chunks as arrays, cut into what is looked at at a time; errors name the chunk."""
    for k, chunk in enumerate(chunks):
        try:
            i, j, values, *rest = chunk
            if len(rest) != options.sigma:
                raise ValueError
        except (TypeError, ValueError):
            wanted = "(i, j, values, sigma)" if options.sigma else "(i, j, values)"
            length = f" of length {len(chunk)}" if isinstance(chunk, tuple) else ""
            raise TypeError(f"chunk {k} must be {wanted}, got {type(chunk).__name__}{length}") from None
        values = float_values(f"values of chunk {k}", _on_host(f"values of chunk {k}", values))
        i, j = (_on_host(f"{name} of chunk {k}", x) for name, x in (("i", i), ("j", j)))
        if values.ndim != 1 or not i.shape == j.shape == values.shape:
            raise ValueError(
                f"i, j and values of chunk {k} must be vectors of one length, got {i.shape}, {j.shape} and {values.shape}"
            )
        sigma, like = None, np.broadcast_to(np.zeros((), options.dtype), values.shape)
        if rest:
            sigma = sigma_vector(_on_host(f"sigma of chunk {k}", rest[0]), like, f"sigma of chunk {k}")
        for start in range(0, len(values), options.at_once):
            piece = slice(start, start + options.at_once)
            for name, index, size in (("i", i, shape[0]), ("j", j, shape[1])):
                _check_index(f"{name} of chunk {k}", index[piece], size, start)
            check_finite(f"values of chunk {k}", values[piece], partial(_index_words, start))
            new = options.as_dtype(values[piece], partial(_value_words, k, start))
            yield i[piece], j[piece], observed(new, None if sigma is None else sigma[piece])


def _index_words(start: int, k: int) -> str:
    return f"index {start + k}"


def _value_words(chunk: int, start: int, k: int, problem: str) -> str:
    return f"values of chunk {chunk} {problem} at {_index_words(start, k)}"


def _on_host(name: str, x: Any) -> np.ndarray:
    x = given_array(name, x)
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, got {type(x).__name__}: bring it to the host first")
    return x


def _check_index(name: str, index: np.ndarray, size: int, first: int) -> None:
    if index.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {index.dtype}")
    if index.min() < 0 or index.max() >= size:
        k = int(np.argmax((index < 0) | (index >= size)))
        raise ValueError(f"{name} must lie in 0..{size - 1}, got {index[k]} at index {first + k}")
