"""Every reader of files and every public constructor, on input that hypothesis has spoilt: only documented errors may come.

Readers get good files with bytes changed, arrays replaced, or fields of their JSON replaced; constructors get arrays of any
shape, type and value. A reader may raise ValueError or OSError, a constructor ValueError or TypeError, each in one line.

    python -m bench.fuzz [--minutes 10] [--seed 0] [--only NAME]
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import rcurc_gpu as rg
from rcurc_gpu.io import load_result, read_observations, read_pairs, save_result
from rcurc_gpu.shards import LabelledShards, ShardedSamples, shard_file, shard_triplets

READER, CONSTRUCTOR = (ValueError, OSError), (ValueError, TypeError)
TEXT = "row,column,value\n" + "".join(f"r{i},c{j},{(i + 1) * (j + 1)}\n" for i in range(8) for j in range(6))
WITH_SIGMA = "row,column,value,error\n" + "".join(f"{line},{1 + k % 3}\n" for k, line in enumerate(TEXT.split()[1:]))
MATRIX = np.outer(np.arange(1.0, 9), np.arange(1.0, 7))


# ---------------------------------------------------------------- good files


def _problem() -> Any:
    return rg.synthetic((40, 30), 1, n_rows=20, n_cols=15, rate=0.8, alpha=0.05, seed=0)


def _table(path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    i, j = np.divmod(np.arange(48), 6)
    parquet.write_table(pa.table({"row": [f"r{k}" for k in i], "column": j, "value": MATRIX.ravel()}), path)


def _solved(path: Path, **where: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = rg.rcurc(_problem().samples, 1, kernels="xp", seed=0, **where)
    if not where:
        save_result(path, result)


def _sharded(path: Path, text: str = TEXT, **how: Any) -> None:
    source = path.with_suffix(".csv")
    source.write_text(text)
    shard_file(source, path, rows=["r0", "r1", "r2"], cols=["c0", "c1", "c2"], **how)


def _again(name: str, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        rg.rcurc(_problem().samples, 1, kernels="xp", seed=0, **{name: path})


def _whole(path: Path) -> None:
    samples = LabelledShards.open(path).samples
    samples.to_memory()
    _ = samples.intersection


def _known_noise() -> rg.CrossSamples:
    return rg.CrossSamples.from_dense(MATRIX, [0, 1, 2], [0, 1, 2], sigma=np.arange(1.0, 7))


def _write_market(path: Path) -> None:
    scipy.io.mmwrite(path, scipy.sparse.coo_array(MATRIX))


# name of the file: how to make a good one, how to read it
READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "table.csv": (lambda path: path.write_text(TEXT), read_observations),
    "table.csv.gz": (lambda path: path.write_bytes(gzip.compress(TEXT.encode(), mtime=0)), read_observations),
    "table.parquet": (_table, read_observations),
    "pairs.csv": (lambda path: path.write_text(TEXT), read_pairs),
    "matrix.npy": (lambda path: np.save(path, MATRIX), read_observations),
    "matrix.npz": (lambda path: np.savez(path, a=MATRIX, mask=MATRIX > 3), read_observations),
    "sparse.npz": (lambda path: scipy.sparse.save_npz(path, scipy.sparse.csr_array(MATRIX)), read_observations),
    "matrix.mtx": (_write_market, read_observations),
    "samples.npz": (lambda path: _problem().samples.save(path), rg.CrossSamples.load),
    "sigma.csv": (lambda path: path.write_text(WITH_SIGMA), partial(read_observations, sigma_column="error")),
    "sigma.npz": (lambda path: _known_noise().save(path), rg.CrossSamples.load),
    "result.npz": (_solved, load_result),
    "factors.npz": (lambda path: rg.rcurc(_problem().samples, 1, kernels="xp", seed=0).cur.save(path), rg.CURMatrix.load),
    "checkpoint.npz": (lambda path: _solved(path, checkpoint=path), partial(_again, "checkpoint")),
    "shards": (_sharded, _whole),
    "sigma-shards": (partial(_sharded, text=WITH_SIGMA, sigma_column="error"), _whole),
    "output": (lambda path: _solved(path, output=path), rg.open_result),
}


@cache
def good(name: str) -> dict[str, bytes]:
    """The files of a reader's good input, by name; one of the name "" if it is no directory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        READERS[name][0](path)
        if path.is_file():
            return {"": path.read_bytes()}
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


# ---------------------------------------------------------------- spoilt files

