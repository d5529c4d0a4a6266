"""Stream capture and graphs: what is recorded, what is replayed, and what is refused as CuPy and CUDA refuse it."""

import itertools
from contextlib import nullcontext

import cupy as cp
import numpy as np
import pytest
from cupy import cublas

import hostgpu

SOURCE = """
extern "C" __global__ void scale(double* x, int n, double factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] *= factor;
    }
}
"""


@pytest.fixture
def stream():
    return cp.cuda.Stream(non_blocking=True)


@pytest.fixture
def scale():
    return cp.RawKernel(SOURCE, "scale")


def captured(stream, work):
    with stream:
        stream.begin_capture()
        try:
            work()
        finally:
            graph = stream.end_capture()
        return graph


def test_a_capture_does_nothing_and_its_graph_replays_launches_copies_and_fills(stream, scale):
    x, y = cp.arange(5.0), cp.zeros(5)
    scale((1,), (8,), (y, np.int32(5), 1.0))  # loaded before the capture
    host = cp.cuda.alloc_pinned_memory(x.nbytes)
    table = np.frombuffer(host, np.float64, 5)

    def work():
        scale((1,), (8,), (x, np.int32(5), 2.0))
        cp.copyto(y, x)
        y.data.memset_async(0, 8, stream)
        cp.cuda.runtime.memcpyAsync(host.ptr, y.data.ptr, y.nbytes, cp.cuda.runtime.memcpyDeviceToHost, stream.ptr)

    hostgpu.reset_stats()
    graph = captured(stream, work)
    np.testing.assert_array_equal(cp.asnumpy(x), np.arange(5.0))
    before = hostgpu.stats()
    assert (before["launches"], before["graph_launches"], before["graph_kernels"]) == (0, 0, 0)
    hostgpu.reset_stats()
    for factor in (2.0, 4.0):
        graph.launch(stream)
        np.testing.assert_array_equal(table, [0, *(factor * np.arange(1.0, 5))])
    stats = hostgpu.stats()
    assert (stats["launches"], stats["d2h_copies"], stats["graph_launches"]) == (0, 0, 2)
    assert stats["graph_kernels_by_name"]["scale"] == 2
    assert stats["d2h_bytes"] == 2 * y.nbytes


def test_arguments_are_kept_by_value(stream, scale):
    x = cp.ones(3)
    scale((1,), (8,), (x, np.int32(3), 1.0))
    graph = captured(stream, lambda: [scale((1,), (8,), (x, np.int32(n), 10.0)) for n in (1, 2)])
    graph.launch()
    np.testing.assert_array_equal(cp.asnumpy(x), [100, 10, 1])


# Of these NotImplementedError, which is a RuntimeError, is CuPy's own word for libraries.
REFUSED = {
    "cuBLAS": (NotImplementedError, lambda x: cublas.gemm("N", "N", x, x, out=x)),
    "a product": (RuntimeError, lambda x: x @ x),
    "cuSOLVER": (RuntimeError, lambda x: cp.linalg.qr(x)),
    "sorting": (RuntimeError, lambda x: x.sort()),
    "an allocation": (RuntimeError, lambda x: cp.empty(7)),
    "a large allocation": (RuntimeError, lambda x: cp.empty(1 << 20)),
    "pinned memory": (RuntimeError, lambda x: cp.cuda.runtime.hostAlloc(64, 0)),
    "a read-back": (RuntimeError, lambda x: x.get()),
    "a number on the host": (RuntimeError, lambda x: float(x[0, 0])),
    "waiting": (RuntimeError, lambda x: cp.cuda.get_current_stream().synchronize()),
    "waiting for the device": (RuntimeError, lambda x: cp.cuda.runtime.deviceSynchronize()),
    "a module": (RuntimeError, lambda x: cp.RawKernel(SOURCE + f"// {next(NUMBERS)}", "scale").compile()),
}
NUMBERS = itertools.count()  # CuPy keeps a module that it has loaded


BY_CUPY = {"a read-back", "a number on the host"}  # before anything reaches the driver, so that the capture goes on


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_during_a_capture(stream, what):
    error, call = REFUSED[what]
    x = cp.eye(3)
    call(cp.eye(3))  # fine outside of a capture
    with stream:
        stream.begin_capture()
        with pytest.raises(error):
            call(x)
        with nullcontext() if what in BY_CUPY else pytest.raises(cp.cuda.runtime.CUDARuntimeError):
            stream.end_capture()
    assert not stream.is_capturing()
    np.testing.assert_array_equal(cp.asnumpy(x @ x), np.eye(3))  # and all is well again


def test_work_on_other_streams_is_done_at_once(stream, scale):
    x = cp.ones(3)
    scale((1,), (8,), (x, np.int32(3), 1.0))

    def work():
        with cp.cuda.Stream(non_blocking=True):
            scale((1,), (8,), (x, np.int32(3), 2.0))

    captured(stream, work)
    np.testing.assert_array_equal(cp.asnumpy(x), 2)


def test_the_default_stream_cannot_be_captured_nor_used_beside_a_blocking_one(scale):
    with pytest.raises(RuntimeError):
        cp.cuda.Stream.null.begin_capture()
    x, blocking = cp.ones(3), cp.cuda.Stream()
    scale((1,), (8,), (x, np.int32(3), 1.0))
    blocking.begin_capture()
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError):
        scale((1,), (8,), (x, np.int32(3), 2.0))
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError):
        blocking.end_capture()
