"""Kernels are Python: what is translated does what the same function does when Python runs it."""

import math
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.numba.functions import is_known, number_of
from rcurc_gpu.backends.numba.parts import exact_kernel, part
from rcurc_gpu.backends.numba.translate import UntranslatedError

Pair = namedtuple("Pair", "low high")


def agree(function, *args):
    """Let Python and the compiled function write to copies of the same arrays; they have to write the same, bit by bit."""
    copies = [[x.copy() if isinstance(x, np.ndarray) else x for x in args] for _ in range(2)]
    with np.errstate(all="ignore"):
        returned = function(*copies[0]), exact_kernel(function)(*copies[1])
    assert returned[0] == returned[1]
    for mine, theirs in zip(*copies, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    return [x for x in copies[1] if isinstance(x, np.ndarray)]


def integers(a, b, out):
    for k in range(len(a)):
        x, y = a[k], b[k]
        out[k, 0], out[k, 1], out[k, 2] = x // y, x % y, x / y
        out[k, 3], out[k, 4], out[k, 5] = x & y, x | y, x ^ y
        out[k, 6], out[k, 7], out[k, 8] = min(x, y, 3), max(x, y), abs(x)
        out[k, 9], out[k, 10], out[k, 11] = -x, x >> 1, x << 2
        out[k, 12], out[k, 13], out[k, 14] = x // 4, x % 4, 2.0**-3 * x


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_integers_are_pythons(dtype):
    a, b = (x.ravel() for x in np.meshgrid(np.arange(-9, 10), [-5, -4, -1, 1, 3, 8]))
    agree(integers, a.astype(dtype), b.astype(dtype), np.zeros((len(a), 15)))


def floats(a, b, out):
    for k in range(a.shape[0]):
        x, y = 1.0 * a[k], 1.0 * b[k]
        out[k, 0], out[k, 1], out[k, 2] = min(x, y), max(x, y), np.minimum(x, y)
        out[k, 3], out[k, 4], out[k, 5] = np.maximum(x, y), abs(x), -x
        out[k, 6], out[k, 7], out[k, 8] = x < y, x <= y, x == y
        out[k, 9], out[k, 10], out[k, 11] = x != y, x > y, x >= y
        out[k, 12], out[k, 13] = np.sqrt(abs(x)), np.rint(y)
        out[k, 14] = x if x < y or y < -1 else (y if x == y and not x > 1 else 7)


def test_floats_are_pythons_nan_and_infinity_included():
    numbers = [0.0, -0.0, 1.5, 2.5, -3.25, np.inf, -np.inf, np.nan]
    a, b = (x.ravel() for x in np.meshgrid(numbers, numbers))
    agree(floats, a, b, np.zeros((len(a), 15)))


def single(a, out):
    limit = a.dtype.type(0.1)
    for k in range(len(a)):
        rest = a[k] - limit
        out[k] = rest * rest * np.float32(1) / limit
        out[k] -= rest


def test_numbers_of_single_precision_stay_in_it():
    agree(single, np.linspace(-1, 1, 50, dtype=np.float32), np.zeros(50, np.float32))


def bits(a, out):
    for k in range(a.shape[0]):
        z = (a[k] ^ (a[k] >> np.uint64(27))) * np.uint64(0x9E3779B97F4A7C15)
        out[k] = np.float64(z >> np.uint64(11)) * 2.0**-53


def test_words_of_64_bits_have_no_sign():
    (_, out) = agree(bits, np.arange(1 << 63, (1 << 63) + 50, dtype=np.uint64), np.zeros(50))
    assert 0 <= out.min() <= out.max() < 1


def steps(a, out):
    n, i = 0, -1
    for i in range(len(a) - 1, -1, -2):
        if a[i] == 0:
            continue
        out[n] = 100 * i
        n += 1
        if n > 3:
            break
    for x in a:
        k = x
        while True:
            if k < 0 or (k < len(out) and out[k] > 0):  # nothing beyond the end is read
                break
            k -= 3
        n += k
    else_ = 1 if n > 5 and i > 0 else -1
    out[6], out[7] = out[0], else_
    out[0], out[1] = out[1], out[0]
    return n + i


steps.__annotations__["return"] = "int"


def test_loops_end_where_python_ends_them():
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 9, 30):
        agree(steps, rng.integers(0, 12, n), np.zeros(8, np.int64))


@part
def scaled(x, by, out):
    """``out = by x``; what is made here goes away."""
    room = np.empty(x.shape, x.dtype)
    for t in range(len(x)):
        room[t] = by * x[t]
    for t in range(len(x)):
        out[t] = room[t]
    return by + 1, len(x)


def views(A, pair, both, out):
    m, n = A.shape
    flat, last = A.ravel(), A.shape[1:]
    total = np.zeros((2, n))
    low, high = pair.low, pair.high
    for i in range(m):
        row, rest = A[i], A[i, low:]
        by, count = scaled(rest, 2.0, total[1, low:])
        some = total[1, low:high]
        for t in range(len(some)):
            total[0, low + t] += some[t] + by * count
        out[i] = row[0] + flat[i * n + n - 1] + last[0]
    first, second = both
    for t in range(n):
        out[m + t] = total[0, t] + first[t] * second
    out[0] += both[1]


