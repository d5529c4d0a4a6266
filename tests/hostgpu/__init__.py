"""CuPy on a device that is not there: kernels run on the CPU, for tests.

::

    import hostgpu

    hostgpu.install()  # before the first import of cupy

    import cupy

After that CuPy is the real one, from its wheel, but device memory is memory, kernels (CuPy's own
and yours) are compiled with g++ and run as fibers, and the CUDA libraries are NumPy and SciPy.
See README.md for what that shows and what it does not.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import sys

from . import modules, pointers
from .modules import BuildError, sanitizer_environment

__all__ = [
    "BuildError",
    "KernelError",
    "install",
    "installed",
    "reset_stats",
    "sanitizer_environment",
    "set_listener",
    "set_memory_limit",
    "set_nvrtc",
    "set_seed",
    "stats",
]


class KernelError(RuntimeError):
    """A kernel that did what would hang or corrupt a GPU, such as a barrier not all threads reach.

    ``kernel`` is its name.
    """

    def __init__(self, kernel: str, text: str):
        super().__init__(f"{kernel}: {text}")
        self.kernel = kernel


class _State:
    """What install() set up."""

    driver: ctypes.PyDLL | None = None
    runtime: ctypes.CDLL | None = None
    architectures: tuple[int, ...] = ()
    sanitize: str | None = None
    keep: list = []  # what C code has pointers to


# ------------------------------------------------------------------------------------ the C tables


class _Entry(ctypes.Structure):
    """struct entry of driver.c."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p)]


_C_TYPES = {
    "PyObject *": ctypes.py_object,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
    "intptr_t": ctypes.c_ssize_t,
    "size_t": ctypes.c_size_t,
    "unsigned int": ctypes.c_uint,
    "cudaMemcpyKind": ctypes.c_int,
}


# What CuPy 13.6 does not have. Any other name that is missing is a change in CuPy that somebody has to look at.
_SINCE_14 = {"pointerGetMemoryType", "streamCreateWithPriority", "streamGetFlags", "streamGetPriority"}


def _table(name: str) -> dict[str, int]:
    """A table of driver.c: function name -> address."""
    entries = (_Entry * 1000).in_dll(_State.driver, name)
    table = {}
    for entry in entries:
        if entry.name is None:
            return table
        table[entry.name.decode()] = entry.function
    raise AssertionError("a table without an end")


def _capsule_name(capsule) -> bytes:
    """The C signature of an exported Cython function."""
    function = ctypes.pythonapi.PyCapsule_GetName
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.py_object]
    return function(capsule)


def _capsule(address: int, name: bytes):
    """A capsule by which other Cython modules import a function."""
    function = ctypes.pythonapi.PyCapsule_New
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    kept = ctypes.create_string_buffer(name)
    _State.keep.append(kept)
    return function(address, ctypes.cast(kept, ctypes.c_char_p), None)


def _python_function(name: str, address: int, signature: str):
    """A Python function that calls a C function of this signature.

    Signatures are like ``int (intptr_t, size_t, int __pyx_skip_dispatch)``; a last parameter that
    points to a struct holds optional arguments, and is always NULL.
    """
    result, _, parameters = signature.partition("(")
    result = result.strip()
    given = [part.strip() for part in parameters.rstrip(")").split(",")]
    required = given[: given.index("int __pyx_skip_dispatch")]
    types = [_C_TYPES[kind] for kind in required] + [ctypes.c_int]
    extra = [0]
    if len(given) > len(types):
        types.append(ctypes.c_void_p)
        extra.append(None)
    restype = ctypes.py_object if result.startswith("struct") else _C_TYPES[result]
    call = ctypes.PYFUNCTYPE(restype, *types)(address)

    def function(*args):
        return call(*args[: len(required)], *extra)

    function.__name__ = name
    return function


def _replace_functions(module, table: str) -> None:
    """Puts the functions of driver.c in place of those of a Cython module, in C and in Python."""
    for name, address in _table(table).items():
        if name in _SINCE_14 and name not in module.__pyx_capi__:
            continue
        signature = _capsule_name(module.__pyx_capi__[name])
        module.__pyx_capi__[name] = _capsule(address, signature)
        if name in vars(module):
            setattr(module, name, _python_function(name, address, signature.decode()))


