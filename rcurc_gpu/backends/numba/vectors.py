"""Vectors of eight float64 in registers, for the kernels that run on the CPU.

LLVM finds vectors in loops by itself, but none in short loops inside of others. These are explicit; a machine with shorter
registers takes several for each. They know ``+ - * /``, and the comparisons, which give 1.0 or 0.0.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from .expressions import Expressions, builtin
from .functions import llvm, of_float
from .values import LANES, PLACE, VECTOR, WORD, Number, View, cast, ir_type

_DOUBLE, _VECTOR = ir_type(types.float64), ir_type(VECTOR)
_BYTES = ir.IntType(8).as_pointer()


@builtin
def vectors(at: Expressions, n: Any) -> View:
    """An array (n, LANES) of zeros; its rows are lines of the cache."""
    return at.allocate(types.float64, (n, LANES), zeros=True)


def _row(at: Expressions, array: View, row: Any) -> Any:
    """Where a row of an array of shape (n, LANES) stands."""
    offset = at.builder.mul(at.integer(row), PLACE(LANES), flags=("nsw",))
    return at.builder.bitcast(at.builder.gep(array.data, [offset]), _VECTOR.as_pointer())


@builtin
def load(at: Expressions, array: View, row: Any) -> Number:
    """A row of a float64 array (n, LANES)."""
    return Number(VECTOR, at.builder.load(_row(at, array, row), align=8))


@builtin
def store(at: Expressions, array: View, row: Any, x: Number) -> None:
    """Let a row of a float64 array (n, LANES) be `x`."""
    at.builder.store(x.ir, _row(at, array, row), align=8)


def _element(at: Expressions, array: View, i: Any) -> Number:
    """An element of a contiguous array."""
    return at.load(array.dtype, at.builder.gep(array.data, [i]))


def _place(x: Number, builder: Any) -> Number:
    return cast(builder, x, types.int64)


@builtin
def places(at: Expressions, array: View, first: Any) -> tuple[Number, ...]:
    """A number for each lane: those of an int64 array (LANES,), plus `first`."""
    low = at.integer(first)
    return tuple(Number(types.int64, at.builder.add(_element(at, array, PLACE(k)).ir, low)) for k in range(LANES))


@builtin
def indices(at: Expressions, array: View, places: tuple[Number, ...]) -> tuple[Number, ...]:
    """Elements of a contiguous array of int32 or int64, a number for each lane."""
    return tuple(_place(_element(at, array, i.ir), at.builder) for i in places)


@builtin
def following(at: Expressions, array: View, first: Any, last: Any) -> tuple[Number, ...]:
    """Elements `first`, `first` + 1, ... of a contiguous array of int32 or int64, a number for each lane; `last` again
    in the place of those beyond."""
    builder, low, most, out = at.builder, at.integer(first), at.integer(last), []
    for lane in range(LANES):
        i = builder.add(low, PLACE(lane), flags=("nsw",))
        i = builder.select(builder.icmp_signed("<", i, most), i, most)
        out.append(_place(_element(at, array, i), builder))
    return tuple(out)


def _scaled(at: Expressions, places: tuple[Number, ...], scale: Any, first: Any) -> list[Any]:
    builder, by, low = at.builder, at.integer(scale), at.integer(first)
    return [builder.add(builder.mul(i.ir, by, flags=("nsw",)), low, flags=("nsw",)) for i in places]


@builtin
def gathered(at: Expressions, array: View, places: tuple[Number, ...], scale: Any, first: Any) -> Number:
    """Elements ``places * scale + first`` of a contiguous array of floats; `places` has a number for each lane."""
    out = ir.Constant(_VECTOR, ir.Undefined)
    for lane, i in enumerate(_scaled(at, places, scale, first)):
        x = cast(at.builder, _element(at, array, i), types.float64)
        out = at.builder.insert_element(out, x.ir, WORD(lane))
    return Number(VECTOR, out)


@builtin
def splat(at: Expressions, x: Any) -> Number:
    """A number in all lanes."""
    x = cast(at.builder, at.number(x), types.float64)
    if isinstance(x.ir, ir.Constant):
        return Number(VECTOR, ir.Constant(_VECTOR, [x.ir.constant] * LANES))
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = at.builder.insert_element(nothing, x.ir, WORD(0))
    return Number(VECTOR, at.builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES)))


@builtin
def where(at: Expressions, condition: Number, x: Number, y: Number) -> Number:
    """`x` where `condition` is not 0, else `y`."""
    bits = at.builder.fcmp_unordered("!=", condition.ir, ir.Constant(_VECTOR, [0.0] * LANES))
    return Number(VECTOR, at.builder.select(bits, x.ir, y.ir))


@builtin
def root(at: Expressions, x: Number) -> Number:
    """Square roots."""
    return of_float(at, "sqrt", x)


@builtin
def size(at: Expressions, x: Number) -> Number:
    """Absolute values."""
    return of_float(at, "fabs", x)


@builtin
def prefetch(at: Expressions, array: View, i: Any) -> None:
    """Ask for the line of the cache in which element `i` of a contiguous array stands."""
    place = at.builder.bitcast(at.builder.gep(array.data, [at.integer(i)]), _BYTES)
    # to read, to be kept in all levels, data
    llvm(at, "prefetch.p0", ir.VoidType(), [place, WORD(0), WORD(3), WORD(1)])


@builtin
def total(at: Expressions, x: Number) -> Number:
    """The sum of the lanes."""
    return Number(types.float64, llvm(at, f"vector.reduce.fadd.v{LANES}f64", _DOUBLE, [_DOUBLE(0.0), x.ir]))


# ---------------------------------------------------------------- as many vectors as lanes


@builtin
def rows_at(at: Expressions, array: View, places: tuple[Number, ...], stride: Any, first: Any) -> tuple[Number, ...]:
    """Vectors that begin at ``places * stride + first`` of a contiguous float64 array, one for each number of `places`."""
    builder, out = at.builder, []
    for i in _scaled(at, places, stride, first):
        out.append(builder.load(builder.bitcast(builder.gep(array.data, [i]), _VECTOR.as_pointer()), align=8))
    return tuple(Number(VECTOR, x) for x in out)


@builtin
def add_products(at: Expressions, sums: tuple[Number, ...], rows: tuple[Number, ...], x: Number) -> tuple[Number, ...]:
    """Each of `sums` plus that of `rows` times the vector `x`."""
    builder = at.builder
    return tuple(Number(VECTOR, builder.fadd(s.ir, builder.fmul(row.ir, x.ir))) for s, row in zip(sums, rows, strict=True))


@builtin
def weighted(at: Expressions, rows: tuple[Number, ...], w: Number) -> Number:
    """The sum of `rows`, each times its lane of `w`."""
    builder, terms = at.builder, []
    for lane, row in enumerate(rows):
        weight = builder.shuffle_vector(w.ir, w.ir, ir.Constant(ir.VectorType(WORD, LANES), [lane] * LANES))
        terms.append(builder.fmul(row.ir, weight))
    while len(terms) > 1:
        terms = [builder.fadd(x, y) for x, y in zip(terms[::2], terms[1::2], strict=True)]
    return Number(VECTOR, terms[0])


@builtin
def totals(at: Expressions, rows: tuple[Number, ...]) -> Number:
    """The sum of the lanes of each of `rows`, in its lane."""
    builder, terms = at.builder, [x.ir for x in rows]
    width = 1  # lanes that belong together: from (a0 a1 ..) and (b0 b1 ..) to (a01 b01 a23 b23 ..), and so on
    while len(terms) > 1:
        even = [k for at in range(0, LANES, 2 * width) for half in (0, LANES) for k in range(half + at, half + at + width)]
        left, right = (ir.Constant(ir.VectorType(WORD, LANES), [k + more for k in even]) for more in (0, width))
        terms = [
            builder.fadd(builder.shuffle_vector(x, y, left), builder.shuffle_vector(x, y, right))
            for x, y in zip(terms[::2], terms[1::2], strict=True)
        ]
        width *= 2
    return Number(VECTOR, terms[0])
