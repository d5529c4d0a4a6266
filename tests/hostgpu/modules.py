"""Builds shared objects with gcc and g++: the driver, the fiber runtime, and kernel modules.

A kernel module is made from CUDA source in three steps: the preprocessor runs, with ``__global__``,
``__shared__`` and ``__launch_bounds__`` left alone (see cuda_host.hpp); the text is searched for
kernels and those marks are replaced (:func:`translate`); and the result is compiled, together with
one record per kernel by which it is found and called.

Everything built is kept in :func:`cache_dir`, under a hash of all that went into it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent

# Sanitizer -> (g++ flag for kernels, macro for cuda_host.cpp, runtime library, a symbol in it)
SANITIZERS = {
    "thread": ("-fsanitize=thread", "-DCUH_TSAN", "libtsan.so", "__tsan_init"),
    "address": ("-fsanitize=address", "-DCUH_ASAN", "libasan.so", "__asan_init"),
}

COMMON_FLAGS = ["-fPIC", "-shared", "-O1", "-w", "-U_FORTIFY_SOURCE"]

# No fused multiply-add where the source has none; symbols are those of the module itself, even if
# another module, or libc, has one of the same name.
KERNEL_FLAGS = [
    *COMMON_FLAGS,
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-gnu-unique",
    "-Wl,-Bsymbolic",
]


class BuildError(RuntimeError):
    """A compiler is missing, or did not like what it was given."""


# ----------------------------------------------------------------------------- compilers and cache


@functools.cache
def find_compiler(name: str) -> str:
    """The path of gcc or g++ (or of what CC or CXX name)."""
    wanted = os.environ.get({"gcc": "CC", "g++": "CXX"}[name]) or name
    path = shutil.which(wanted)
    if path is None:
        raise BuildError(
            f"hostgpu needs {wanted!r} on PATH to build kernels for the CPU; on Debian or Ubuntu: apt install g++"
        )
    return path


@functools.cache
def compiler_version(name: str) -> str:
    """What the compiler says about itself; part of every cache key."""
    run = subprocess.run([find_compiler(name), "--version"], capture_output=True, text=True)
    return run.stdout.partition("\n")[0]


@functools.cache
def cache_dir() -> Path:
    """Where built objects are kept: $HOSTGPU_CACHE, or a directory of this user."""
    named = os.environ.get("HOSTGPU_CACHE")
    if named:
        path = Path(named).expanduser().absolute()
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        path = Path(base).expanduser() / "hostgpu"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        usable = os.access(path, os.W_OK)
    except OSError:
        usable = False
    if usable:
        return path
    if named:
        raise BuildError(f"HOSTGPU_CACHE: cannot write to {path}")
    return Path(tempfile.mkdtemp(prefix="hostgpu-"))


def digest(*parts: object) -> str:
    """A hash of these, for a file name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@functools.cache
def source_digest(*names: str) -> str:
    """A hash of some files of this package."""
    return digest(*[(HERE / name).read_bytes() for name in names])


@functools.cache
def module_sources() -> tuple[str, ...]:
    """The files of this package that a kernel module depends on."""
    headers = [path for path in (HERE / "include").rglob("*") if path.is_file()]
    names = sorted(path.relative_to(HERE).as_posix() for path in headers)
    return ("modules.py", "cuda_host.hpp", *names)


def run_compiler(command: list[str], what: str) -> None:
    """Runs a compiler; what it complains about becomes a BuildError."""
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise BuildError(f"{what}: {command[0]} failed\n{run.stderr or run.stdout}")


def build(name: str, key: str, compile_to) -> Path:
    """The cached object of this name and key; ``compile_to(path)`` makes it if it is not there."""
    path = cache_dir() / f"{name}-{key}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(prefix=".build-", dir=cache_dir()) as scratch:
            made = Path(scratch) / path.name
            compile_to(made)
            os.replace(made, path)
    return path


def build_driver() -> Path:
    """driver.c, for the Python that is running."""
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        raise BuildError(f"hostgpu needs Python.h, which is not in {include} (python3-dev)")

    def compile_to(out: Path) -> None:
        source = str(HERE / "driver.c")
        command = [find_compiler("gcc"), *COMMON_FLAGS, f"-I{include}", "-o", str(out), source]
        run_compiler([*command, "-ldl"], "driver.c")

    soabi = sysconfig.get_config_var("SOABI")
    key = digest(source_digest("driver.c"), soabi, include, compiler_version("gcc"))
    return build("driver", key, compile_to)


