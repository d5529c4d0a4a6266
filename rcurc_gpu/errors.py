"""Warnings, errors with fields, and the checks of arguments that several modules share.

An error that speaks of arguments keeps them apart from its words, so that the command line can name its options instead.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_OURS = (__name__.partition(".")[0], "sklearn")


class ConvergenceWarning(UserWarning):
    """The solve ended without a result that the held-out entries confirm."""


@contextmanager
def without_warning() -> Iterator[None]:
    """Solve without a ConvergenceWarning: its text is the result's message, which is reported or kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code: frames of this package, and of scikit-learn between, are skipped."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class Argument:
    """An argument that a sentence speaks of; with values, the ones that it may be given."""

    def __init__(self, name: str, *values: Any) -> None:
        self.name, self.values = name, values


class Wording:
    """How sentences name arguments: as Python does."""

    def __call__(self, name: str, *values: Any) -> str:
        """The argument `name`, or what to pass to give it one of the `values`."""
        said = " or ".join(f"{value:g}" if isinstance(value, float) else repr(value) for value in values)
        return f"{name}={said}" if values else name

    def has(self, name: str) -> bool:
        """Whether there is such an argument."""
        return True


PYTHON = Wording()


class WordedError(Exception):
    """An error that is made of parts: text, and the arguments (`Argument`) that it speaks of."""

    def worded(self, words: Wording) -> str:
        """The sentence, with the arguments named by `words`."""
        return "".join(words(part.name, *part.values) if isinstance(part, Argument) else str(part) for part in self.args)

    def __str__(self) -> str:
        return self.worded(PYTHON)


class InputError(WordedError, ValueError):
    """A file or an argument is wrong."""


class DeviceError(WordedError, RuntimeError):
    """A device that was asked for is not there."""


class InUseError(RuntimeError):
    """Another run uses a file or directory that only one may use at a time."""


class NothingObservedError(ValueError):
    """There is no observation where some are needed."""


class DisagreementError(WordedError, ValueError):
    """An entry was observed with different values.

    Attributes
    ----------
    entry : (int, int)
    seen : str
        The values, in words.
    """

    def __init__(self, entry: tuple[int, int], seen: str) -> None:
        super().__init__(entry, seen)  # what unpickling passes
        self.entry, self.seen = entry, seen

    def worded(self, words: Wording) -> str:
        """The sentence, with the arguments named by `words`."""
        return (
            f"entry {self.entry} was observed with different values, {self.seen}; combine them first, or "
            f"pass {words('duplicates', 'mean', 'median')} to from_triplets, from_sparse, from_blocks or complete"
        )

    def in_labels(self, where: str, place: str) -> InputError:
        """The same in the user's labels: `where` says what was read, and `place` names the row and the column."""
        said = f"{where}: the entry of {place} was observed with different values, {self.seen}; "
        return InputError(said, Argument("duplicates", "mean", "median"), " combines them")


class ArgumentProblem(WordedError):
    """An argument is wrong.

    Attributes
    ----------
    argument : str
        Its name.
    problem : str
        What is wrong; the name before it makes a sentence.
    got : object
        What came, if it is at hand.
    """

    def __init__(self, argument: str, problem: str, got: Any = None) -> None:
        super().__init__(argument, problem, got)
        self.argument, self.problem, self.got = argument, problem, got

    def worded(self, words: Wording) -> str:
        """The sentence, with the argument named by `words`."""
        return f"{words(self.argument)} {self.problem}"


class ArgumentError(ArgumentProblem, ValueError):
    """An argument has a value that it cannot have."""


class ArgumentTypeError(ArgumentProblem, TypeError):
    """An argument is of a type that it cannot be of."""


def shown(value: Any) -> str:
    """What came, in one line of an error."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """`value` as an int between `least` and `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(name, f"must be an integer, got {shown(value)}", value) from None
    if isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(name, f"must be an integer, got {shown(value)}", value)
    if number < least or (most is not None and number > most):
        upper = "" if most is None else f" and at most {most}"
        raise ArgumentError(name, f"must be at least {least}{upper}, got {number}", value)
    return number


def check_number(
    name: str, value: Any, low: float = 0.0, high: float = float("inf"), *, open_low: bool = False, open_high: bool = False
) -> float:
    """`value` as a finite float in the interval from `low` to `high`."""
    if isinstance(value, (bool, np.bool_, str)):
        raise ArgumentTypeError(name, f"must be a number, got {shown(value)}", value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(name, f"must be a number, got {shown(value)}", value) from None
    inside = (low < number if open_low else low <= number) and (number < high if open_high else number <= high)
    if not inside or not np.isfinite(number):
        interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high or high == float('inf') else ']'}"
        raise ArgumentError(name, f"must be in {interval}, got {shown(value)}", value)
    return number


def check_flag(name: str, value: Any) -> bool:
    """`value` if it is True or False: any word would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(name, f"must be True or False, got {shown(value)}", value)
    return bool(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`."""
    if value not in choices:
        raise ArgumentError(name, f"must be one of {', '.join(map(repr, choices))}, got {shown(value)}", value)
    return str(value)


def check_shape(name: str, value: Any) -> tuple[int, int]:
    """`value` as a pair of positive ints."""
    try:
        first, second = value
    except (TypeError, ValueError):
        raise ArgumentTypeError(name, f"must be a pair (n1, n2), got {shown(value)}", value) from None
    return check_count(f"{name}[0]", first), check_count(f"{name}[1]", second)


def seed_to_int(seed: Any) -> int:
    """One 63-bit integer from ``None``, an int or a ``numpy.random.Generator`` (which advances)."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(1 << 63))
    if seed is None:
        return int(np.random.default_rng().integers(1 << 63))
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        if seed < 0:
            raise ArgumentError("seed", f"must not be negative, got {seed}")
        return int(seed)
    raise ArgumentTypeError("seed", f"must be None, an int or a numpy.random.Generator, got {type(seed).__name__}")