def test_rows_and_slices_are_parts_of_the_array():
    rng = np.random.default_rng(1)
    A, both = rng.normal(size=(4, 7)), (rng.normal(size=7), 3)
    translated = exact_kernel(views)
    out = np.zeros((2, 11))
    translated(A, Pair(2, 5), both, out[0])
    globals()["scaled"] = scaled.function  # which Python can call
    try:
        views(A, Pair(2, 5), both, out[1])
    finally:
        globals()["scaled"] = part(scaled)
    np.testing.assert_array_equal(out[0], out[1])
    assert np.any(out[0])


def flags(a, out):
    for k in range(len(a)):
        out[k] = a[k] > 0
        out[k] = out[k] & (a[k] != 2)
    return 0


flags.__annotations__["return"] = "int"


def test_arrays_of_bools():
    agree(flags, np.arange(-3, 4), np.zeros(7, bool))


def lengths(rank, out):
    R = number_of(rank)
    for q in range(R):
        out[q] = R
    if is_known(rank):
        out[R] = -1


def test_a_tuple_stands_for_its_length():
    for rank, expected in ((3, [3, 3, 3, 0]), ((0, 0, 0), [3, 3, 3, -1])):
        out = np.zeros(4)
        exact_kernel(lengths)(rank, out)
        assert out.tolist() == expected


def logarithms(x, out):
    out[0], out[1], out[2], out[3] = math.log(x), math.log1p(x), math.exp(x), math.sqrt(x)


def test_functions_of_the_mathematical_library():
    out = np.zeros(4)
    exact_kernel(logarithms)(0.3, out)
    np.testing.assert_allclose(out, [np.log(0.3), np.log1p(0.3), np.exp(0.3), np.sqrt(0.3)], rtol=1e-15)


# ---------------------------------------------------------------- memory


@part
def greedy(n, out):
    """Take some memory."""
    room = np.zeros(n)
    for t in range(min(n, 3)):
        out[0] += room[t] + 1


def hungry(n, times, out):
    own = np.empty(5)
    for _ in range(times):
        greedy(n, out)
    own[0] = out[0]


def test_too_little_memory_is_an_error_and_what_was_taken_is_given_back():
    from numba.core.runtime import _nrt_python, rtsys

    run, out = exact_kernel(hungry), np.zeros(1)
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    run(1000, 20, out)
    assert out[0] == 60
    with pytest.raises(MemoryError, match="no memory"):
        run(1 << 58, 1, out)
    after = rtsys.get_allocation_stats()
    taken = after.alloc - before.alloc  # by Numba, too, for arguments
    assert taken >= 22
    assert after.free - before.free == taken


# ---------------------------------------------------------------- what is refused


def other_type(a):
    x = 1
    x = 0.5  # noqa: F841


def from_the_end(a):
    a[-1] = 0


def made_in_a_loop(a):
    for _ in range(3):
        np.empty(3)


def whole_array(a):
    a[:] = 0


def listed(a):
    [x for x in a]


def unknown(a):
    np.sort(a)


def chained(a):
    a[0] = 0 < a[1] < 2


def mixed(a):
    a[0] = np.uint64(len(a)) + 1


def two_results(a):
    if a[0] > 0:
        return 1.0
    return a


def unsaid(a):
    return 1


@pytest.mark.parametrize(
    ("function", "line", "words"),
    [
        (other_type, 2, "cannot become"),
        (from_the_end, 1, "from their beginning"),
        (made_in_a_loop, 2, "before loops"),
        (whole_array, 1, "element by element"),
        (listed, 1, "ListComp"),
        (unknown, 1, "sort"),
        (chained, 1, "two numbers"),
        (mixed, 1, "say which is meant"),
        (two_results, 3, "cannot become"),
    ],
)
def test_what_is_not_known_is_refused_with_its_line(function, line, words):
    with pytest.raises(UntranslatedError) as error:
        exact_kernel(function)(np.zeros(3))
    at = f"{Path(__file__).name}:{function.__code__.co_firstlineno + line}: "
    assert at in str(error.value)
    assert words in str(error.value)


def test_a_kernel_says_what_it_returns():
    with pytest.raises(TypeError, match="unsaid returns int64, and says none"):
        exact_kernel(unsaid)(np.zeros(3))


def test_kernels_take_contiguous_arrays_alone():
    with pytest.raises(TypeError, match="contiguous"):
        exact_kernel(flags)(np.arange(6)[::2], np.zeros(3, bool))


# ---------------------------------------------------------------- what is kept


def test_a_change_of_any_text_that_kernels_are_made_of_makes_them_anew(tmp_path):
    package = tmp_path / "site" / "rcurc_gpu"
    shutil.copytree(Path(rg.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import numpy as np; from rcurc_gpu.backends.blocks import Block;"
        "from rcurc_gpu.backends.numba import calls as cpu, core_kernels as k;"
        "one = np.zeros(1, np.int64); block = Block(np.asarray([0, 1]), one.astype(np.int32), np.ones(1), 1);"
        "cpu.held_out(block, one, one, 0, 0.5);"
        "print(k.__file__, sum(k.held_out.stats.cache_hits.values()))"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(tmp_path / "site")}

    def hits():
        command = [sys.executable, "-B", "-c", code]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        path, found = done.stdout.split()
        assert path.startswith(str(package))
        return int(found)

    assert [hits(), hits()] == [0, 1]
    other = package / "backends" / "numba" / "entries.py"
    times = other.stat()
    other.write_text(other.read_text().replace(" 2.0**-53", " 2.0**-52"))  # of the same size, and no younger
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [hits(), hits()] == [0, 1]