def build_runtime(sanitize: str | None = None) -> Path:
    """cuda_host.cpp, told about a sanitizer or not."""
    flags = [*COMMON_FLAGS, "-std=c++17", "-O2"]
    if sanitize:
        flags += ["-g", SANITIZERS[sanitize][1]]

    def compile_to(out: Path) -> None:
        source = str(HERE / "cuda_host.cpp")
        run_compiler([find_compiler("g++"), *flags, "-o", str(out), source], "cuda_host.cpp")

    sources = source_digest("cuda_host.cpp", "cuda_host.hpp")
    return build("runtime", digest(sources, flags, compiler_version("g++")), compile_to)


@functools.cache
def load_runtime(sanitize: str | None = None) -> ctypes.CDLL:
    """Loads the fiber runtime, whose symbols the kernel modules need."""
    if sanitize:
        check_sanitizer(sanitize)
    return ctypes.CDLL(str(build_runtime(sanitize)), mode=ctypes.RTLD_GLOBAL)


# -------------------------------------------------------------------------------------- sanitizers


def compiler_library(name: str) -> str | None:
    """The path of a library of g++, or None if it came without."""
    command = [find_compiler("g++"), f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return os.path.realpath(path) if os.path.isabs(path) and os.path.exists(path) else None


def sanitizer_preload(sanitize: str) -> str | None:
    """What LD_PRELOAD has to be, or None if g++ came without this sanitizer.

    The C++ library has to be there from the start too: the address sanitizer looks then for the
    function that throws exceptions, and aborts if one is thrown that it did not find.
    """
    library = compiler_library(SANITIZERS[sanitize][2])
    if library is None:
        return None
    return ":".join(filter(None, [library, compiler_library("libstdc++.so")]))


def sanitizer_environment(sanitize: str) -> dict[str, str] | None:
    """Environment variables for a process that runs kernels under a sanitizer, or None.

    The sanitizer's runtime has to be in the process from its start, hence LD_PRELOAD.
    """
    preload = sanitizer_preload(sanitize)
    if preload is None:
        return None
    return {
        "HOSTGPU_SANITIZE": sanitize,
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "halt_on_error=0",
    }


def check_sanitizer(sanitize: str) -> None:
    """Raises an error if the runtime of this sanitizer is not in the process."""
    if sanitize not in SANITIZERS:
        raise ValueError(f"sanitize is one of {sorted(SANITIZERS)}, not {sanitize!r}")
    if hasattr(ctypes.CDLL(None), SANITIZERS[sanitize][3]):
        return
    preload = sanitizer_preload(sanitize)
    if preload is None:
        raise BuildError(f"g++ has no {SANITIZERS[sanitize][2]}")
    raise BuildError(f"sanitize={sanitize!r}: start Python with LD_PRELOAD={preload}")


# ------------------------------------------------------------------------------------- translation

_BEGIN = "namespace cuh { struct source_begins_here; }"

_ENTRY = """
extern "C" const char *cuh_launch_{symbol}(const unsigned *g, size_t s, void **a) {{
    return cuh::launch_packed({expression}, g, s, a);
}}
extern "C" const char *cuh_signature_{symbol}() {{
    return cuh::signature({expression});
}}
extern "C" const cuh::Kernel cuh_kernel_{symbol} = {{
    {name}, cuh_launch_{symbol}, cuh_signature_{symbol}, {max_threads}}};
"""

_PARENTHESES = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\b__global__\b|[{}]')
_BOUNDS = re.compile(rf"\b__launch_bounds__\s*({_PARENTHESES})")
_ATTRIBUTE = re.compile(rf"\b(?:alignas|__attribute__)\s*{_PARENTHESES}")
_KERNEL_NAME = re.compile(r"\s*(?:(?:static|inline|void)\s+)*(\w+)\s*\(")
_EXTERN_C = re.compile(r'\bextern\s*"C"')
_OPENS_EXTERN_C = re.compile(r'\bextern\s*"C"\s*$')
_OPENS_NAMESPACE = re.compile(r"\bnamespace\s+(\w+)\s*$")
_DYNAMIC_SHARED = re.compile(r"\bextern\b(?P<before>[^;{}]*?)\b__shared__\b(?P<after>[^;{}]*?)(?P<name>\w+)\s*\[\s*\]\s*;")
_STATIC_SHARED = re.compile(rf"(?:\bstatic\s+)?\b__shared__\b(?:\s+static\b)?(?P<align>\s+alignas\s*{_PARENTHESES})?")


class Kernel:
    """A kernel that was found in a source."""

    def __init__(self, name: str, expression: str, is_extern_c: bool, max_threads: int):
        self.name = name
        self.expression = expression
        self.is_extern_c = is_extern_c
        self.max_threads = max_threads


def find_kernels(text: str) -> list[Kernel]:
    """The kernels that preprocessed CUDA source defines or declares; not the templates."""
    kernels = {}
    scopes: list[str | None] = []  # for each open brace: 'extern "C"', a namespace, or None
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            scopes.append(_scope(text[max(0, token.start() - 200) : token.start()]))
        elif token[0] == "}" and scopes:
            scopes.pop()
        elif token[0] == "__global__":
            kernel = _kernel_at(text, token.start(), token.end(), scopes)
            if kernel:
                kernels.setdefault(kernel.expression, kernel)
    return list(kernels.values())


def _scope(before: str) -> str | None:
    """What kind of scope a brace opens, from the text before it."""
    if _OPENS_EXTERN_C.search(before):
        return 'extern "C"'
    named = _OPENS_NAMESPACE.search(before)
    return named[1] if named else None


def _kernel_at(text: str, start: int, end: int, scopes: list) -> Kernel | None:
    """The kernel whose ``__global__`` is at this place, unless it is a template."""
    declaration = max(text.rfind(mark, 0, start) for mark in ";{}") + 1
    before = text[declaration:start]
    if re.search(r"\btemplate\b", before):
        return None
    after = text[end : end + 4000]
    bounds = _BOUNDS.search(after.partition("{")[0]) or _BOUNDS.search(before)
    named = _KERNEL_NAME.match(_ATTRIBUTE.sub(" ", _BOUNDS.sub(" ", after)))
    if not named:
        return None
    is_extern_c = bool(_EXTERN_C.search(before)) or 'extern "C"' in scopes
    namespaces = [scope for scope in scopes if scope and scope != 'extern "C"']
    expression = "::".join([*namespaces, named[1]])
    return Kernel(named[1], expression, is_extern_c, _max_threads(bounds))


def _max_threads(bounds: re.Match | None) -> int:
    """The first argument of ``__launch_bounds__`` if that is a plain number, else 1024."""
    if bounds:
        first = bounds[1].strip("()").split(",")[0].strip()
        if first.isdigit():
            return int(first)
    return 1024


def _dynamic_shared(match: re.Match) -> str:
    """``extern __shared__ T name[];`` as a reference to the runtime's pointer."""
    kind = _ATTRIBUTE.sub(" ", match["before"] + " " + match["after"])
    kind = " ".join(kind.split())
    return f"{kind} *&{match['name']} = reinterpret_cast<{kind} *&>(::cuh::dynamic_pointer);"


def _static_shared(match: re.Match) -> str:
    return f"{match['align'] or ''} static thread_local"


def translate(text: str) -> str:
    """Replaces the marks that the preprocessor left in CUDA source."""
    text = _DYNAMIC_SHARED.sub(_dynamic_shared, text)
    text = _STATIC_SHARED.sub(_static_shared, text)
    text = _BOUNDS.sub(" ", text)
    return re.sub(r"\b__global__\b", " ", text)


# ---------------------------------------------------------------------------------- kernel modules


def host_options(options: tuple[str, ...]) -> list[str]:
    """Those of NVRTC's options that mean something to g++: macros, directories, the standard."""
    kept = []
    standard = "-std=c++17"
    rest = iter(options)
    for option in rest:
        if option in ("-D", "-U", "-I"):
            kept.append(option + next(rest))
        elif option.startswith(("-D", "-U", "-I")):
            kept.append(option)
        elif option.startswith("--define-macro="):
            kept.append("-D" + option.partition("=")[2])
        elif option.startswith("--include-path="):
            kept.append("-I" + option.partition("=")[2])
        elif option.startswith(("-std=", "--std=")):
            standard = "-std=" + option.partition("=")[2]
    if standard in ("-std=c++03", "-std=c++11", "-std=c++14"):
        standard = "-std=c++17"
    return [standard, *kept]


def _drop_unused_headers(source: str) -> str:
    """CuPy's header for complex numbers costs time; few of its kernels need it."""
    line = "#include <cupy/complex.cuh>\n"
    if source.startswith(line) and "complex" not in source[len(line) :]:
        return "\n" + source[len(line) :]
    return source


def _preprocess(source: str, options: list[str]) -> str:
    """The source after the preprocessor, with the header and the marks."""
    with tempfile.TemporaryDirectory(prefix=".build-", dir=cache_dir()) as scratch:
        path = Path(scratch) / "kernel.cpp"
        result = Path(scratch) / "kernel.ii"
        path.write_text(f'#include "cuda_host.hpp"\n{_BEGIN}\n#line 1 "kernel.cu"\n{source}\n')
        includes = [f"-I{HERE}", f"-I{HERE / 'include'}"]
        command = [find_compiler("g++"), "-E", "-w", "-DCUH_KEEP_MARKS", *includes, *options]
        run_compiler([*command, "-o", str(result), str(path)], "preprocessor")
        return result.read_text()


def _module_text(preprocessed: str, mapping: dict[str, str]) -> str:
    """The text to compile: the source, translated, and a record for each kernel."""
    header, marker, body = preprocessed.partition(_BEGIN)
    entries = []
    for kernel in find_kernels(body):
        if kernel.is_extern_c:
            entries.append((kernel.name, kernel.expression, kernel.name, kernel.max_threads))
    for expression, symbol in mapping.items():
        entries.append((symbol, expression, expression, 1024))
    records = [
        _ENTRY.format(symbol=symbol, expression=expression, name=_quoted(name), max_threads=bound)
        for symbol, expression, name, bound in entries
    ]
    return header + marker + translate(body) + '\n# 1 "entries"\n' + "".join(records)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def includes_other_files(source: str) -> bool:
    """Whether the source includes more than CuPy's own headers, so that its text is not all."""
    return bool(re.search(r"^\s*#\s*include\s*[<\"](?!cupy/)", source, re.M))


def build_module(
    source: str,
    options: tuple[str, ...] = (),
    name_expressions: tuple[str, ...] | None = None,
    sanitize: str | None = None,
    more_flags: tuple[str, ...] = (),
) -> tuple[Path, dict[str, str]]:
    """Compiles CUDA source. Returns the shared object, and the symbol of each name expression."""
    source = _drop_unused_headers(source)
    arguments = host_options(tuple(options))
    mapping = {name: f"cuh_expression_{i}" for i, name in enumerate(name_expressions or ())}
    flags = [*KERNEL_FLAGS, arguments[0], *more_flags]
    if sanitize:
        flags += ["-g", SANITIZERS[sanitize][0]]

    preprocess = functools.cache(lambda: _preprocess(source, arguments))
    content = preprocess() if includes_other_files(source) else source
    own = source_digest(*module_sources())
    key = digest(content, arguments, list(mapping), flags, own, compiler_version("g++"))

    def compile_to(out: Path) -> None:
        text = out.with_suffix(".ii")
        text.write_text(_module_text(preprocess(), mapping))
        run_compiler([find_compiler("g++"), *flags, "-o", str(out), str(text)], "kernel")

    return build("kernel", key, compile_to), mapping


# ---------------------------------------------------------------------------- calling without CuPy


class _KernelRecord(ctypes.Structure):
    """cuh::Kernel of cuda_host.hpp."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("launch", ctypes.CFUNCTYPE(
            ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)),
        ("signature", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("max_threads", ctypes.c_int),
    ]  # fmt: skip


class KernelModule:
    """CUDA source whose kernels can be called with NumPy arrays; CuPy is not needed.

    `more_flags` are for g++.
    """

    def __init__(self, source, options=(), name_expressions=None, sanitize=None, more_flags=()):
        load_runtime(sanitize)
        path, self.mapping = build_module(source, options, name_expressions, sanitize, tuple(more_flags))
        self.library = ctypes.CDLL(str(path))

    def get_function(self, name: str) -> KernelFunction:
        symbol = "cuh_kernel_" + self.mapping.get(name, name)
        return KernelFunction(_KernelRecord.in_dll(self.library, symbol))


class KernelFunction:
    """A kernel; called like a cupy.RawKernel, but it checks the types of its arguments."""

    def __init__(self, record: _KernelRecord):
        self.record = record
        self.name = record.name.decode()
        self.parameters = record.signature().decode().split(";")[:-1]

    def __call__(self, grid, block, args, shared_mem=0):
        if len(args) != len(self.parameters):
            raise TypeError(f"{self.name}: {len(args)} arguments for the parameters {self.parameters}")
        for number, (arg, wanted) in enumerate(zip(args, self.parameters, strict=True)):
            if not _fits(_kind(arg), wanted):
                raise TypeError(f"{self.name}: argument {number} is {_kind(arg)}, the parameter is {wanted}")
        values = [_value(arg) for arg in args]
        pointers = (ctypes.c_void_p * (len(values) + 1))(*[v.ctypes.data for v in values])
        geometry = (ctypes.c_uint * 6)(*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
        problem = self.record.launch(geometry, shared_mem, pointers)
        if problem:
            raise RuntimeError(f"{self.name}: {problem.decode()}")


def _kind(arg) -> str:
    """The type of an argument, as cuh::describe writes it."""
    if isinstance(arg, np.ndarray):
        return f"P{arg.dtype.kind}{arg.dtype.itemsize}"
    if isinstance(arg, np.generic):
        return arg.dtype.kind + str(arg.dtype.itemsize)
    raise TypeError(f"arguments are NumPy arrays and NumPy scalars, not {type(arg).__name__}")


def _fits(kind: str, wanted: str) -> bool:
    if wanted == "Pv":
        return kind.startswith("P")
    return kind == wanted


def _value(arg) -> np.ndarray:
    """What the kernel gets: the address of an array, or a scalar."""
    if isinstance(arg, np.ndarray):
        return np.array(arg.ctypes.data, dtype=np.uintp)
    return np.array(arg)
