"""Names that are imported when they are asked for, and the old names of what moved."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    # Importing `importlib.abc` took most of the time of this package's import, when nobody is there yet to take Ctrl-C.
    Loader = object

# Modules that users know by another name; what is inside a package moved with it.
_MOVED_MODULES = {
    "rcurc_gpu.experiments": "rcurc_gpu.paper",
    "rcurc_gpu.plot_result": "rcurc_gpu.plot",
    "rcurc_gpu.estimator": "rcurc_gpu.models",
}
_MOVED_NAMES = {
    "rcurc_gpu.shards.open_result": "rcurc_gpu.open_result",
    "rcurc_gpu.paper.table1.Settings": "rcurc_gpu.paper.table1.TableSettings",
}


def later(package: str, modules: Mapping[str, str], submodules: Collection[str] = ()) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    modules : mapping
        The module, relative to the package, that has each name.
    submodules : collection of str
        Modules of the package that are attributes without being imported first.
    """

    def get(name: str) -> Any:
        if name in modules:
            found = getattr(import_module(modules[name], package), name)
            vars(sys.modules[package])[name] = found  # and no more asking
            return found
        if name in submodules:
            return import_module(f".{name}", package)
        old = f"{package}.{name}"
        if old in _MOVED_NAMES:
            _warn(old, _MOVED_NAMES[old])
            module, _, new = _MOVED_NAMES[old].rpartition(".")
            return getattr(import_module(module), new)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)


class _MovedModules(Loader):
    """Imports a module by its old name: one module under two names, not two."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A specification, if that is one of the old names."""
        return ModuleSpec(fullname, self) if _new_name(fullname) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """A module of the usual kind, to begin with."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the new name in its place."""
        new = _new_name(module.__name__)
        _warn(module.__name__, new)
        sys.modules[module.__name__] = import_module(new)


def _new_name(name: str) -> str:
    found = [new + name[len(old) :] for old, new in _MOVED_MODULES.items() if name == old or name.startswith(f"{old}.")]
    return found[0] if found else ""


def serve_old_names() -> None:
    """Let the old names of modules be imported."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        # First: the usual finder would load a module of an old package a second time, from the new package's files.
        sys.meta_path.insert(0, _MovedModules())
