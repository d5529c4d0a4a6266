"""What public objects say of themselves: a line, a verdict and a small table, as text and in notebooks as HTML."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_WIDTH = 100  # characters of a line of text
_LISTED = 9  # longer tuples are counted
_COLOURS = {True: "#1a7f37", False: "#b35900", None: "inherit"}  # readable on white and on black


@dataclass(frozen=True)
class Summary:
    """What there is to say of an object.

    Attributes
    ----------
    facts : mapping of str to str
        The small table.
    message : str
        A sentence or two.
    good : bool or None
        The verdict: whether the object is confirmed; None if that is not a question.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    good: bool | None = None

    @property
    def verdict(self) -> str:
        """In a word or two; empty if there is none."""
        return {True: "confirmed", False: "NOT confirmed", None: ""}[self.good]

    def text(self, name: str) -> str:
        """A few lines of text on an object of the type `name`."""
        lines = [f"{name}: {self.verdict}" if self.verdict else name]
        lines += textwrap.wrap(self.message, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        width = max(map(len, self.facts), default=0)
        return "\n".join([*lines, *(f"  {key:<{width}}  {value}" for key, value in self.facts.items())])

    def html(self, name: str) -> str:
        """The same for notebooks."""
        verdict = f' <b style="color:{_COLOURS[self.good]}">{self.verdict}</b>' if self.verdict else ""
        message = f"<div>{html.escape(self.message)}</div>" if self.message else ""
        cell = '<td style="text-align:left">'
        rows = (f"<tr>{cell}{html.escape(k)}</td>{cell}{html.escape(v)}</td></tr>" for k, v in self.facts.items())
        return f"<div><b>{html.escape(name)}</b>{verdict}{message}<table>{''.join(rows)}</table></div>"


class Summarised:
    """An object that says what it is in a few lines; a dataclass of this kind has ``repr=False``."""

    def _summary(self) -> Summary:
        """What there is to say."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._summary().text(type(self).__name__)

    def _repr_html_(self) -> str:
        return self._summary().html(type(self).__name__)


class Fields(Summarised):
    """A dataclass that says what its fields hold: arrays by their size and type. It has ``repr=False``."""

    def _summary(self) -> Summary:
        held = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # who inherits is a dataclass
        return Summary({name: textwrap.shorten(_held(x), _WIDTH - 20, placeholder=" ...") for name, x in held.items()})


def _held(x: Any) -> str:
    if isinstance(x, Summarised):
        return f"{type(x).__name__}: " + ", ".join(f"{key} {value}" for key, value in x._summary().facts.items())
    if isinstance(x, tuple) and len(x) > _LISTED:
        return f"{len(x):,} of {type(x[0]).__name__}"
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        return str(x)
    first = f", the first {str(x[0])!r}" if getattr(x.dtype, "kind", "") == "U" and x.ndim == 1 and len(x) else ""
    return f"{size_words(x.shape)} of {x.dtype}{first}"


def size_words(shape: tuple[int, ...]) -> str:
    """The shape of a matrix, as in 3,000 x 2,000."""
    return " x ".join(f"{n:,}" for n in shape)
