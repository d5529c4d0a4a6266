"""Expressions of kernels; see `translate`.

A value is a `Number`, a `View` of an array, a `Known` length, a tuple of values, or an object of Python that is known while
a kernel is translated: a constant, a function, a dtype. What can be computed from these alone is computed then.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import partial, reduce
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.np.numpy_support import as_dtype, from_dtype

from .values import (
    BIT,
    BYTE,
    PLACE,
    VECTOR,
    Known,
    Number,
    View,
    cast,
    common,
    flat,
    flat_types,
    kind_of,
    rebuilt,
    runtime,
)

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitXor: operator.xor, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
_FLOATS = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
_INTEGERS = {operator.add: "add", operator.sub: "sub", operator.mul: "mul"}
_BITS = {operator.xor: "xor", operator.and_: "and_", operator.or_: "or_", operator.lshift: "shl"}
_FREE = (ast.Name, ast.Constant, ast.expr_context, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop)  # may be computed in vain

_ROOM = __package__.rpartition(".")[0]  # where functions are that kernels take as they are: the rules of `plain`

BUILTINS: dict[Any, Callable[..., Any]] = {}  # functions that kernels know, by what they emit


class Part:
    """A function that kernels call: translated into each of them, once for each kinds of arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> Any:
        """Nothing can be computed with a part by itself."""
        raise TypeError(f"{self.function.__name__} is a part of kernels: `parts.entry` makes a kernel of it")


def builtin(emit: Callable[..., Any]) -> Any:
    """A function of kernels by what it emits: its first argument is who translates, the others are values."""

    def stands_for(*args: Any) -> Any:
        raise TypeError(f"{emit.__name__} is for kernels alone")

    stands_for.__name__, stands_for.__doc__ = emit.__name__, emit.__doc__
    BUILTINS[stands_for] = emit
    return stands_for


def is_plain(x: Any) -> bool:
    """Whether a value is an object of Python."""
    return type(x) is Known or not isinstance(x, tuple)


def arithmetic(builder: Any, by: Callable[..., Any], x: Any, y: Any) -> Any:
    """``x by y``"""
    if is_plain(x) and is_plain(y):
        return by(x, y)
    a, b = runtime(x), runtime(y)
    kind = common(a.kind, b.kind)
    if by is operator.truediv and isinstance(kind, types.Integer):
        kind = types.float64
    if by in _BITS and a.kind is b.kind is types.boolean:
        kind = types.boolean
    p, q = (cast(builder, v, kind).ir for v in (a, b))
    if kind is VECTOR or isinstance(kind, types.Float):
        return Number(kind, getattr(builder, _FLOATS[by])(p, q))
    if by in _INTEGERS:
        return Number(kind, getattr(builder, _INTEGERS[by])(p, q, flags=("nsw",) if kind.signed else ()))
    if by in _BITS:
        return Number(kind, getattr(builder, _BITS[by])(p, q))
    if by is operator.rshift:
        return Number(kind, (builder.ashr if kind.signed else builder.lshr)(p, q))
    if by not in (operator.floordiv, operator.mod):
        raise TypeError(f"there is no {by.__name__} of {kind}")
    if not kind.signed:
        return Number(kind, (builder.udiv if by is operator.floordiv else builder.urem)(p, q))
    rest, zero = builder.srem(p, q), ir.Constant(p.type, 0)  # LLVM rounds to 0, Python down
    below = builder.and_(builder.icmp_signed("!=", rest, zero), builder.icmp_signed("<", builder.xor(rest, q), zero))
    if by is operator.mod:
        return Number(kind, builder.select(below, builder.add(rest, q), rest))
    return Number(kind, builder.sub(builder.sdiv(p, q), builder.zext(below, p.type)))


def compared(builder: Any, sign: str, x: Any, y: Any) -> Any:
    """``x < y`` and the like: a bool of numbers, 1.0 or 0.0 in each lane of vectors."""
    if is_plain(x) and is_plain(y):
        return _COMPARED[sign](x, y)
    a, b = runtime(x), runtime(y)
    kind = common(a.kind, b.kind)
    p, q = (cast(builder, v, kind).ir for v in (a, b))
    if isinstance(kind, types.Integer):
        compare = builder.icmp_unsigned if kind == types.uint64 else builder.icmp_signed
        return Number(types.boolean, compare(sign, p, q))
    bits = (builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered)(sign, p, q)
    if kind is not VECTOR:
        return Number(types.boolean, bits)
    one, zero = (ir.Constant(p.type, [x] * p.type.count) for x in (1.0, 0.0))
    return Number(VECTOR, builder.select(bits, one, zero))


