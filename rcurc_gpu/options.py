"""Every option of the solvers, stated once: default, check and documentation.

An option is a field of `Settings` or `Where`. Its default is the value of the class attribute (``Settings.holdout``), which
signatures repeat by name; its check is part of the field; its documentation is in the docstring of the class, from which
`documented` fills the docstrings of the solvers, and the command line its help.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar

from .errors import ArgumentError, ArgumentTypeError, check_choice, check_count, check_flag, check_number, seed_to_int

_Documented = TypeVar("_Documented", bound=Callable[..., Any])
_INFINITE = float("inf")


def _option(default: Any, check: Callable[[str, Any], Any]) -> Any:
    """A field with a default and a check, which takes the name and the value."""
    return field(default=default, metadata={"check": check})


def _choice(*choices: str) -> Any:
    """One of some words, the first by default."""
    return field(default=choices[0], metadata={"check": partial(check_choice, choices=choices), "choices": choices})


def _number(default: float, low: float = 0.0, high: float = _INFINITE, *, open_low: bool = False) -> Any:
    return _option(default, partial(check_number, low=low, high=high, open_low=open_low))


def _size(high: float = _INFINITE) -> Any:
    """A number above 0 and below `high`, or None for what the solver takes of itself."""
    return _option(None, _unless_none(partial(check_number, low=0, high=high, open_low=True, open_high=True)))


def _count(least: int = 1) -> Any:
    """A whole number, or None for what the solver takes of itself."""
    return _option(None, _unless_none(partial(check_count, least=least)))


def _unless_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _flag(default: bool) -> Any:
    return _option(default, check_flag)


def _callable(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ArgumentTypeError(name, f"must be callable, got {type(value).__name__}", value)
    return value


def _outliers(name: str, value: Any) -> Any:
    if value is True or value is False or (isinstance(value, str) and value == "structured"):
        return value
    raise ArgumentError(name, f"must be True, False or 'structured', got {value!r}", value)


def _offsets(name: str, value: Any) -> Any:
    if value is True or value is False or (isinstance(value, str) and value == "auto"):
        return value
    raise ArgumentError(name, f"must be 'auto', True or False, got {value!r}", value)


def _checked(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `kind` among the arguments of a solver, or an error that names a wrong one."""
    known = [(f.name, f.metadata.get("check")) for f in fields(kind) if f.name in given]
    return {name: given[name] if check is None else check(name, given[name]) for name, check in known}


