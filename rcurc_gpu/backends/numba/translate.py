"""From the text of a kernel to LLVM's, in a tenth of the time that Numba's own compiler takes.

Kernels and their parts are loops over numbers, vectors (`vectors`) and contiguous arrays. That is little of Python:

* a variable keeps the type of its first value, and each value of a condition is of one type;
* places in arrays are not negative, and nobody looks whether they are inside;
* what `np.empty` and `np.zeros` make lives until their function ends, is never made in a loop and never returned;
* functions that are called are parts (`parts.part`), builtins (`functions`, `vectors`), or known with all their arguments.

Anything else is refused with its line. What LLVM is given is optimised, made into machine code and kept by Numba, to which a
kernel is one instruction (`parts.kernel`).
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types

from .caching import texts
from .expressions import OPERATORS, Expressions, arithmetic
from .values import BIT, LANES, PLACE, Number, View, cast, common, flat, flat_types, kind_of, rebuilt, runtime, stored_type

_LINE = 8 * LANES  # bytes of a line of the cache
# Bytes between an array that a kernel makes and any other. Loops in vectors ask whether arrays may overlap, and those that
# lie nearer than what one turn takes (256 bytes) are summed up one by one: the same call gave other bits in another thread.
_APART = 512
if __file__ not in texts():  # as in programs that are packed into one file
    raise ImportError("kernels for the CPU are made from their text, and only compiled modules are there")


class UntranslatedError(Exception):
    """A kernel, or a part of one, has something that is not known here."""


class Made(NamedTuple):
    """A translated function."""

    ir: Any
    result: Any  # the kind of what it returns, or None
    fails: bool  # whether it can run out of memory: then it returns first whether it did


class Translation:
    """The functions of a kernel, in one module of LLVM."""

    def __init__(self, context: Any, module: Any) -> None:
        self.context, self.module = context, module
        self._made: dict[Any, Made] = {}

    def made(self, function: Callable[..., Any], kinds: tuple[Any, ...]) -> Made:
        """`function` for arguments of these kinds."""
        key = function, kinds
        if key not in self._made:
            self._made[key] = Body(self, function, kinds).made()
        return self._made[key]


@cache
def _functions(path: str) -> dict[int, ast.FunctionDef]:
    """The functions of a file by their first lines."""
    text = texts().get(path) or Path(path).read_bytes()
    found = [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.FunctionDef)]
    return {min([x.lineno, *(decorator.lineno for decorator in x.decorator_list)]): x for x in found}


class Body(Expressions):
    """One function, while it is translated for arguments of these kinds."""

    def __init__(self, translation: Translation, function: Callable[..., Any], kinds: tuple[Any, ...]) -> None:
        self.translation, self.context = translation, translation.context
        self.path, self.globals = function.__code__.co_filename, function.__globals__
        self.tree = _functions(self.path)[function.__code__.co_firstlineno]
        kind = ir.FunctionType(ir.VoidType(), [x for k in kinds for x in flat_types(k)])
        self.function = ir.Function(translation.module, kind, translation.module.get_unique_name(function.__name__))
        self.function.linkage = "internal"
        self.top, self.start, self.exit = map(self.new, ("variables", "start", "exit"))
        self.builder = ir.IRBuilder(self.start)
        self.variables: dict[str, tuple[Any, list[Any]]] = {}  # kinds, and places of what `flat` gives
        self.loops: list[tuple[Any, Any]] = []  # where `continue` and `break` go
        self.memory: list[Any] = []  # places of addresses of arrays
        self.failed: Any = None  # the place where it stands whether there was no memory
        self.result: Any = None  # the variable that is returned
        args = iter(self.function.args)
        for arg, k in zip(self.tree.args.args, kinds, strict=True):
            self.assign(arg.arg, rebuilt(k, args))

    def made(self) -> Made:
        """Translate it."""
        self.block(self.tree.body)
        self.go(self.exit)
        builder = self.builder
        builder.position_at_end(self.exit)
        for place in self.memory:
            self.context.nrt.free(builder, builder.load(place))
        kind, places = (None, []) if self.result is None else self.result
        out = [builder.load(place) for place in ([] if self.failed is None else [self.failed]) + places]
        if out:
            of = ir.LiteralStructType([x.type for x in out])
            # known only now; nobody has called it yet
            self.function.ftype.return_type = of
            self.function.return_value = ir.ReturnValue(self.function, of)
            builder.ret(cgutils.make_anonymous_struct(builder, out, of))
        else:
            builder.ret_void()
        ir.IRBuilder(self.top).branch(self.start)
        return Made(self.function, kind, self.failed is not None)

    def new(self, name: str) -> Any:
        """A block that comes later."""
        return self.function.append_basic_block(name)

    def go(self, block: Any) -> None:
        """Go on there, if it does not go on elsewhere."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    # ---------------------------------------------------------------- variables

    def room(self, kind: ir.Type, first: Any = None) -> Any:
        """A place for a number, from the beginning of the function to its end."""
        builder = ir.IRBuilder(self.top)
        place = builder.alloca(kind)
        if first is not None:
            builder.store(first, place)
        return place

    def variable(self, value: Any) -> tuple[Any, list[Any]]:
        """Room for values of the kind of this one."""
        kind = kind_of(value)
        return kind, [self.room(x) for x in flat_types(kind)]

    def write(self, variable: tuple[Any, list[Any]], value: Any) -> None:
        """Let a variable have a value; numbers become wider, but floats no integers."""
        kind, places = variable
        if type(value) is Number and value.kind != kind and not isinstance(kind, tuple) and common(value.kind, kind) == kind:
            value = cast(self.builder, value, kind)
        if kind_of(value) != kind:
            raise TypeError(f"a variable of type {kind} cannot become one of type {kind_of(value)}")
        for x, place in zip(flat(value), places, strict=True):
            self.builder.store(x, place)

    def read(self, name: str) -> Any:
        """The value of a variable, or of a global name."""
        if name in self.variables:
            kind, places = self.variables[name]
            return rebuilt(kind, (self.builder.load(x) for x in places))
        return self.globals[name] if name in self.globals else getattr(builtins, name)

    # ---------------------------------------------------------------- statements

    def block(self, statements: list[ast.stmt]) -> None:
        """Statements one after the other, as far as they can be reached."""
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            try:
                emit = getattr(self, f"_on_{type(statement).__name__}", None)
                if emit is None or (getattr(statement, "orelse", None) and not isinstance(statement, ast.If)):
                    raise TypeError(f"kernels do not know {type(statement).__name__}")
                emit(statement)
            except UntranslatedError:
                raise
            except Exception as error:
                raise UntranslatedError(f"{self.path}:{statement.lineno}: {error!r}") from error

    def _on_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # no docstring
            self.value(node.value)

    def _on_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _on_AugAssign(self, node: ast.AugAssign) -> None:
        change = partial(arithmetic, self.builder, OPERATORS[type(node.op)])
        if isinstance(node.target, ast.Name):
            self.assign(node.target, change(self.read(node.target.id), self.value(node.value)))
        else:
            dtype, place = self.element(node.target)
            self.store(dtype, place, change(self.load(dtype, place), self.value(node.value)))

    def assign(self, target: ast.expr | str, value: Any) -> None:
        """``target = value``"""
        if isinstance(target, ast.Tuple):
            n = len(target.elts)
            if type(value) is View:
                value = [self.load(value.dtype, self.builder.gep(value.data, [PLACE(k)])) for k in range(n)]
            for each, x in zip(target.elts, value, strict=True):
                self.assign(each, x)
        elif isinstance(target, (str, ast.Name)):
            name, value = target if isinstance(target, str) else target.id, runtime(value)
            if name not in self.variables:
                self.variables[name] = self.variable(value)
            self.write(self.variables[name], value)
        else:
            self.store(*self.element(target), value)

    def _on_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            value = runtime(self.value(node.value))
            self.result = self.variable(value) if self.result is None else self.result
            self.write(self.result, value)
        self.builder.branch(self.exit)

    def _on_If(self, node: ast.If) -> None:
        test = self.truth(self.value(node.test))
        if isinstance(test, bool):
            self.block(node.body if test else node.orelse)
            return
        yes, no, end = self.new("then"), self.new("else"), self.new("end")
        self.builder.cbranch(test, yes, no)
        for start, statements in ((yes, node.body), (no, node.orelse)):
            self.builder.position_at_end(start)
            self.block(statements)
            self.go(end)
        self.builder.position_at_end(end)

    def _on_While(self, node: ast.While) -> None:
        head = self.new("while")
        self.builder.branch(head)
        self.builder.position_at_end(head)
        test = self.truth(self.value(node.test))
        with self.loop(BIT(test) if isinstance(test, bool) else test, head):
            self.block(node.body)
            self.go(head)

    def _on_For(self, node: ast.For) -> None:
        builder, over = self.builder, node.iter
        view, bounds = None, []
        if isinstance(over, ast.Call) and self.value(over.func) is range:
            bounds = self.several(over.args)
        else:
            view = self.value(over)
            bounds = [Number(types.int64, view.shape[0])]
        start, stop, step = ((0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1))[:3]
        if type(step) is not int or step == 0:
            raise TypeError("the step of a range has to be known to the compiler")
        last, at, head, after = self.integer(stop), self.room(PLACE), self.new("for"), self.new("next")
        builder.store(self.integer(start), at)
        builder.branch(head)
        builder.position_at_end(head)
        i = builder.load(at)
        with self.loop(builder.icmp_signed("<" if step > 0 else ">", i, last), after):
            here = Number(types.int64, i)
            self.assign(node.target, here if view is None else self.load(view.dtype, builder.gep(view.data, [i])))
            self.block(node.body)
            self.go(after)
            builder.position_at_end(after)
            builder.store(builder.add(i, PLACE(step), flags=("nsw",)), at)
            builder.branch(head)

    @contextmanager
    def loop(self, test: Any, again: Any) -> Iterator[None]:
        """What happens inside of a loop while `test` holds; `continue` goes to `again`."""
        body, end = self.new("body"), self.new("end")
        self.builder.cbranch(test, body, end)
        self.builder.position_at_end(body)
        self.loops.append((again, end))
        yield
        self.loops.pop()
        self.builder.position_at_end(end)

    def _on_Continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.loops[-1][0])

    def _on_Break(self, node: ast.Break) -> None:
        self.builder.branch(self.loops[-1][1])

    # ---------------------------------------------------------------- calls and memory

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a part."""
        args = runtime(args)
        made = self.translation.made(function, kind_of(args))
        out = self.builder.call(made.ir, flat(args))
        if made.fails:
            self.fail_if(self.builder.extract_value(out, 0))
        if made.result is None:
            return None
        found = [self.builder.extract_value(out, made.fails + k) for k in range(len(flat_types(made.result)))]
        return rebuilt(made.result, iter(found))

    def allocate(self, dtype: Any, shape: tuple[Any, ...], zeros: bool) -> View:
        """A new array, that begins with a line of the cache."""
        if self.loops:
            raise TypeError("arrays are made before loops, not in them")
        builder, lengths = self.builder, [self.integer(n) for n in shape]
        size = reduce(partial(builder.mul, flags=("nsw",)), lengths, PLACE(dtype.bitwidth // 8))
        data = self.context.nrt.allocate_unchecked(builder, builder.add(size, PLACE(_LINE + 2 * _APART), flags=("nsw",)))
        nothing = ir.Constant(data.type, None)
        self.memory.append(self.room(data.type, nothing))
        builder.store(data, self.memory[-1])
        self.fail_if(builder.icmp_unsigned("==", data, nothing))
        number = builder.add(builder.ptrtoint(data, PLACE), PLACE(_APART + _LINE - 1))
        data = builder.inttoptr(builder.and_(number, PLACE(-_LINE)), data.type)
        if zeros:
            cgutils.memset(builder, data, size, 0)
        return View(dtype, builder.bitcast(data, stored_type(dtype).as_pointer()), tuple(lengths))

    def fail_if(self, condition: Any) -> None:
        """Leave the function, and those that called it, where there is no more memory."""
        if self.failed is None:
            self.failed = self.room(BIT, BIT(0))
        bad, good = self.new("bad"), self.new("good")
        self.builder.cbranch(condition, bad, good)
        self.builder.position_at_end(bad)
        self.builder.store(BIT(1), self.failed)
        self.builder.branch(self.exit)
        self.builder.position_at_end(good)
