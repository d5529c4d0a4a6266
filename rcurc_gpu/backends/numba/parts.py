"""Functions that are compiled as parts of others alone, in a fraction of the time.

Numba optimises every function, and makes machine code of it, before it links it into those that call it, where all of that is
done once more. A part is left as it is until then.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.extending import intrinsic as numba_intrinsic

intrinsic: Any = numba_intrinsic  # what it makes is called with one argument less than it is written with


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """The code of a part: linked into others, not optimised, never run by itself."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

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


class PartCompiler(Compiler):  # type: ignore[misc]
    """Numba's own, but for where the code goes: ``njit(pipeline_class=PartCompiler)``."""

    def define_pipelines(self) -> Any:
        self.state.library = _Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


@intrinsic
def apart(typing):  # type: ignore[no-untyped-def]
    """Written at the top of a function: it is compiled once, and not into each of those that call it."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), emit
