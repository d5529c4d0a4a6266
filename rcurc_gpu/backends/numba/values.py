"""What kernels compute with while they are translated: numbers and contiguous arrays, and how LLVM has them."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.np.numpy_support import from_dtype

LANES = 8  # float64 in a register of AVX-512, and in a line of the cache; fewer would leave half of one empty
VECTOR = "vector"  # the kind of LANES numbers of float64
PLAIN = (bool, int, float, np.generic)  # numbers that are known while a kernel is translated
BIT, BYTE, WORD, PLACE = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_IR: dict[Any, ir.Type] = {
    VECTOR: ir.VectorType(ir.DoubleType(), LANES),
    types.float64: ir.DoubleType(),
    types.float32: ir.FloatType(),
    types.boolean: BIT,
}


class Number(NamedTuple):
    """A number, or a vector of them, that is known when the kernel runs; `kind` is Numba's type, or VECTOR."""

    kind: Any
    ir: Any


class View(NamedTuple):
    """A contiguous array, or a part of one that is contiguous itself."""

    dtype: Any
    data: Any
    shape: tuple[Any, ...]


class Known(NamedTuple):
    """A tuple of numbers that came for its length, which is then a part of the kernel's type."""

    n: int


def ir_type(kind: Any) -> ir.Type:
    """LLVM's type of a number."""
    if kind not in _IR:
        _IR[kind] = ir.IntType(kind.bitwidth)
    return _IR[kind]


def stored_type(dtype: Any) -> ir.Type:
    """LLVM's type of a number in an array."""
    return BYTE if dtype is types.boolean else ir_type(dtype)


def like(members: Any, others: Iterable[Any]) -> Any:
    """A tuple, with names if `members` has them."""
    return type(members)(*others) if hasattr(members, "_fields") else tuple(others)


def kind_of(value: Any) -> Any:
    """The kind of a value; functions are translated once for each."""
    if type(value) is Number:
        return value.kind
    if type(value) is View:
        return View, value.dtype, len(value.shape)
    if type(value) is Known:
        return value
    if isinstance(value, tuple):
        return like(value, map(kind_of, value))
    raise TypeError(f"variables and arguments are numbers, arrays and tuples of these, not {value!r}")


def flat(value: Any) -> list[Any]:
    """What LLVM has for a value: a number is one, an array its address and its shape, a tuple what its members are."""
    if type(value) is Number:
        return [value.ir]
    if type(value) is View:
        return [value.data, *value.shape]
    return [] if type(value) is Known else [x for member in value for x in flat(member)]


def flat_types(kind: Any) -> list[ir.Type]:
    """The types of `flat`."""
    if type(kind) is Known:
        return []
    if not isinstance(kind, tuple):
        return [ir_type(kind)]
    if kind[:1] == (View,):
        return [stored_type(kind[1]).as_pointer()] + [PLACE] * kind[2]
    return [x for member in kind for x in flat_types(member)]


def rebuilt(kind: Any, parts: Iterator[Any]) -> Any:
    """A value from what `flat` gave."""
    if type(kind) is Known:
        return kind
    if not isinstance(kind, tuple):
        return Number(kind, next(parts))
    if kind[:1] == (View,):
        return View(kind[1], next(parts), tuple(next(parts) for _ in range(kind[2])))
    return like(kind, [rebuilt(member, parts) for member in kind])


def runtime(value: Any) -> Any:
    """A value as variables hold it: numbers that are known are constants of LLVM."""
    if isinstance(value, tuple) and type(value) not in (Number, View, Known):
        return like(value, map(runtime, value))
    if not isinstance(value, PLAIN):
        return value
    python = {bool: types.boolean, int: types.int64, float: types.float64}
    kind = python[type(value)] if type(value) in python else from_dtype(np.dtype(type(value)))
    return Number(kind, ir.Constant(ir_type(kind), value.item() if isinstance(value, np.generic) else value))


def cast(builder: Any, x: Number, to: Any) -> Number:
    """A number as another kind."""
    of, there = x.kind, ir_type(to)
    if of == to:
        return x
    if VECTOR in (of, to) or to is types.boolean:
        raise TypeError(f"{of} does not become {to} by itself")
    signed = of is not types.boolean and getattr(of, "signed", True)
    if isinstance(of, types.Float):
        if isinstance(to, types.Float):
            change = builder.fpext if to.bitwidth > of.bitwidth else builder.fptrunc
        else:
            change = builder.fptosi if to.signed else builder.fptoui
    elif isinstance(to, types.Float):
        change = builder.sitofp if signed else builder.uitofp
    elif there.width == x.ir.type.width:
        return Number(to, x.ir)
    elif there.width < x.ir.type.width:
        change = builder.trunc
    else:
        change = builder.sext if signed else builder.zext
    return Number(to, change(x.ir, there))


def common(a: Any, b: Any) -> Any:
    """The kind in which two numbers meet: as in Numba, but signed and unsigned ones of 64 bits do not become floats."""
    if VECTOR in (a, b) or (a == b and isinstance(a, types.Float)):
        if a != b:
            raise TypeError("vectors meet vectors alone: splat the number")
        return a
    if isinstance(a, types.Float) or isinstance(b, types.Float):
        return types.float64
    signed = [kind is types.boolean or kind.signed for kind in (a, b)]
    if types.uint64 in (a, b) and any(signed):
        raise TypeError(f"{a} and {b} have no integer type in common: say which is meant")
    return types.int64 if any(signed) else types.uint64