# ------------------------------------------------------------------------------------------ errors


def _make_driver_error(status: int, text: str):
    """CuPy's exception; its constructor would ask libcuda.so for the text."""
    from cupy_backends.cuda.api import driver

    names = {1: "CUDA_ERROR_INVALID_VALUE", 200: "CUDA_ERROR_INVALID_IMAGE",
             400: "CUDA_ERROR_INVALID_HANDLE", 500: "CUDA_ERROR_NOT_FOUND"}  # fmt: skip
    error = driver.CUDADriverError.__new__(driver.CUDADriverError)
    error.args = (f"{names.get(status, status)}: {text}",)
    error.status = status
    return error


# ------------------------------------------------------------------------------------- compilation


def _compile(source, options, name_expressions=None, jitify=False, to_ltoir=False, **ignored):
    """What _compiler() puts in place of CuPy's."""
    from cupy.cuda import compiler, function

    from . import nvrtc

    if to_ltoir or jitify:
        raise NotImplementedError("hostgpu compiles neither LTO-IR nor with Jitify")
    if _State.architectures:
        nvrtc.record(source, options, name_expressions, _State.architectures)
    try:
        path, mapping = modules.build_module(source, options, name_expressions, _State.sanitize)
    except BuildError as error:
        raise compiler.CompileException(str(error), source, "kernel.cu", options, "g++") from None
    module = function.Module()
    module.load(os.fsencode(path))
    module._set_mapping(mapping)
    return module


def _compiler(original):
    """_compile() with the parameters of cupy.cuda.compiler._compile_with_cache_cuda, which CuPy 14 has in another order."""
    signature = inspect.signature(original)

    def compile_with_cache(*args, **kwargs):
        return _compile(**signature.bind(*args, **kwargs).arguments)

    return compile_with_cache


def _find_headers() -> None:
    """CuPy 14 wants a directory of CUDA headers before it compiles; any directory will do."""
    try:
        from cuda import pathfinder
    except ImportError:  # CuPy 13 does not ask
        return

    original = pathfinder.find_nvidia_header_directory

    def find_nvidia_header_directory(name):
        return original(name) or str(modules.HERE)

    pathfinder.find_nvidia_header_directory = find_nvidia_header_directory


# ------------------------------------------------------------------------------------------ public


def installed() -> bool:
    """Whether install() was called."""
    return _State.driver is not None


def install(
    also_nvrtc=(),
    *,
    memory_limit: int | None = None,
    seed: int | None = None,
    sanitize: str | None = None,
    use_pool: bool = True,
    compute_capability: tuple[int, int] = (9, 0),
) -> None:
    """Makes CuPy run on the CPU. Call it before the first import of cupy.

    Args:
        also_nvrtc: Architectures, such as ``[80, 90, 120]``, for which each source that is launched
            is compiled with NVRTC too; stats()["nvrtc"] then has registers and spills.
        memory_limit: Bytes of device memory; default $HOSTGPU_MEMORY_LIMIT, or 8 GiB.
        seed: The order of threads, see set_seed(); default $HOSTGPU_SEED, or 0.
        sanitize: "thread" or "address", see README.md; default $HOSTGPU_SANITIZE.
        use_pool: False takes every array from malloc, so that uninitialized memory is always NaN
            and the address sanitizer sees the end of each array.
        compute_capability: What the device says it is.
    """
    if installed():
        raise RuntimeError("hostgpu.install() was called before")
    if "cupy" in sys.modules or "cupy_backends.cuda.api.runtime" in sys.modules:
        raise RuntimeError("hostgpu.install() has to be called before cupy is imported")
    sanitize = sanitize or os.environ.get("HOSTGPU_SANITIZE") or None
    runtime = modules.load_runtime(sanitize)
    driver = ctypes.PyDLL(str(modules.build_driver()))
    _State.driver, _State.runtime, _State.sanitize = driver, runtime, sanitize
    pointers.Capture.driver = driver
    driver.hostgpu_stats.restype = ctypes.py_object
    driver.hostgpu_set_capability(*compute_capability)
    set_memory_limit(memory_limit or int(os.environ.get("HOSTGPU_MEMORY_LIMIT") or 8 << 30))
    set_seed(seed if seed is not None else int(os.environ.get("HOSTGPU_SEED") or 0))

    _before_import()
    _after_import(also_nvrtc, use_pool and sanitize != "address")


