"""Kernels, and the parts that they are made of.

A kernel is translated (`translate`), not compiled by Numba from its bytecode, which takes ten times as long. Numba does the
rest: it looks at the types of arguments, has LLVM make machine code, keeps it, and calls it.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import njit
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.extending import intrinsic

from . import functions  # noqa: F401  what kernels may call has to be known before the first one is translated
from .caching import Kept, can_cache
from .expressions import Part
from .translate import Translation
from .values import Known, Number, View, flat, kind_of

CACHE = can_cache()
# Sums may be reordered and products fused; NaN and infinity keep their meaning.
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}, "no_cfunc_wrapper": True}
_RESULTS = {"int": types.int64, "float": types.float64, None: types.none}  # of kernels, by their annotations

# Versions of Numba whose way of optimising is known; with others it takes a seventh more time.
_TRIED = ((0, 68),)


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """A kernel is optimised once, as a whole: not each function before, nor in a round that removes reference counts."""

    def _optimize_final_module(self) -> None:
        passes, options = self._codegen._module_pass_manager()
        passes.run(self._final_module, options)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout


class _KernelCompiler(Compiler):  # type: ignore[misc]
    def define_pipelines(self) -> Any:
        """The usual steps, and the library for what they make."""
        self.state.library = _Library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        return super().define_pipelines()


_COMPILER = _KernelCompiler if tuple(numba.version_info.short) in _TRIED else Compiler

# What Numba sees of a kernel
_CALLER = """
def emitted(typing, {args}):
    return result({args}), emit

def caller(body):
    def {name}({args}):
        return body({args})
    return {name}
"""


def part(function: Callable[..., Any]) -> Any:
    """A function that kernels call."""
    return Part(function)


def exact_kernel(function: Callable[..., Any]) -> Any:
    """A kernel in which nothing is reordered: what it compares decides, and plain code has to decide the same."""
    return kernel(function, fastmath=False)


def kernel(function: Callable[..., Any], **options: Any) -> Any:
    """A function that Python calls. It returns the number that its annotation says, or nothing."""
    code, result = function.__code__, _RESULTS[function.__annotations__.get("return")]

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        values = tuple(_given(context, builder, kind, x) for kind, x in zip(sig.args, args, strict=True))
        made = Translation(context, builder.module).made(function, kind_of(values))
        if made.result != (None if result is types.none else result):
            raise TypeError(f"{function.__name__} returns {made.result}, and says {result}")
        out = builder.call(made.ir, flat(values))
        if made.fails:
            with builder.if_then(builder.extract_value(out, 0), likely=False):
                context.call_conv.return_user_exc(builder, MemoryError, ("no memory is left for a compiled kernel",))
        return context.get_dummy_value() if result is types.none else builder.extract_value(out, int(made.fails))

    there: dict[str, Any] = {"result": result, "emit": emit}
    args = ", ".join(code.co_varnames[: code.co_argcount])
    exec(_CALLER.format(name=function.__name__, args=args), there)
    caller = there["caller"](intrinsic(there["emitted"]))
    caller.__module__, caller.__doc__ = function.__module__, function.__doc__
    made = njit(pipeline_class=_COMPILER, **(_OPTIONS | options))(caller)
    if CACHE:
        made._cache = Kept(function)
    return made


def entry(of: Part) -> Any:
    """A part of kernels as a kernel by itself."""
    return kernel(of.function)


def _given(context: Any, builder: Any, kind: Any, x: Any) -> Any:
    """An argument of a kernel as a value."""
    if isinstance(kind, types.Array):
        if kind.layout != "C":
            raise TypeError("kernels take contiguous arrays")
        array = context.make_array(kind)(context, builder, x)
        return View(kind.dtype, array.data, tuple(builder.extract_value(array.shape, k) for k in range(kind.ndim)))
    if isinstance(kind, types.UniTuple) and kind.dtype is types.int64:
        return Known(kind.count)
    if isinstance(kind, types.BaseTuple):
        of: Any = kind  # its types, and its class if it has names
        members = [_given(context, builder, each, builder.extract_value(x, k)) for k, each in enumerate(of)]
        return of.instance_class(*members) if isinstance(kind, types.BaseNamedTuple) else tuple(members)
    return Number(kind, x)
