"""Kernels under the thread and the address sanitizer, each in a process that preloads it."""

from pathlib import Path

import pytest

import hostgpu

pytestmark = pytest.mark.slow

SWEEP = Path(__file__).parent / "sweep.cu"

RACE = """
import hostgpu
hostgpu.install()
import cupy, numpy
code = '''extern "C" __global__ void reverse(const float* x, float* y, int n) {
    __shared__ float s[128];
    extern __shared__ float d[];
    const int t = threadIdx.x;
    s[t] = d[t] = x[t];
    SYNC;
    y[blockIdx.x * n + t] = (s[n - 1 - t] + d[n - 1 - t]) / 2;
}'''
kernel = cupy.RawKernel(code, "reverse", options=("-DSYNC=%s",))
x, y = cupy.asarray(numpy.arange(128, dtype="f4")), cupy.empty(256, "f4")
kernel((2,), (128,), (x, y, numpy.int32(128)), shared_mem=512)
print("reversed:", bool((y.get()[:128] == x.get()[::-1]).all()))
"""

BETWEEN_BLOCKS = """
import numpy
from hostgpu.modules import KernelModule
code = 'extern "C" __global__ void total(float* out) { if (threadIdx.x == 0) %s; }'
out = numpy.zeros(1, "f4")
KernelModule(code, sanitize="thread").get_function("total")((4,), (32,), (out,))
print("total:", out[0])
"""

LAST_BLOCK = """
import numpy
from hostgpu.modules import KernelModule
code = '''extern "C" __global__ void total(float* out, unsigned* arrived) {
    if (threadIdx.x) return;
    out[1 + blockIdx.x] = 1;
    %s;
    if (atomicAdd(arrived, 1u) != gridDim.x - 1) return;
    %s;
    for (unsigned b = 0; b < gridDim.x; b++) out[0] += out[1 + b];
}'''
out, arrived = numpy.zeros(5, "f4"), numpy.zeros(1, "u4")
KernelModule(code, sanitize="thread").get_function("total")((4,), (32,), (out, arrived))
print("total:", out[0])
"""

BOUNDS = """
import hostgpu
hostgpu.install()
import cupy, numpy
code = '''extern "C" __global__ void fill(float* x, int n) {
    const int i = threadIdx.x;
    if (i COMPARE n) x[i] = 1;
}'''
x = cupy.zeros(40, "f4")
cupy.RawKernel(code, "fill", options=("-DCOMPARE=%s",))((1,), (64,), (x, numpy.int32(40)))
print("filled:", float(x.get().sum()))
"""

STUCK = """
import hostgpu
hostgpu.install()
import cupy
code = 'extern "C" __global__ void k() { if (threadIdx.x) __syncthreads(); else __syncwarp(); }'
for _ in range(2):
    try:
        cupy.RawKernel(code, "k")((1,), (64,), ())
    except hostgpu.KernelError as error:
        print("found:", error)
"""

SWEEP_RUN = """
import numpy as np
from hostgpu.modules import KernelModule
rng = np.random.default_rng(0)
columns, rows, rank = 5, 50, 5
idx = np.concatenate([np.arange(rows)] * columns).astype("i4")
ptr = (np.arange(columns + 1) * rows).astype("i4")
y, W, Wn = rng.random(len(idx)), rng.random((rows, rank)), rng.random((rows, rank))
A, M = rng.random((columns, rank)), rng.random((rank, rank))
out, errors = np.zeros((columns, rank)), np.zeros(2)
name = "sweep<double, 5>"
kernel = KernelModule(open({path!r}).read(), (), (name,), {sanitize!r}).get_function(name)
kernel((2,), (64,), (np.int32(columns), ptr, idx, y, W, Wn, A, M, np.float64(0.1), np.float64(9),
                     out, errors))
residual = y.reshape(columns, rows) - A @ W.T
right = np.allclose(out, 0.1 * residual @ Wn + A @ M.T)
print("right:", right and np.isclose(errors.sum(), (residual**2).sum()))
"""


_starts: dict[str, bool] = {}


@pytest.fixture
def sanitized(run_python):
    """Runs a script under a sanitizer, or skips the test if there is none that works."""

    def run(script: str, sanitize: str):
        environment = hostgpu.sanitizer_environment(sanitize)
        if environment is None:
            pytest.skip(f"g++ came without the {sanitize} sanitizer")
        if sanitize not in _starts:
            _starts[sanitize] = run_python("pass", **environment)[0] == 0
        if not _starts[sanitize]:
            pytest.skip(f"Python does not start under the {sanitize} sanitizer")
        return run_python(script, **environment)

    return run


def test_race_in_shared_memory(sanitized):
    code, output = sanitized(RACE % "", "thread")
    assert "WARNING: ThreadSanitizer: data race" in output, output
    assert "kernel.cu:5" in output  # the line of the kernel
    assert "reversed: False" in output


def test_no_race_with_a_barrier(sanitized):
    code, output = sanitized(RACE % "__syncthreads()", "thread")
    assert code == 0, output
    assert "ThreadSanitizer" not in output
    assert "reversed: True" in output


def test_race_between_blocks(sanitized):
    code, output = sanitized(BETWEEN_BLOCKS % "out[0] += 1", "thread")
    assert "data race" in output, output
    code, output = sanitized(BETWEEN_BLOCKS % "atomicAdd(out, 1.0f)", "thread")
    assert code == 0, output
    assert "ThreadSanitizer" not in output
    assert "total: 4.0" in output


def test_fences_order_what_blocks_write(sanitized):
    code, output = sanitized(LAST_BLOCK % ("__threadfence()", "__threadfence()"), "thread")
    assert code == 0, output
    assert "ThreadSanitizer" not in output
    assert "total: 4.0" in output
    code, output = sanitized(LAST_BLOCK % ("", ""), "thread")
    assert "data race" in output, output


def test_blocks_have_shared_memory_of_their_own(sanitized):
    use = "{ __shared__ float s; s = 1; atomicAdd(out, s); }"
    code, output = sanitized(BETWEEN_BLOCKS % use, "thread")
    assert code == 0, output
    assert "ThreadSanitizer" not in output
    assert "total: 4.0" in output


def test_out_of_bounds(sanitized):
    code, output = sanitized(BOUNDS % "<=", "address")
    assert code != 0
    assert "AddressSanitizer: heap-buffer-overflow" in output, output
    assert "kernel.cu:3" in output


def test_in_bounds(sanitized):
    code, output = sanitized(BOUNDS % "<", "address")
    assert code == 0, output
    assert "filled: 40.0" in output


@pytest.mark.parametrize("sanitize", ["thread", "address"])
def test_errors_are_still_found(sanitized, sanitize):
    code, output = sanitized(STUCK, sanitize)
    assert code == 0, output
    assert output.count("found: k: block (0,0,0) is stuck") == 2


@pytest.mark.parametrize("sanitize", ["thread", "address"])
def test_sweep_is_clean(sanitized, sanitize):
    code, output = sanitized(SWEEP_RUN.format(path=str(SWEEP), sanitize=sanitize), sanitize)
    assert code == 0, output
    assert "Sanitizer" not in output
    assert "right: True" in output


def test_without_preload_the_command_is_given(run_python):
    if hostgpu.sanitizer_environment("thread") is None:
        pytest.skip("g++ came without the thread sanitizer")
    code, output = run_python("import hostgpu; hostgpu.install(sanitize='thread')")
    assert code != 0
    assert "start Python with LD_PRELOAD=" in output
