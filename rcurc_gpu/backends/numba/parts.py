"""Functions that are compiled as parts of others alone, in a fraction of the time.

Numba optimises every function, and makes machine code of it, before it links it into those that call it, where all of
that is done once more. A part is left as it is until then. This reaches into Numba's compiler: a version in which these
names are gone can do without (``pipeline_class`` in `entries`).
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.extending import intrinsic as numba_intrinsic

intrinsic: Any = numba_intrinsic  # what it makes is called with one argument less than it is written with

# Versions of Numba with whose insides the compilers below were tried. Others compile in the usual way, in twice the time.
_TRIED = ((0, 68),)

# What kernels have no use for: closures, array expressions, generated loops over tuples.
_NEEDLESS = {
    "with_lifting",
    "inline_closure_likes",
    "make_function_op_code_to_jit_function",
    "find_literally",
    "literal_unroll",
    "LiteralPropagation",
    "inline_overloads",
    "nopython_rewrites",
    "dump_parfor_diagnostics",
}


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel with all its parts; it is optimised as a whole, and not each function before that."""

    def _optimize_final_module(self) -> None:
        # once, and not a cheap round before: that is for reference counts, of which kernels have few
        passes, options = self._codegen._module_pass_manager()
        passes.run(self._final_module, options)

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout


class _Part(_Whole):
    """The code of a part: linked into others, not optimised, never run by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # there is none, as of any function without a wrapper for Python

    @property
    def codegen(self) -> _Part:
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Nothing: what Numba would set stands in machine code, of which there is none."""


class _Flags(Flags):  # type: ignore[misc]
    """Options of a compilation. Numba compares them at every call that it looks at: here only those that were set."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._values)))

    def __eq__(self, other: Any) -> bool:
        return type(other) is _Flags and (other is self or bool(self._values == other._values))


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's own but for where the code goes, and without steps that kernels do not need: ``njit(pipeline_class=...)``."""

    _library: Any = _Whole

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.flags = _Flags(self.state.flags)

    def define_pipelines(self) -> Any:
        """The steps, and the library for what they make."""
        self.state.library = self._library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [step for step in pipeline.passes if step[0].name() not in _NEEDLESS]
        return pipelines


class PartCompiler(KernelCompiler):
    """For functions that are called by kernels alone."""

    _library = _Part


def own_compilers() -> tuple[Any, Any]:
    """For kernels and for their parts: those of this module, or Numba's own twice where these were never tried."""
    tried = tuple(numba.version_info.short) in _TRIED
    return (KernelCompiler, PartCompiler) if tried else (Compiler, Compiler)


def _attributes(*names: str) -> Any:
    """What gives the function in which it is called these attributes of LLVM."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for name in names:
            builder.function.attributes.add(name)
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def not_inlined(typing):  # type: ignore[no-untyped-def]
    """Written at the top of a function: it is compiled once, and not into each of those that call it."""
    return _attributes("noinline")


@intrinsic
def compact(typing):  # type: ignore[no-untyped-def]
    """`not_inlined`, and loops are left as they are: they are short, or seldom run, or made of vectors already."""
    return _attributes("noinline", "optsize")
