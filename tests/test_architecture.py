"""The plan of the house: which room may use which, and what each shows to the others. Read from the syntax trees alone."""

import ast
import functools
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from conftest import CUPY_FILES

import rcurc_gpu as rg

ROOT = Path(__file__).parents[1] / "rcurc_gpu"
PACKAGE = ROOT.name

# A room may import from itself, from these modules, and from the rooms that stand before it.
FOR_ALL = {"_lazy", "_version", "bars", "errors", "options", "files", "progress", "summary"}
_LAYERS = ["backends", "samples", "extend", "core", "noise", "judge", "result"]
MAY_IMPORT = {room: set(_LAYERS[:k]) for k, room in enumerate(_LAYERS)}
MAY_IMPORT["io"] = set(_LAYERS)  # it keeps results in files
MAY_IMPORT["shards"] = {"backends", "samples", "io"}
MAY_IMPORT["solve"] = {*_LAYERS, "io", "shards"}
MAY_IMPORT["testing"] = set(_LAYERS)
MAY_IMPORT["api"] = {*_LAYERS, "io", "shards", "solve"}
_BELOW = {*MAY_IMPORT["api"], "api", "testing"}
COMMANDS = ["bench", "complete", "demo", "describe", "doctor", "paper", "plot", "ratings", "sample", "shard", "video"]
APPLICATIONS = ["plot", "models", "video", "paper", "doctor", "benchmark", "cli"]  # in this order: cli uses all of them
MAY_IMPORT |= {room: _BELOW | set(APPLICATIONS[:k]) for k, room in enumerate(APPLICATIONS)}
MAY_IMPORT["__main__"] = {"cli"}

# What a user calls may have more than eight parameters, most of them options by name: (room, function).
MANY_PARAMETERS = {
    ("api", "rcurc"),
    ("api", "icurc"),
    ("api", "ircur"),
    ("shards", "shard_triplets"),
    ("shards", "shard_file"),
    ("io", "read_observations"),
    ("models", "complete"),
    ("models", "complete_ratings"),
    ("models", "RobustCURCompletion.__init__"),
    ("testing", "synthetic"),
    ("testing", "rcurc_reference"),
    ("video", "separate"),
    ("video", "BackgroundSubtractor.__init__"),
}


@dataclass(frozen=True)
class Import:
    """One imported name: where it is written, what is imported, and how."""

    by: str
    module: str  # without the package's name; empty for the package itself
    name: str  # empty if the module itself is imported
    line: int
    at_module_level: bool
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.by}:{self.line} imports {'.'.join(filter(None, (self.module, self.name)))}"


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module, by its name without the package's."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def is_package(module: str) -> bool:
    return (ROOT / module.replace(".", "/") / "__init__.py").exists()


def room_of(module: str) -> str:
    return module.split(".")[0]


@functools.cache
def imports() -> tuple[Import, ...]:
    """All imports of our own modules."""
    return tuple(chain.from_iterable(_imports_of(module, tree) for module, tree in trees().items()))