@dataclass(frozen=True)
class Settings:
    """How to solve.

    Attributes
    ----------
    method : {"fast", "paper"}
        How to solve. "paper" gives the iterates of the paper's Algorithm 1. "fast" takes its core and then solves a robust
        least-squares problem for each remaining column and row, with the threshold stopping at the noise.
    step_rows : float, optional
        eta_R. By default 1 / p_u ("fast"; p_u is the observed share of the intersection), 0.75 / p_R ("paper").
    step_cols : float, optional
        eta_C. By default 1 / p_u ("fast"), 0.75 / p_C ("paper").
    step_core : float, optional
        eta_U, the step of every entry of the intersection, if it does not follow from `step_rows` and `step_cols`.
    zeta0 : float, optional
        First threshold; by default 5 times the median size of an observation.
    gamma : float in (0, 1), optional
        Decay of the threshold. By default 0.8, then 0.9 and 0.95 if the held-out entries do not confirm the result ("fast"),
        0.9 ("paper").
    tol : float, optional
        Target of e_k, which is a squared relative error. "fast" stops when U moves by less than its square root.
    max_iter : int, optional
        Iterations of the core, for each gamma tried.
    holdout : float in [0, 0.5]
        Share of the observations that is held out of the fit to judge it. With noise the fit uses all of them, and a second
        fit, without a thousand or at most a tenth of them, judges it. 0 turns off the check by held-out entries.
    accuracy : float, optional
        Relative error that is good enough: `converged` is then only true if `expected_error` is below this. By default noise
        is reported as a number, not as a failure.
    resolution : float
        Differences that do not matter, in the unit of the data, such as one grey level in a video: structure in the
        residuals that is smaller than this does not call for a larger rank.
    sweeps : int, optional
        Largest number of sweeps of the noise model ("fast", with noise); by default until it has settled. 0 turns it off:
        then there are no offsets, no shrinking and no intervals.
    offsets : {"auto", True, False}
        Whether rows and columns have offsets beside the components, with noise. "auto" lets the data decide.
    intervals : bool
        Keep what intervals are computed from, with noise: (r + 1)(r + 2) / 2 numbers of single precision for each row and
        column.
    undetermined : {"prior", "nan", "keep"}
        What to put where a column or row could not be determined: values typical of all others, NaN, or the doubtful
        numbers.
    seed : int, None or numpy.random.Generator
        Fixes the result on one device. None draws one, and keeps that of an interrupted solve that it resumes.
    kernels : {"auto", "xp", "fused"}
        What computes: plain array code, or compiled kernels (CUDA through CuPy, or Numba on a CPU). "auto" uses compiled
        ones where there are any. They differ in rounding only.
    svd : {"auto", "cusolver"}
        The truncated SVDs of the core on a GPU: by kernels of this library up to rank 32, or all by NVIDIA's cuSOLVER, with
        the host between them, for comparisons. They agree to rounding. The U that is returned comes from cuSOLVER in any
        case.
    chunk_bytes : int, optional
        Working memory of one chunk of columns or rows; by default 8 MiB on a CPU (its cache), 256 MiB on a GPU.
    callback : callable, optional
        Called with an `IterationState` after every iteration of the core; returning True ends it. With ``method="paper"``
        its method ``cur()`` gives the whole matrix of the iteration.
    outliers : {True, False, "structured"}
        Whether observations may be outliers; False treats all of them as right, as `icurc` does. "structured" expects
        outliers with structure of their own, such as moving objects in a video: then such structure casts no doubt on the
        result.
    """

    method: str = _choice("fast", "paper")
    step_rows: float | None = _size()
    step_cols: float | None = _size()
    step_core: float | None = _size()
    zeta0: float | None = _size()
    gamma: float | None = _size(1)
    tol: float = _option(None, _unless_none(check_number))  # None becomes a number that depends on the data
    max_iter: int | None = _count()
    holdout: float = _number(0.03, 0, 0.5)
    accuracy: float | None = _size()
    resolution: float = _number(0.0)
    sweeps: int | None = _count(0)
    offsets: Any = field(default="auto", metadata={"check": _offsets})
    intervals: bool = _flag(True)
    undetermined: str = _choice("prior", "nan", "keep")
    seed: int = _option(0, lambda name, value: seed_to_int(value))
    kernels: str = _choice("auto", "xp", "fused")
    svd: str = _choice("auto", "cusolver")
    chunk_bytes: int | None = _count()
    callback: Callable[[Any], Any] | None = field(default=None, metadata={"check": _callable})
    outliers: Any = field(default=True, metadata={"check": _outliers})

    @classmethod
    def checked(cls, dtype: Any, given: dict[str, Any]) -> Settings:
        """The settings among the arguments of a solver for observations of a `dtype`."""
        values = _checked(cls, given)
        if values.get("tol") is None:
            single = "32" in str(dtype)
            values["tol"] = (1e-5 if single else 1e-10 if values.get("method", cls.method) == "fast" else 1e-6) ** 2
        return cls(**values)

    def scaled(self, factor: float) -> Settings:
        """The settings for ``factor * Y``."""
        zeta0 = None if self.zeta0 is None else self.zeta0 * factor
        return replace(self, zeta0=zeta0, resolution=self.resolution * factor)