_DTYPES = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "u1", "u8", "?", "c16", "U3", "S2", "M8[s]"])
_NUMBERS = st.one_of(st.integers(-3, 60), st.floats(), st.sampled_from([2**31, 2**63 - 1, -(2**63), 1e308, -1e308, 5e-324]))
_JSON = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]), st.just({}), st.just([[[]]])
)


@st.composite
def arrays(draw: Any, most: int = 50) -> np.ndarray:
    """An array of any type, shape and value."""
    shape = draw(st.lists(st.integers(0, 8), max_size=3).filter(lambda x: np.prod(x, dtype=int) <= most))
    kind = np.dtype(draw(_DTYPES))
    size = int(np.prod(shape, dtype=int))
    values = draw(st.lists(_NUMBERS, min_size=size, max_size=size))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(values, dtype=object).astype(kind).reshape(shape)
        except (OverflowError, ValueError, TypeError):
            return np.zeros(shape, kind)


@st.composite
def changed_bytes(draw: Any, data: bytes) -> bytes:
    """Bytes changed, put in, taken out, or cut off."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        how, piece = draw(st.sampled_from(["put", "over", "out", "cut"])), draw(st.binary(min_size=1, max_size=6))
        if how == "put":
            out[at:at] = piece
        elif how == "over":
            out[at : at + len(piece)] = piece
        elif how == "out":
            del out[at : at + draw(st.integers(1, 40))]
        elif draw(st.integers(0, 3)) == 0:
            del out[at:]
    return bytes(out)


@st.composite
def changed_arrays(draw: Any, data: bytes) -> bytes:
    """An .npz file with an array replaced, left out, or with a value replaced."""
    with np.load(io.BytesIO(data)) as file:
        found = {name: file[name] for name in file.files}
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(found)))
        how = draw(st.sampled_from(["other", "gone", "cut", "one", "kind"]))
        array = found[name]
        if how == "gone":
            found = {other: x for other, x in found.items() if other != name} or found
        elif how == "other":
            found[name] = draw(arrays())
        elif how == "cut" and array.ndim:
            found[name] = array[: draw(st.integers(0, len(array)))]
        elif how == "kind" and array.dtype.kind in "iufb":
            with np.errstate(all="ignore"):
                found[name] = array.astype(draw(st.sampled_from(["f8", "f4", "i8", "i4", "u8", "U5"])))
        elif how == "one" and array.size and array.dtype.kind in "iuf":
            array = array.copy()
            with np.errstate(all="ignore"):
                array.flat[draw(st.integers(0, array.size - 1))] = np.asarray(draw(_NUMBERS)).astype(array.dtype)
            found[name] = array
    out = io.BytesIO()
    np.savez(out, **found)
    return out.getvalue()


@st.composite
def changed_json(draw: Any, data: bytes) -> bytes:
    """A JSON file with something in it replaced, or left out."""
    top = here = json.loads(data)
    while isinstance(here, (dict, list)) and here:
        name = draw(st.sampled_from(sorted(here))) if isinstance(here, dict) else draw(st.integers(0, len(here) - 1))
        if not (isinstance(here[name], (dict, list)) and here[name]) or draw(st.integers(0, 3)) == 0:
            if draw(st.booleans()):
                here[name] = draw(_JSON)
            else:
                del here[name]
            break
        here = here[name]
    return json.dumps(top).encode()


def spoilt(name: str, data: bytes) -> st.SearchStrategy[bytes]:
    """What can become of a file."""
    ways = [changed_bytes(data)]
    if name.endswith(".npz") and data:
        ways.append(changed_arrays(data))
    if name.endswith(".json"):
        ways.append(changed_json(data))
    return st.one_of(ways)


# ---------------------------------------------------------------- constructors

_ANY = st.one_of(arrays(), _NUMBERS, st.none(), st.text(max_size=3), st.lists(_NUMBERS, max_size=4))
_INDEX = st.one_of(st.lists(st.integers(-1, 8), max_size=6), st.lists(st.integers(0, 5), min_size=1, unique=True), _ANY)
_SHAPE = st.one_of(st.tuples(st.integers(1, 9), st.integers(1, 9)), _ANY)
_VALUES = st.one_of(st.lists(st.floats(), max_size=6), _ANY)


@st.composite
def _sparse(draw: Any) -> Any:
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    n = draw(st.integers(0, 8))
    i, j = (draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n)) for size in shape)
    data = np.asarray(draw(st.lists(st.floats(), min_size=n, max_size=n)), dtype=float)
    kind = draw(st.sampled_from(["coo", "csr", "csc", "lil", "dok", "dia", "bsr"]))
    return scipy.sparse.coo_array((data, (np.asarray(i, int), np.asarray(j, int))), shape=shape).asformat(kind)


def _shard_triplets(chunks: Any, shape: Any, rows: Any, cols: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return shard_triplets(chunks, Path(folder) / "s", shape, rows, cols)


def _from_functions(made: Any, shape: Any, rows: Any, cols: Any, at_once: Any) -> Any:
    if isinstance(shape, tuple) and max(shape) > 100:
        return None
    return ShardedSamples.from_functions(
        lambda a, b: made, lambda a, b: made, shape, rows, cols, columns_at_once=at_once, rows_at_once=at_once
    )


# a function and strategies for its arguments
CONSTRUCTORS: dict[str, tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]] = {
    "CrossSamples.from_dense": (rg.CrossSamples.from_dense, (_ANY, _INDEX, _INDEX)),
    "CrossSamples.from_triplets": (rg.CrossSamples.from_triplets, (_INDEX, _INDEX, _VALUES, _SHAPE)),
    "CrossSamples with sigma": (
        lambda i, j, values, sigma: rg.CrossSamples.from_triplets(i, j, values, (6, 6), sigma=sigma),
        (_INDEX, _INDEX, _VALUES, _VALUES),
    ),
    "CrossSamples.from_sparse": (rg.CrossSamples.from_sparse, (st.one_of(_sparse(), _ANY), _INDEX, _INDEX)),
    "CrossSamples.from_blocks": (
        rg.CrossSamples.from_blocks,
        (st.one_of(_sparse(), _ANY), st.one_of(_sparse(), _ANY), _INDEX, _INDEX),
    ),
    "shard_triplets": (_shard_triplets, (st.lists(st.tuples(_INDEX, _INDEX, _VALUES), max_size=2), _SHAPE, _INDEX, _INDEX)),
    "ShardedSamples.from_functions": (_from_functions, (_ANY, _SHAPE, _INDEX, _INDEX, st.one_of(st.integers(-1, 4), _ANY))),
    "LowRankMatrix": (rg.LowRankMatrix, (arrays(), arrays())),
}


# ---------------------------------------------------------------- running


def check_error(error: BaseException, kinds: tuple[type[BaseException], ...]) -> None:
    """Raise again what is not documented, or says more than a line."""
    if not isinstance(error, kinds) or "\n" in str(error) or not str(error):
        raise error


def fuzz_reader(name: str, examples: int, start: int | None = None) -> None:
    """Read so many spoilt files; a `start` seeds them, without it they are always the same."""
    files = good(name)

    @given(st.data())
    def one(data: Any) -> None:
        chosen = data.draw(st.sampled_from(sorted(files)))
        content = data.draw(spoilt(chosen or name, files[chosen]))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            for other, whole in files.items():
                place = path / other if other else path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content if other == chosen else whole)
            try:
                READERS[name][1](path)
            except Exception as error:
                check_error(error, READER)
            finally:
                shutil.rmtree(path, ignore_errors=True)

    _run(one, examples, start)


def fuzz_constructor(name: str, examples: int, start: int | None = None) -> None:
    """Call a constructor with so many arguments."""
    make, arguments = CONSTRUCTORS[name]

    @given(st.tuples(*arguments))
    def one(given_: tuple[Any, ...]) -> None:
        try:
            make(*given_)
        except Exception as error:
            check_error(error, CONSTRUCTOR)

    _run(one, examples, start)


def _run(one: Any, examples: int, start: int | None) -> None:
    how = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=start is None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if start is not None else [Phase.generate],
    )
    (how(one) if start is None else seed(start)(how(one)))()


@click.command()
@click.option("--minutes", default=10.0)
@click.option("--seed", "first", default=0)
@click.option("--only", default="", help="Part of a name.")
def main(minutes: float, first: int, only: str) -> None:
    """Go round all readers and constructors until the time is over; say what was found."""
    runs = [(name, fuzz_reader) for name in READERS] + [(name, fuzz_constructor) for name in CONSTRUCTORS]
    runs = [(name, run) for name, run in runs if only in name]
    end, count, found, round_ = time.monotonic() + 60 * minutes, dict.fromkeys((n for n, _ in runs), 0), {}, first
    while time.monotonic() < end and len(found) < len(runs):
        for name, run in runs:
            if time.monotonic() > end:
                break
            if name in found:
                continue
            try:
                run(name, 100, round_)
                count[name] += 100
            except Exception as error:
                found[name] = error
                click.echo(f"{name}, seed {round_}: {type(error).__name__}: {error}")
        round_ += 1
    for name, n in count.items():
        click.echo(f"{name:32} {n:7,} inputs{'  FAILED' if name in found else ''}")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
