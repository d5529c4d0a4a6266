"""What the tests share: the namespaces to run on, and how hypothesis works."""

import hashlib
import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

# A shell that starts the tests in the background has Ctrl-C ignored, and what they start and interrupt would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The products here are small: a second BLAS thread gains nothing, and on a busy machine the two wait for each other for
# seconds. Before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Numba looks at the age of a kernel's file alone, not at what it takes from others: a place for each state of the sources.
_PACKAGE = Path(__file__).parents[1] / "rcurc_gpu"
_BACKENDS = _PACKAGE / "backends"
_SOURCES = [*sorted(_BACKENDS.glob("numba/*.py")), *sorted(_BACKENDS.glob("plain/*.py")), _BACKENDS / "random.py"]
_STATE = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"rcurc-numba-{_STATE}"))

# Where the tests of CuPy run: "emulator" is tests/hostgpu, "cuda" a real device, and nothing else is then tested. Without it
# they join the others if there is a GPU, and are skipped if not.
DEVICE = os.environ.get("RCURC_TEST_DEVICE", "")
ALONE = bool(DEVICE)


def _why_not() -> str:
    """What keeps the tests of CuPy from running; empty if nothing does."""
    missing = [] if importlib.util.find_spec("cupy") else ["CuPy is not installed (the extra 'emulator')"]
    if DEVICE != "cuda" and shutil.which(os.environ.get("CXX", "g++")) is None:
        missing.append("there is no g++")
    return " and ".join(missing)


def _gpu_is_there() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    return bool(cupy.is_available())


if DEVICE not in ("", "emulator", "cuda"):
    raise RuntimeError(f"RCURC_TEST_DEVICE must be 'emulator' or 'cuda', got {DEVICE!r}")
if DEVICE and _why_not():
    raise RuntimeError(f"RCURC_TEST_DEVICE={DEVICE} was asked for, but {_why_not()}")
if not ALONE and _gpu_is_there():
    DEVICE = "cuda"
if DEVICE == "emulator":
    import hostgpu

    hostgpu.install()  # before the first import of CuPy, which an import below may cause

import array_api_strict
import numpy as np
import pytest
from hypothesis import settings

from rcurc_gpu.backends.arrays import array_namespace, device_of, to_numpy

SKIP_CUPY = "the tests of CuPy need a process of their own: RCURC_TEST_DEVICE=emulator (or cuda) python -m pytest"
if _why_not():
    SKIP_CUPY += f"; besides, {_why_not()}"

# The emulator's own tests; tests/solve/test_cupy.py says in their stead why nothing runs.
collect_ignore = [] if DEVICE == "emulator" else ["hostgpu/tests"]

# On the emulator an operation takes a thousand times as long as in NumPy.
settings.register_profile("rcurc", deadline=None, derandomize=True, max_examples=6 if DEVICE == "emulator" else 50)
settings.load_profile("rcurc")


class Place(NamedTuple):
    """A namespace and a device of it."""

    namespace: Any
    device: Any

    def array(self, x: Any, dtype: str | None = None) -> Any:
        """A copy of `x` here, never an alias; `dtype` by its name."""
        host = np.array(x, dtype=dtype)
        return self.namespace.asarray(host, device=self.device)

    def numpy(self, x: Any) -> np.ndarray:
        """`x` on the host, after a look that it lives here."""
        assert _name(array_namespace(x)) == _name(self.namespace)
        assert device_of(x) == self.device
        return to_numpy(x)


def _name(namespace: Any) -> str:
    return namespace.__name__.removeprefix("array_api_compat.")


NUMPY = Place(np, "cpu")
# Not the default device of array_api_strict: an array that is made without a device, or comes to the host unasked, fails.
STRICT = Place(array_api_strict, array_api_strict.Device("device1"))
PLACES = {"numpy": NUMPY, "strict": STRICT}
if DEVICE:
    import array_api_compat.cupy
    import cupy

    if not cupy.is_available():
        raise RuntimeError(f"RCURC_TEST_DEVICE={DEVICE} was asked for, but CuPy finds no device")
    PLACES = ({} if ALONE else PLACES) | {"cupy": Place(array_api_compat.cupy, cupy.cuda.Device(0))}


@pytest.fixture(scope="session", params=list(PLACES.values()), ids=list(PLACES))
def xp(request: pytest.FixtureRequest) -> Place:
    """Where to compute: NumPy, and the strict array API on a device of its own; or CuPy, if that is tested."""
    return request.param


_OTHERS = [name for name in PLACES if name != "numpy"]


@pytest.fixture(scope="session", params=[PLACES[name] for name in _OTHERS], ids=_OTHERS)
def elsewhere(request: pytest.FixtureRequest) -> Place:
    """Where to compute, but not NumPy."""
    return request.param


@pytest.fixture
def interrupted_reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ctrl-C when the fifth shard of a directory is read; the files that were asked for."""
    from rcurc_gpu.shards.source import OnDisk

    load, read = OnDisk.load, []

    def stopping(self: Any) -> Any:
        read.append(self.path)
        if len(read) == 5:
            raise KeyboardInterrupt
        return load(self)

    monkeypatch.setattr(OnDisk, "load", stopping)
    return read


@pytest.fixture(autouse=DEVICE == "emulator")
def fresh_emulator() -> None:
    """Each test on the emulator starts with its threads in their order, and counts from zero."""
    hostgpu.set_seed(0)
    hostgpu.reset_stats()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With a device, leave what does not use it to the other process; without, what needs a real one."""
    if not DEVICE:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    if ALONE:
        config.hook.pytest_deselected(items=[item for item in items if not _uses_device(item)])
        items[:] = [item for item in items if _uses_device(item)]


CUPY_FILES = ("test_cupy", "test_cuda", "test_device_counts", "test_compile_gate", "test_doctor_cupy")


def _uses_device(item: pytest.Item) -> bool:
    if item.get_closest_marker("gpu"):
        return DEVICE != "emulator" or "RCURC_GPU_TEST_SIZE" in os.environ
    fixtures = {"xp", "elsewhere"} & set(getattr(item, "fixturenames", ()))
    return bool(fixtures) or item.path.name.startswith(CUPY_FILES) or "hostgpu" in item.path.parts