def _before_import() -> None:
    """What has to be in place when CuPy's modules are loaded."""
    from . import libs, sparse

    os.environ["CUPY_ACCELERATORS"] = ""  # CUB and cuTENSOR are CUDA code
    from cupy_backends.cuda.api import driver, runtime
    from cupy_backends.cuda.libs import nvrtc

    errors = (runtime.CUDARuntimeError, _make_driver_error, KernelError)
    _State.keep.extend(errors)
    _State.driver.hostgpu_set_errors(*map(ctypes.py_object, errors))
    _replace_functions(runtime, "hostgpu_runtime")
    _replace_functions(driver, "hostgpu_driver")
    try:
        nvrtc.getVersion()
    except RuntimeError:  # it is not installed
        _replace_functions(nvrtc, "hostgpu_nvrtc")
    libs.install()
    sparse.install()
    _find_headers()


def _after_import(also_nvrtc, use_pool: bool) -> None:
    """What replaces parts of CuPy itself."""
    import cupy
    from cupy.cuda import compiler

    from . import libs, sorting

    compiler._compile_with_cache_cuda = _compiler(compiler._compile_with_cache_cuda)
    libs.bind_cusolver()
    sorting.install()
    set_nvrtc(also_nvrtc)
    if not use_pool:
        cupy.cuda.set_allocator(None)
    else:
        cupy.cuda.set_allocator(_outside_of_captures(cupy.get_default_memory_pool().malloc))


def _outside_of_captures(allocate):
    """An allocator that gives nothing while a stream captures: a graph would use memory that others get later."""

    def allocate_outside(size):
        pointers.Capture.refuse(RuntimeError, f"{size} bytes of device memory were asked for")
        return allocate(size)

    return allocate_outside


def set_seed(seed: int) -> None:
    """The order in which threads and blocks run: 0 for theirs, else shuffled by this seed."""
    _State.runtime.cuh_set_seed(ctypes.c_uint(seed))


def set_nvrtc(architectures) -> None:
    """From now on sources are compiled with NVRTC for these architectures too, see install()."""
    from . import nvrtc

    _State.architectures = nvrtc.check_architectures(architectures)


def set_memory_limit(limit: int) -> None:
    """From now on allocations fail that would need more device memory than this."""
    _State.driver.hostgpu_set_memory_limit(ctypes.c_size_t(limit))


def set_listener(listener=None) -> None:
    """From now on `listener` is called for each launch, with the name of the kernel, "graph" or "cublas.gemmEx" and -1, and
    for each copy from or to the host, with "h2d" or "d2h" and its bytes; None ends it."""
    _State.driver.hostgpu_set_listener(ctypes.py_object(listener))
    pointers.Capture.listener = listener


def stats() -> dict:
    """What happened since the last reset_stats().

    * ``h2d_bytes``, ``h2d_copies``, ``d2h_bytes``, ``d2h_copies``: transfers.
    * ``launches``, and ``launches_by_kernel`` by the name of the kernel.
    * ``library_calls``, by names such as "cublas.gemmEx".
    * ``synchronizations`` of the device, of streams and of events; ``event_records``.
    * ``graph_launches``; ``graph_kernels``, ``graph_kernels_by_name`` and ``graph_copies``: nodes that were played, which
      are not among the launches and copies above (their bytes are).
    * ``live_allocations``, ``live_bytes``: now; CuPy's pool keeps what arrays no longer need.
    * ``peak_bytes``: the most there were.
    * ``nvrtc``: kernel -> architecture -> ``registers``, ``stack``, ``spill_stores``,
      ``spill_loads``, ``shared`` (all but the first in bytes), if install() was told to.
    """
    from . import nvrtc

    result = _State.driver.hostgpu_stats()
    result["library_calls"] = dict(pointers.library_calls)
    result["nvrtc"] = {kernel: dict(numbers) for kernel, numbers in nvrtc.usage.items()}
    return result


def reset_stats() -> None:
    """Starts to count anew. Live allocations, and what NVRTC said, stay."""
    _State.driver.hostgpu_reset_stats()
    pointers.library_calls.clear()
