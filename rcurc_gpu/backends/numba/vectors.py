"""Vectors of eight float64 in registers, for the kernels that Numba compiles.

Numba leaves it to LLVM to find vectors in loops, and LLVM finds none in short loops inside of others. These are explicit; a
machine with shorter registers takes several for each. They know ``+ - * /``, and ``< <= ==``, which give 1.0 or 0.0.
"""

# Numba reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import lower_builtin, register_model

LANES = 8  # float64 in a register of AVX-512, and in a line of the cache; fewer would leave half of one empty
intrinsic: Any = numba_intrinsic  # what it makes is called with one argument less than it is written with
_DOUBLE, _WORD = ir.DoubleType(), ir.IntType(32)
_VECTOR = ir.VectorType(_DOUBLE, LANES)
_BYTES = ir.IntType(8).as_pointer()
_FLAGS = ("reassoc", "contract", "nsz")  # as for the rest of the kernels


class _VectorType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Vector")


VECTOR = _VectorType()


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _constant(x: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [x] * LANES)


def _compare(sign: str) -> Callable[..., Any]:
    def emit(builder, x, y):
        return builder.select(builder.fcmp_ordered(sign, x, y), _constant(1.0), _constant(0.0))

    return emit


def _arithmetic(name: str) -> Callable[..., Any]:
    def emit(builder, x, y):
        return getattr(builder, name)(x, y, flags=_FLAGS)

    return emit


def _define(symbol: Callable[..., Any], emit: Callable[..., Any]) -> None:
    """Let Numba know `symbol` of two vectors."""
    infer_global(symbol)(type("_Vectors", (ConcreteTemplate,), {"cases": [signature(VECTOR, VECTOR, VECTOR)]}))

    @lower_builtin(symbol, VECTOR, VECTOR)
    def _lower(context, builder, sig, args):
        return emit(builder, *args)


_define(operator.add, _arithmetic("fadd"))
_define(operator.sub, _arithmetic("fsub"))
_define(operator.mul, _arithmetic("fmul"))
_define(operator.truediv, _arithmetic("fdiv"))
_define(operator.lt, _compare("<"))
_define(operator.le, _compare("<="))
_define(operator.eq, _compare("=="))


def _data(context, builder, kind, array):
    """Where the elements of an array begin."""
    return context.data_model_manager[kind].get(builder, array, "data")


def _pointer(context, builder, kind, array, row):
    """Where a row of a contiguous array of shape (n, LANES) stands."""
    data = _data(context, builder, kind, array)
    offset = builder.mul(row, ir.Constant(row.type, LANES))
    return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())


@intrinsic
def load(typing, array, row):
    """A row of a float64 array (n, LANES)."""

    def emit(context, builder, sig, args):
        return builder.load(_pointer(context, builder, sig.args[0], *args), align=8)

    return VECTOR(array, types.intp), emit


@intrinsic
def store(typing, array, row, x):
    """Let a row of a float64 array (n, LANES) be `x`."""

    def emit(context, builder, sig, args):
        builder.store(args[2], _pointer(context, builder, sig.args[0], *args[:2]), align=8)

    return types.void(array, types.intp, VECTOR), emit


def _element(context, builder, kind, array, i):
    """An element of a contiguous array."""
    return builder.load(builder.gep(_data(context, builder, kind, array), [i]))


@intrinsic
def places(typing, array, first):
    """A number for each lane: those of an int64 array (LANES,), plus `first`."""

    def emit(context, builder, sig, args):
        low = [_element(context, builder, sig.args[0], args[0], context.get_constant(types.intp, k)) for k in range(LANES)]
        return context.make_tuple(builder, sig.return_type, [builder.add(x, args[1]) for x in low])

    return types.UniTuple(types.int64, LANES)(array, types.intp), emit


@intrinsic
def indices(typing, array, at):
    """Elements of a contiguous array of int32 or int64, a number for each lane."""

    def emit(context, builder, sig, args):
        out = []
        for lane in range(LANES):
            x = _element(context, builder, sig.args[0], args[0], builder.extract_value(args[1], lane))
            out.append(context.cast(builder, x, sig.args[0].dtype, types.int64))
        return context.make_tuple(builder, sig.return_type, out)

    return types.UniTuple(types.int64, LANES)(array, at), emit


@intrinsic
def following(typing, array, first, last):
    """Elements `first`, `first` + 1, ... of a contiguous array of int32 or int64, a number for each lane; `last` again
    in the place of those beyond."""

    def emit(context, builder, sig, args):
        out = []
        for lane in range(LANES):
            i = builder.add(args[1], context.get_constant(types.intp, lane))
            i = builder.select(builder.icmp_signed("<", i, args[2]), i, args[2])
            x = _element(context, builder, sig.args[0], args[0], i)
            out.append(context.cast(builder, x, sig.args[0].dtype, types.int64))
        return context.make_tuple(builder, sig.return_type, out)

    return types.UniTuple(types.int64, LANES)(array, types.intp, types.intp), emit