@dataclass(frozen=True)
class Where:
    """Where a solve computes, and what it keeps and shows.

    Attributes
    ----------
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where to compute; "auto" is where the samples are: those on a GPU are solved there, all others, those in shards and
        on a cluster too, on the CPU. "cuda" sends samples on the host through a GPU in chunks, so they may be larger than
        its memory; with a `client` it is each worker's own.
    checkpoint : path, optional
        A file that keeps the progress, for ``method="fast"``. After an interruption of any kind the same call resumes from
        it and gives the same result. It stays when the solve is done; delete it when the result is safe. It is written whole
        or not at all, and a file of another solve is an error and is left alone.
    checkpoint_every : float
        Least number of seconds between two writes; more where writing takes long.
    output : path, optional
        For samples in shards, or with a `client`: a directory for the factors, which are then read when they are looked
        at. Finished shards are kept there, so the same call resumes after an interruption of any kind. Workers
        write to it, so all of them must see it.
    client : dask.distributed.Client, optional
        Work on its workers, each shard where its data is. Samples in memory are cut into shards.
    gather : bool
        With a `client` and without `output`: True brings the factors here, False leaves them on the workers, as Dask
        arrays. Factors lost with a worker later are computed again if the shards come from a directory or from functions.
    progress : bool
        Show progress bars on standard error.
    """

    device: str = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float = _number(30.0)
    output: str | os.PathLike[str] | None = None
    client: Any = None
    gather: bool = _flag(True)
    progress: bool = _flag(False)

    @classmethod
    def checked(cls, given: dict[str, Any]) -> Where:
        """What the arguments of a solver say of it."""
        return cls(**_checked(cls, given))


class Asked:
    """What is asked for.

    Attributes
    ----------
    samples : CrossSamples or ShardedSamples
        What was observed. Results are of the same kind as its arrays (NumPy, CuPy, ...). Shards are solved one after the
        other; each is read once or twice, with noise up to three times.
    rank : int or "auto"
        Rank of the matrix. "auto" takes as many components as the data support. With noise a number is the upper limit, and
        offsets are not counted.
    """

    rank: int | str = "auto"


def check_rank(rank: Any, most: int, reason: str) -> int | str:
    """A rank of at most `most`, for which there is a `reason`, or "auto"."""
    if isinstance(rank, str):
        if rank != "auto":
            raise ArgumentError("rank", f"must be a positive integer or 'auto', got {rank!r}", rank)
        return rank
    number = check_count("rank", rank)
    if number > most:
        raise ArgumentError("rank", f"must be at most {reason} = {most}, got {number}: choose more rows and columns", number)
    return number


# ---------------------------------------------------------------- documentation


def _entries(section: str) -> dict[str, str]:
    """The entries of a section of a numpydoc docstring, by the first name of each."""
    found = re.split(r"\n(?=\S)", section.strip("\n"))
    return {re.split(r"[ ,:]", entry, maxsplit=1)[0]: entry for entry in found}


def _attributes(kind: type) -> dict[str, str]:
    return _entries(inspect.cleandoc(kind.__doc__ or "").partition("Attributes\n----------\n")[2])


DOCUMENTATION = _attributes(Settings) | _attributes(Where) | _attributes(Asked)


def documented(solver: _Documented) -> _Documented:
    """Complete the section "Parameters" of a docstring, or put one before "Returns".

    It comes to have the parameters in the order of the signature; those that are not described there are described as in
    this module. Of a `solver` that passes any others on (``**options``), those of `Settings` and `Where` follow.
    """
    if solver.__doc__ is None:  # python -OO
        return solver
    text, title = inspect.cleandoc(solver.__doc__), "Parameters\n----------\n"
    before, _, after = (text if title in text else text.replace("Returns\n", f"{title}\n\nReturns\n")).partition(title)
    own, _, rest = after.partition("\n\n")
    described = _entries(own)
    grouped = {name for entry in described.values() for name in re.split(r",\s*", entry.partition(" :")[0])[1:]}
    parameters = inspect.signature(solver).parameters
    names = [name for name in parameters if name not in grouped]
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        options = [f.name for kind in (Settings, Where) for f in fields(kind) if f.name != "step_core"]
        names = [*names[:-1], *(name for name in options if name not in names)]
    entries = [described.get(name) or DOCUMENTATION[name] for name in names]
    solver.__doc__ = before + "\n".join(["Parameters", "----------", *entries, "", rest])
    return solver


@dataclass(frozen=True)
class Option:
    """What is known of an option: its `default`, the words it may be (`choices`), and one sentence on it (`text`)."""

    default: Any
    choices: tuple[str, ...]
    text: str


def option(name: str) -> Option:
    """The option of the solvers of this name."""
    owner = next(kind for kind in (Settings, Where, Asked) if hasattr(kind, name))
    choices = next((f.metadata.get("choices", ()) for f in fields(Settings) if f.name == name), ())
    text = " ".join(DOCUMENTATION.get(name, "").partition("\n")[2].split())
    return Option(getattr(owner, name), choices, text[: text.find(".") + 1])