class Expressions:
    """How a function computes values. How it keeps them, and its statements, are in `translate.Body`."""

    builder: Any
    context: Any  # Numba's, of the machine
    function: Any  # LLVM's

    def value(self, node: ast.expr) -> Any:
        """The value of an expression; what computes it is emitted."""
        emit = getattr(self, f"_on_{type(node).__name__}", None)
        if emit is None:
            raise TypeError(f"kernels do not know {type(node).__name__}")
        return emit(node)

    def read(self, name: str) -> Any:
        """The value of a variable, or of a global name."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a part."""
        raise NotImplementedError

    def allocate(self, dtype: Any, shape: tuple[Any, ...], zeros: bool) -> View:
        """A new array, that begins with a line of the cache."""
        raise NotImplementedError

    def number(self, x: Any) -> Number:
        """A value that has to be a number."""
        x = runtime(x)
        if type(x) is not Number:
            raise TypeError(f"a number is wanted, not {x!r}")
        return x

    def integer(self, x: Any) -> Any:
        """A place in an array, or a count, as LLVM has it."""
        x = self.number(x)
        if isinstance(x.kind, types.Float):
            raise TypeError("places and counts are integers")
        return cast(self.builder, x, types.int64).ir

    def truth(self, x: Any) -> Any:
        """A condition: a bool if it is known, else one of LLVM's."""
        if is_plain(x):
            return bool(x)
        return self.number(x).ir if x.kind is types.boolean else compared(self.builder, "!=", x, 0).ir

    # ---------------------------------------------------------------- nodes

    def _on_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _on_Name(self, node: ast.Name) -> Any:
        return self.read(node.id)

    def _on_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.several(node.elts))

    def several(self, nodes: list[ast.expr]) -> list[Any]:
        """The values of arguments, or of members of a tuple."""
        out: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                out += self.value(node.value)
            else:
                out.append(self.value(node))
        return out

    def _on_BinOp(self, node: ast.BinOp) -> Any:
        return arithmetic(self.builder, OPERATORS[type(node.op)], self.value(node.left), self.value(node.right))

    def _on_UnaryOp(self, node: ast.UnaryOp) -> Any:
        x = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            x = self.truth(x)
            return not x if isinstance(x, bool) else Number(types.boolean, self.builder.not_(x))
        if not isinstance(node.op, ast.USub):
            raise TypeError(f"kernels do not know {type(node.op).__name__}")
        if is_plain(x):
            return -x
        if x.kind is VECTOR or isinstance(x.kind, types.Float):
            return Number(x.kind, self.builder.fneg(x.ir))
        return arithmetic(self.builder, operator.sub, 0, x)

    def _on_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1 or type(node.ops[0]) not in _SIGNS:
            raise TypeError("kernels compare two numbers")
        return compared(self.builder, _SIGNS[type(node.ops[0])], self.value(node.left), self.value(node.comparators[0]))

    def _on_BoolOp(self, node: ast.BoolOp) -> Any:
        return self.decided(isinstance(node.op, ast.Or), node.values)

    def decided(self, ends: bool, nodes: list[ast.expr]) -> Any:
        """Conditions one after the other, until one of them is `ends`."""
        x, rest = self.truth(self.value(nodes[0])), nodes[1:]
        if isinstance(x, bool):
            return self.decided(ends, rest) if rest and x is not ends else x
        if not rest:
            return Number(types.boolean, x)
        at_once, others = (lambda: ends), (lambda: self.decided(ends, rest))
        yes, no = (at_once, others) if ends else (others, at_once)
        return self.choose(x, yes, no, _is_free(rest))

    def _on_IfExp(self, node: ast.IfExp) -> Any:
        test = self.truth(self.value(node.test))
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse)
        free = _is_free([node.body, node.orelse])
        return self.choose(test, lambda: self.value(node.body), lambda: self.value(node.orelse), free)

    def choose(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any], free: bool) -> Any:
        """One of two values: the other is not computed, but where both are `free`."""
        builder, values, ends = self.builder, [], []
        starts = [builder.block] * 2 if free else [self.function.append_basic_block(name) for name in ("if", "else")]
        if not free:
            builder.cbranch(test, *starts)
        for start, make in zip(starts, (yes, no), strict=True):
            builder.position_at_end(start)
            values.append(runtime(make()))
            ends.append(builder.block)
        kinds = [kind_of(x) for x in values]
        kind = kinds[0] if kinds[0] == kinds[1] else common(*kinds)
        parts = []
        for x, end in zip(values, ends, strict=True):
            builder.position_at_end(end)
            parts.append(flat(x if kind_of(x) == kind else cast(builder, x, kind)))
        if free:
            return rebuilt(kind, iter([builder.select(test, a, b) for a, b in zip(*parts, strict=True)]))
        after = self.function.append_basic_block("one")
        for end in ends:
            builder.position_at_end(end)
            builder.branch(after)
        builder.position_at_end(after)
        out = []
        for pair, of in zip(zip(*parts, strict=True), flat_types(kind), strict=True):
            out.append(builder.phi(of))
            for x, end in zip(pair, ends, strict=True):
                out[-1].add_incoming(x, end)
        return rebuilt(kind, iter(out))

    def _on_Attribute(self, node: ast.Attribute) -> Any:
        x = self.value(node.value)
        if type(x) is not View:
            return getattr(x, node.attr)
        if node.attr == "shape":
            return tuple(Number(types.int64, n) for n in x.shape)
        if node.attr == "dtype":
            return as_dtype(x.dtype)
        if node.attr == "ravel":
            return partial(View, x.dtype, x.data, (reduce(self.builder.mul, x.shape),))
        raise TypeError(f"kernels do not know {node.attr!r} of an array")

    def _on_Call(self, node: ast.Call) -> Any:
        what, args = self.value(node.func), self.several(node.args)
        named = {str(x.arg): self.value(x.value) for x in node.keywords}
        if isinstance(what, Part):
            return self.call(what.function, tuple(args))
        if what in BUILTINS:
            return BUILTINS[what](self, *args, **named)
        if isinstance(what, FunctionType) and what.__module__.startswith(_ROOM):
            return self.call(what, tuple(args))
        if all(map(is_plain, args)):
            return what(*args, **named)
        if isinstance(what, type) and issubclass(what, np.generic):
            return cast(self.builder, self.number(*args), from_dtype(np.dtype(what)))
        raise TypeError(f"kernels do not know {what}")

    # ---------------------------------------------------------------- arrays

    def _on_Subscript(self, node: ast.Subscript) -> Any:
        x = self.value(node.value)
        if type(x) is View:
            part = self.part_of(x, node)
            return part if part.shape else self.load(part.dtype, part.data)
        at = node.slice
        if isinstance(at, ast.Slice):
            return x[slice(*(None if edge is None else self.value(edge) for edge in (at.lower, at.upper, at.step)))]
        return x[self.value(at)]

    def element(self, node: ast.expr) -> tuple[Any, Any]:
        """The type and the address of an element of an array."""
        if not isinstance(node, ast.Subscript):
            raise TypeError("kernels assign to names and to elements of arrays")
        part = self.part_of(self.value(node.value), node)
        if part.shape:
            raise TypeError("kernels assign to arrays element by element")
        return part.dtype, part.data

    def part_of(self, view: View, node: ast.Subscript) -> View:
        """An element or a part of an array; of its indices only the last may be a slice."""
        times, plus = (partial(emit, flags=("nsw",)) for emit in (self.builder.mul, self.builder.add))
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        offset, shape = PLACE(0), view.shape
        for index in indices:
            if len(shape) < len(view.shape) - len(indices) + 1:
                raise TypeError("only the last index may be a slice")
            part = isinstance(index, ast.Slice)
            lower, upper = (index.lower, index.upper) if isinstance(index, ast.Slice) else (index, None)
            first = 0 if lower is None else self.value(lower)
            if is_plain(first) and first < 0:
                raise TypeError("places in arrays are counted from their beginning")
            start, (length, *rest) = self.integer(first), shape
            offset = plus(offset, reduce(times, rest, start))
            shape = tuple(rest)
            if part:
                end = length if upper is None else self.integer(self.value(upper))
                shape = (self.builder.sub(end, start, flags=("nsw",)), *rest)
        return View(view.dtype, self.builder.gep(view.data, [offset], inbounds=True), shape)

    def load(self, dtype: Any, place: Any) -> Number:
        """What stands at an address."""
        x = self.builder.load(place)
        return Number(dtype, self.builder.trunc(x, BIT) if dtype is types.boolean else x)

    def store(self, dtype: Any, place: Any, value: Any) -> None:
        """Let a number stand at an address."""
        if dtype is types.boolean:
            self.builder.store(self.builder.zext(self.truth(self.number(value)), BYTE), place)
        else:
            self.builder.store(cast(self.builder, self.number(value), dtype).ir, place)


def _is_free(nodes: list[ast.expr]) -> bool:
    return all(isinstance(x, _FREE) for node in nodes for x in ast.walk(node))