@intrinsic
def gathered(typing, array, at, scale, first):
    """Elements ``at * scale + first`` of a contiguous array of floats; `at` has a number for each lane."""

    def emit(context, builder, sig, args):
        out = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(LANES):
            i = builder.add(builder.mul(builder.extract_value(args[1], lane), args[2]), args[3])
            x = _element(context, builder, sig.args[0], args[0], i)
            x = context.cast(builder, x, sig.args[0].dtype, types.float64)
            out = builder.insert_element(out, x, _WORD(lane))
        return out

    return VECTOR(array, at, types.intp, types.intp), emit


@intrinsic
def splat(typing, x):
    """A number in all lanes."""

    def emit(context, builder, sig, args):
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(nothing, args[0], _WORD(0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_WORD, LANES), [0] * LANES))

    return VECTOR(types.float64), emit


@intrinsic
def where(typing, condition, x, y):
    """`x` where `condition` is not 0, else `y`."""

    def emit(context, builder, sig, args):
        return builder.select(builder.fcmp_unordered("!=", args[0], _constant(0.0)), args[1], args[2])

    return VECTOR(VECTOR, VECTOR, VECTOR), emit


def _llvm(builder, name, result, args, **options):
    """Call LLVM's own function `name` for vectors."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f64"), args, **options)


@intrinsic
def root(typing, x):
    """Square roots."""
    return VECTOR(VECTOR), lambda context, builder, sig, args: _llvm(builder, "sqrt", _VECTOR, args)


@intrinsic
def size(typing, x):
    """Absolute values."""
    return VECTOR(VECTOR), lambda context, builder, sig, args: _llvm(builder, "fabs", _VECTOR, args)


@intrinsic
def prefetch(typing, array, i):
    """Ask for the line of the cache in which element `i` of a contiguous array stands."""

    def emit(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        place = builder.bitcast(builder.gep(data, [args[1]]), _BYTES)
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, _WORD, _WORD, _WORD])
        # to read, to be kept in all levels, data
        builder.call(get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), [place, _WORD(0), _WORD(3), _WORD(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@intrinsic
def total(typing, x):
    """The sum of the lanes."""

    def emit(context, builder, sig, args):
        return _llvm(builder, "vector.reduce.fadd", _DOUBLE, [_DOUBLE(0.0), *args], fastmath=_FLAGS)

    return types.float64(VECTOR), emit


# ---------------------------------------------------------------- as many vectors as lanes


_ROWS = types.UniTuple(VECTOR, LANES)


@intrinsic
def rows_at(typing, array, at, stride, first):
    """Vectors that begin at ``at * stride + first`` of a contiguous float64 array; `at` has a number for each of them."""

    def emit(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        out = []
        for lane in range(LANES):
            i = builder.add(builder.mul(builder.extract_value(args[1], lane), args[2]), args[3])
            out.append(builder.load(builder.bitcast(builder.gep(data, [i]), _VECTOR.as_pointer()), align=8))
        return context.make_tuple(builder, sig.return_type, out)

    return _ROWS(array, at, types.intp, types.intp), emit


@intrinsic
def add_products(typing, sums, rows, x):
    """Each of `sums` plus that of `rows` times the vector `x`."""

    def emit(context, builder, sig, args):
        out = []
        for lane in range(LANES):
            product = builder.fmul(builder.extract_value(args[1], lane), args[2], flags=_FLAGS)
            out.append(builder.fadd(builder.extract_value(args[0], lane), product, flags=_FLAGS))
        return context.make_tuple(builder, sig.return_type, out)

    return _ROWS(_ROWS, _ROWS, VECTOR), emit


@intrinsic
def weighted(typing, rows, w):
    """The sum of `rows`, each times its lane of `w`."""

    def emit(context, builder, sig, args):
        terms = []
        for lane in range(LANES):
            weight = builder.shuffle_vector(args[1], args[1], ir.Constant(ir.VectorType(_WORD, LANES), [lane] * LANES))
            terms.append(builder.fmul(builder.extract_value(args[0], lane), weight, flags=_FLAGS))
        while len(terms) > 1:
            terms = [builder.fadd(x, y, flags=_FLAGS) for x, y in zip(terms[::2], terms[1::2], strict=True)]
        return terms[0]

    return VECTOR(_ROWS, VECTOR), emit


@intrinsic
def totals(typing, rows):
    """The sum of the lanes of each of `rows`, in its lane."""

    def emit(context, builder, sig, args):
        terms = [builder.extract_value(args[0], lane) for lane in range(LANES)]
        width = 1  # lanes that belong together: from (a0 a1 ..) and (b0 b1 ..) to (a01 b01 a23 b23 ..), and so on
        while len(terms) > 1:
            even = [
                k for at in range(0, LANES, 2 * width) for half in (0, LANES) for k in range(half + at, half + at + width)
            ]
            left, right = (ir.Constant(ir.VectorType(_WORD, LANES), [k + more for k in even]) for more in (0, width))
            terms = [
                builder.fadd(builder.shuffle_vector(x, y, left), builder.shuffle_vector(x, y, right), flags=_FLAGS)
                for x, y in zip(terms[::2], terms[1::2], strict=True)
            ]
            width *= 2
        return terms[0]

    return VECTOR(_ROWS), emit
