"""Warnings and the checks of arguments that several modules share."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


class ConvergenceWarning(UserWarning):
    """The solve ended without a result that the held-out entries confirm."""


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """`value` as an int between `least` and `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if number < least or (most is not None and number > most):
        upper = "" if most is None else f" and at most {most}"
        raise ValueError(f"{name} must be at least {least}{upper}, got {number}")
    return number


def check_number(
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = float("inf"),
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """`value` as a finite float in the interval from `low` to `high`."""
    if isinstance(value, (bool, np.bool_, str)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    inside = (low < number if open_low else low <= number) and (number < high if open_high else number <= high)
    if not inside or not np.isfinite(number):
        interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high or high == float('inf') else ']'}"
        raise ValueError(f"{name} must be in {interval}, got {value!r}")
    return number


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_shape(name: str, value: Any) -> tuple[int, int]:
    """`value` as a pair of positive ints."""
    try:
        first, second = value
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a pair (n1, n2), got {value!r}") from None
    return check_count(f"{name}[0]", first), check_count(f"{name}[1]", second)


class DuplicateError(ValueError):
    """An entry was observed with different values.

    Attributes
    ----------
    i, j : int
        Its row and column.
    first, second : float
        Two of the values.
    problem : str
        What is wrong, in words, without advice.
    """

    def __init__(self, i: int, j: int, first: float, second: float, entry: str, advice: str) -> None:
        super().__init__(i, j, first, second, entry, advice)  # all of them, for pickle
        self.i, self.j, self.first, self.second, self.advice = i, j, first, second, advice
        self.problem = f"{entry} was observed with different values, {first:g} and {second:g}"

    def __str__(self) -> str:
        return f"{self.problem}; {self.advice}"
