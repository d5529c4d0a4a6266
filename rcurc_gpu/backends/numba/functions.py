"""The functions of Python and NumPy that kernels know; see `translate`. Those of vectors are in `vectors`."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import math
import operator
from functools import partial, reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import signature
from numba.np.numpy_support import from_dtype

from ..plain.verdicts import pick
from .expressions import BUILTINS, Expressions, arithmetic, builtin, compared, is_plain
from .values import LANES, VECTOR, Known, Number, View, cast, common


def llvm(at: Expressions, name: str, result: Any, args: list[Any]) -> Any:
    """Call LLVM's own function of this name."""
    kind = ir.FunctionType(result, [x.type for x in args])
    return at.builder.call(get_or_insert_function(at.builder.module, kind, f"llvm.{name}"), args)


def of_float(at: Expressions, name: str, x: Number) -> Number:
    """LLVM's own function of one float or vector."""
    suffix = f"v{LANES}f64" if x.kind is VECTOR else f"f{x.kind.bitwidth}"
    return Number(x.kind, llvm(at, f"{name}.{suffix}", x.ir.type, [x.ir]))


@builtin
def number_of(at: Expressions, rank: Any) -> Any:
    """A rank as a number, which the compiler knows if it came as a tuple of that length."""
    return rank.n if isinstance(rank, Known) else rank


@builtin
def is_known(at: Expressions, rank: Any) -> bool:
    """Whether the compiler knows the rank."""
    return isinstance(rank, Known)


@builtin
def not_inlined(at: Expressions) -> None:
    """Written at the top of a function: it is compiled once, and not into each of those that call it."""
    at.function.attributes.add("noinline")


@builtin
def compact(at: Expressions) -> None:
    """`not_inlined`, and loops are left as they are: they are short, or seldom run, or made of vectors already."""
    at.function.attributes.add("noinline")
    at.function.attributes.add("optsize")


def _extreme(sign: str, at: Expressions, *args: Any) -> Any:
    """`min` or `max`: as Python's, the first of those that are equal or cannot be compared."""

    def better(x: Any, y: Any) -> Any:
        if is_plain(x) and is_plain(y):
            return (min if sign == "<" else max)(x, y)
        a, b = at.number(x), at.number(y)
        a, b = (cast(at.builder, v, common(a.kind, b.kind)) for v in (a, b))
        return Number(a.kind, at.builder.select(compared(at.builder, sign, b, a).ir, b.ir, a.ir))

    if len(args) < 2:
        raise TypeError("kernels know min and max of several numbers")
    return reduce(better, args)


def _absolute(at: Expressions, x: Any) -> Any:
    if is_plain(x):
        return abs(x)
    if isinstance(x.kind, types.Float):
        return of_float(at, "fabs", x)
    minus = arithmetic(at.builder, operator.sub, 0, x)
    return Number(
        minus.kind, at.builder.select(compared(at.builder, "<", x, 0).ir, minus.ir, cast(at.builder, x, minus.kind).ir)
    )


def _numpys(sign: str, at: Expressions, x: Any, y: Any) -> Any:
    """`np.minimum` or `np.maximum`: NaN if one of them is."""
    if is_plain(x) and is_plain(y):
        return (np.minimum if sign == "<=" else np.maximum)(x, y)
    a, b = at.number(x), at.number(y)
    a, b = (cast(at.builder, v, common(a.kind, b.kind)) for v in (a, b))
    first = compared(at.builder, sign, a, b).ir
    if isinstance(a.kind, types.Float):
        first = at.builder.or_(first, compared(at.builder, "!=", a, a).ir)
    return Number(a.kind, at.builder.select(first, a.ir, b.ir))


def _not(at: Expressions, x: Any) -> Any:
    return not x if is_plain(x) else Number(types.boolean, at.builder.not_(at.truth(x)))


def _pick(at: Expressions, condition: Any, x: Any, y: Any) -> Any:
    test = at.truth(condition)
    return (x if test else y) if isinstance(test, bool) else at.choose(test, lambda: x, lambda: y, free=True)


def _length(at: Expressions, x: Any) -> Any:
    return Number(types.int64, x.shape[0]) if type(x) is View else len(x)


def _array(zeros: bool, at: Expressions, shape: Any, dtype: Any = np.float64) -> View:
    return at.allocate(from_dtype(np.dtype(dtype)), shape if type(shape) is tuple else (shape,), zeros)


def _as(kind: Any, at: Expressions, x: Any) -> Any:
    return cast(at.builder, at.number(x), kind)


def _rounded(function: Any, name: str, at: Expressions, x: Any) -> Any:
    """A function of a float that LLVM has, too, and rounds as everyone does."""
    if is_plain(x):
        return function(x)
    return of_float(at, name, x if isinstance(x.kind, types.Float) else cast(at.builder, x, types.float64))


def _of_double(function: Any, at: Expressions, x: Any) -> Any:
    """A function of C's mathematical library, as Numba calls it."""
    if is_plain(x):
        return function(x)
    emit = at.context.get_function(function, signature(types.float64, types.float64))
    return Number(types.float64, emit(at.builder, (cast(at.builder, at.number(x), types.float64).ir,)))


BUILTINS |= {
    min: partial(_extreme, "<"),
    max: partial(_extreme, ">"),
    abs: _absolute,
    np.abs: _absolute,
    np.minimum: partial(_numpys, "<="),
    np.maximum: partial(_numpys, ">="),
    np.logical_not: _not,
    pick: _pick,
    len: _length,
    int: partial(_as, types.int64),
    float: partial(_as, types.float64),
    np.empty: partial(_array, False),
    np.zeros: partial(_array, True),
    math.sqrt: partial(_rounded, math.sqrt, "sqrt"),
    np.sqrt: partial(_rounded, np.sqrt, "sqrt"),
    np.rint: partial(_rounded, np.rint, "rint"),
    math.log: partial(_of_double, math.log),
    np.log: partial(_of_double, math.log),
    math.log1p: partial(_of_double, math.log1p),
    math.exp: partial(_of_double, math.exp),
}