def _imports_of(module: str, tree: ast.Module) -> Iterator[Import]:
    def visit(node: ast.AST, at_module_level: bool, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            how = (child.lineno, at_module_level, typing_only) if hasattr(child, "lineno") else ()
            if isinstance(child, ast.ImportFrom):
                base = _absolute(module, child)
                for name in child.names if base is not None else ():
                    inside = ".".join(filter(None, (base, name.name)))
                    yield Import(module, inside, "", *how) if inside in trees() else Import(module, base, name.name, *how)
            elif isinstance(child, ast.Import):
                for name in child.names:
                    if name.name.split(".")[0] == PACKAGE:
                        yield Import(module, name.name.partition(".")[2], "", *how)
            within = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from visit(child, at_module_level and not within, typing_only or typing)

    return visit(tree, True, False)


def _absolute(module: str, node: ast.ImportFrom) -> str | None:
    """The module that is imported from, without the package's name; None if it is not ours."""
    if not node.level:
        first, _, rest = (node.module or "").partition(".")
        return rest if first == PACKAGE else None
    parts = module.split(".") if module else []
    parts = parts[: len(parts) - node.level + is_package(module)]
    return ".".join([*parts, node.module or ""]).strip(".")


def graph(typing: bool, inside_functions: bool) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {module: set() for module in trees()}
    for i in imports():
        if (typing or not i.typing_only) and (inside_functions or i.at_module_level) and i.module != i.by:
            out[i.by].add(i.module)
    return out


def listed(items: object) -> str:
    return "\n".join(["", *map(str, items)])  # type: ignore[call-overload]


# ---------------------------------------------------------------- one direction


def test_rooms_import_only_what_stands_before_them():
    def fine(i: Import) -> bool:
        room, other = room_of(i.by), room_of(i.module)
        if room in FOR_ALL:
            return other in FOR_ALL
        if not other:  # the package itself is the front door of the whole house
            return room in APPLICATIONS
        return not room or other == room or other in FOR_ALL or other in MAY_IMPORT[room]

    assert not (wrong := [i for i in imports() if not fine(i)]), listed(wrong)


@pytest.mark.parametrize("inside_functions", [False, True])
def test_no_module_imports_itself_in_a_roundabout_way(inside_functions):
    edges = graph(typing=True, inside_functions=inside_functions)
    if inside_functions:  # the table of kernels imports each kind when it is chosen
        edges["backends.kernels"] = {
            x for x in edges["backends.kernels"] if not x.startswith(("backends.numba", "backends.cuda"))
        }
    done: set[str] = set()

    def look(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " > ".join([*path[path.index(module) :], module])
        if module not in done:
            for other in sorted(edges[module]):
                look(other, (*path, module))
            done.add(module)

    for module in edges:
        look(module, ())


# The commands are imported when they are called, so what stands below __main__ says nothing of them: each is counted itself.
@pytest.mark.parametrize(("start", "most"), [("api", 12), ("__main__", 16), *((f"cli.{name}", 16) for name in COMMANDS)])
def test_chains_of_imports_are_short(start, most):
    edges = graph(typing=False, inside_functions=False)

    @functools.cache
    def longest(module: str) -> tuple[str, ...]:
        return (module, *max((longest(other) for other in edges[module]), key=len, default=()))

    assert len(longest(start)) <= most, f"{len(longest(start))}: {' > '.join(longest(start))}"


# ---------------------------------------------------------------- front doors


@functools.cache
def offered(module: str) -> frozenset[str]:
    """The names in a module's ``__all__``."""
    names: set[str] = set()
    for node in trees()[module].body:
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            names |= set(ast.literal_eval(node.value)) if ast.unparse(target) == "__all__" else set()
    return frozenset(names)


def test_applications_use_public_names_only():
    def fine(i: Import) -> bool:
        if room_of(i.by) not in APPLICATIONS or room_of(i.module) == room_of(i.by):
            return True
        if i.module in FOR_ALL | {"api"}:
            return not i.name.startswith("_") or i.module == "_version"
        package, _, module = i.module.rpartition(".")
        if i.name:
            return is_package(i.module) and i.name in offered(i.module)
        return module in offered(package)  # a module that its room offers

    assert not (wrong := [i for i in imports() if not fine(i)]), listed(wrong)


@pytest.mark.parametrize("room", sorted({room_of(module) for module in trees() if is_package(room_of(module))} - {""}))
def test_a_room_says_what_it_is_and_has_what_it_offers(room):
    assert ast.get_docstring(trees()[room])
    found = importlib.import_module(f"{PACKAGE}.{room}")
    for name in offered(room) - {"RobustCURCompletion"}:  # which needs scikit-learn
        assert hasattr(found, name) or importlib.import_module(f"{PACKAGE}.{room}.{name}")


# ---------------------------------------------------------------- the size of things


def test_few_modules_stand_in_the_corridor():
    assert len([module for module in trees() if module and "." not in module and not is_package(module)]) + 1 <= 15


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """All functions with their names, module and class included."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            inner = f"{name}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else name
            if isinstance(child, ast.FunctionDef):
                yield inner, child
            yield from visit(child, inner)

    for module, tree in trees().items():
        yield from visit(tree, module)


def test_no_internal_function_has_more_than_eight_parameters():
    def count(f: ast.FunctionDef) -> int:
        given = [a.arg for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)]
        return len([name for name in given if name not in ("self", "cls")])

    def excepted(name: str, f: ast.FunctionDef) -> bool:
        command = any("click" in ast.unparse(d) or ".command" in ast.unparse(d) for d in f.decorator_list)
        compiled = name.startswith("backends.numba.") and not name.startswith("backends.numba.calls.")
        public = any(room_of(name) == room and name.endswith(f".{function}") for room, function in MANY_PARAMETERS)
        return public or command or compiled

    wrong = [f"{name}: {count(f)}" for name, f in functions() if count(f) > 8 and not excepted(name, f)]
    assert not wrong, listed(wrong)


# ---------------------------------------------------------------- manners


def calls() -> Iterator[tuple[str, ast.Call]]:
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield module, node


def test_nothing_but_the_command_line_prints():
    says = {"print", "pprint", "click.echo", "sys.stdout.write", "sys.stderr.write"}
    wrong = [f"{m}:{c.lineno}" for m, c in calls() if room_of(m) != "cli" and ast.unparse(c.func) in says]
    assert not wrong, listed(wrong)


def test_no_message_of_ours_is_parsed():
    """An error that is caught is used by its fields: no regular expression, no search in its words."""

    def of_message(node: ast.AST) -> bool:
        text = ast.unparse(node)
        return any(word in text for word in ("str(error)", "str(e)", "error.args", ".message", "str(warning)", "str(caught"))

    searches = {"re.match", "re.search", "re.sub", "re.fullmatch", "re.split", "re.findall"}
    wrong = [
        f"{m}:{c.lineno} {ast.unparse(c)}"
        for m, c in calls()
        if room_of(m) in ("cli", "io") and ast.unparse(c.func) in searches and any(map(of_message, c.args))
    ]
    assert not wrong, listed(wrong)


@functools.cache
def numbers_in(module: str) -> frozenset[str]:
    """The names that a module gives to whole numbers."""
    found = set()
    for node in trees()[module].body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]
            found |= {ast.unparse(t) for t, v in pairs if isinstance(v, ast.Constant) and isinstance(v.value, int)}
    return frozenset(found)


def test_random_streams_have_one_registry():
    """A number of a stream stands in backends/random.py, where no two are alike, and nowhere else."""

    def literal(module: str, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in numbers_in(module)
        return isinstance(node, ast.Constant) and isinstance(node.value, int)

    wrong = []
    for module, call in calls():
        name = ast.unparse(call.func).rsplit(".", 1)[-1]
        first = call.args[0] if call.args else None
        if module == "backends.random" or room_of(module) == "doctor":  # its checks are no solve: any number will do
            continue
        if name == "default_rng" and isinstance(first, ast.List | ast.Tuple):
            bad = any(literal(module, x) for x in first.elts[1:])
        elif name in ("uniform_at", "normal_at", "stream_key"):
            stream = [*call.args[3 if name != "stream_key" else 1 :], *(k.value for k in call.keywords if k.arg == "stream")]
            bad = any(literal(module, x) for s in stream for x in ast.walk(s))
        else:
            continue
        if bad:
            wrong.append(f"{module}:{call.lineno} {ast.unparse(call)}")
    wrong += [f"{m}: {name}" for m in trees() if m != "backends.random" for name in numbers_in(m) if "STREAM" in name]
    assert not wrong, listed(wrong)


# ---------------------------------------------------------------- old names


OLD_MODULES = ("rcurc_gpu.experiments", "rcurc_gpu.plot_result", "rcurc_gpu.estimator")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import rcurc_gpu.experiments as m", "import rcurc_gpu.paper as m"),
        ("import rcurc_gpu.experiments.phase as m", "import rcurc_gpu.paper.phase as m"),
        ("from rcurc_gpu.experiments import convergence as m", "import rcurc_gpu.paper.convergence as m"),
        ("from rcurc_gpu.experiments.patterns import compute as m", "from rcurc_gpu.paper.patterns import compute as m"),
        ("from rcurc_gpu.experiments.records import Record as m", "from rcurc_gpu.paper.records import Record as m"),
        ("from rcurc_gpu.experiments.table1 import Outcome as m", "from rcurc_gpu.paper.table1 import Outcome as m"),
        ("from rcurc_gpu.paper.table1 import Settings as m", "from rcurc_gpu.paper.table1 import TableSettings as m"),
        ("from rcurc_gpu.plot_result import result_figure as m", "from rcurc_gpu.plot import result_figure as m"),
        ("from rcurc_gpu import plot_result as m", "import rcurc_gpu.plot as m"),
        ("from rcurc_gpu.estimator import RobustCURCompletion as m", "from rcurc_gpu import RobustCURCompletion as m"),
        ("from rcurc_gpu.shards import open_result as m", "from rcurc_gpu import open_result as m"),
    ],
)
def test_old_names_work_with_a_warning(old, new, monkeypatch):
    """What comes is the same object, not a second one."""
    if "estimator" in old:
        pytest.importorskip("sklearn")
    for name in [name for name in sys.modules if name.startswith(OLD_MODULES)]:  # as if it were imported for the first time
        monkeypatch.delitem(sys.modules, name)
    for name in OLD_MODULES:
        monkeypatch.delattr(name, raising=False)
    found: list[object] = []
    with pytest.warns(DeprecationWarning, match=r"^rcurc_gpu\..* is now rcurc_gpu\.") as caught:
        exec(f"{old}\nfound.append(m)", {"found": found})
    assert {w.filename for w in caught} == {"<string>"}  # the line of the user
    exec(f"{new}\nfound.append(m)", {"found": found})
    assert found[0] is found[1]


def test_there_is_no_other_old_name():
    with pytest.raises(ModuleNotFoundError, match="experiments_of_mine"):
        __import__("rcurc_gpu.experiments_of_mine")


# ---------------------------------------------------------------- the way to a kernel


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_at_most_ten_frames_lead_from_rcurc_to_the_extension_kernel(monkeypatch, noise):
    from rcurc_gpu.backends.numba import calls, pass_kernel

    room, name = (calls, "posterior_kernel") if noise else (pass_kernel, "regress")
    kernel, depths = getattr(room, name), []

    def counted(*arguments):
        frames, frame = [], sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(str(ROOT)):
                frames.append(frame.f_code.co_name)
            frame = frame.f_back
        if "rcurc" in frames and "map" in frames:  # not on a thread of its own, and not for the core
            depths.append(frames.index("rcurc") + 1)
        return kernel(*arguments)

    monkeypatch.setattr(room, name, counted)
    problem = rg.synthetic((900, 900), 3, 0.1, 10, noise, n_rows=400, n_cols=400, rate=0.5, seed=0)
    rg.rcurc(problem.samples, 3, kernels="fused", accuracy=0.1)
    assert depths
    assert max(depths) <= 10


def test_test_files_that_are_skipped_without_a_device_run_where_there_is_one():
    files = [path for path in Path(__file__).parent.rglob("test_*.py") if _needs_device(path)]
    assert len(files) > 10
    assert [path.name for path in files if not path.name.startswith(CUPY_FILES)] == []


def _needs_device(path: Path) -> bool:
    """Whether `if not DEVICE` or the like skips the whole file."""
    tests = [node.test for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.If)]
    return any(isinstance(x, ast.Name) and x.id == "DEVICE" for test in tests for x in ast.walk(test))
