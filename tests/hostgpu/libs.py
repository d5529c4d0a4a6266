"""Stand-ins for cuBLAS and cuSOLVER: NumPy and LAPACK on the "device" pointers.

The functions have the signatures of CuPy's wrappers in cupy_backends.cuda.libs; CuPy's own Python
code above them runs as it is. Matrices are column-major. Handles, streams and pointer modes mean
nothing here, and results are those of the CPU's LAPACK: what is the same is what is computed, not
its rounding, the signs of singular vectors, or the time it takes.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from .pointers import (
    DTYPES,
    LETTERS,
    array,
    from_numpy,
    matrix,
    one,
    quiet,
    scalar,
    stand_in,
    vector,
    view,
)

LOWER = 0  # CUBLAS_FILL_MODE_LOWER
LEFT = 0  # CUBLAS_SIDE_LEFT
UNIT = 1  # CUBLAS_DIAG_UNIT

CUBLAS_CONSTANTS = {
    "CUBLAS_OP_N": 0,
    "CUBLAS_OP_T": 1,
    "CUBLAS_OP_C": 2,
    "CUBLAS_POINTER_MODE_HOST": 0,
    "CUBLAS_POINTER_MODE_DEVICE": 1,
    "CUBLAS_SIDE_LEFT": 0,
    "CUBLAS_SIDE_RIGHT": 1,
    "CUBLAS_FILL_MODE_LOWER": 0,
    "CUBLAS_FILL_MODE_UPPER": 1,
    "CUBLAS_DIAG_NON_UNIT": 0,
    "CUBLAS_DIAG_UNIT": 1,
    "CUBLAS_GEMM_DEFAULT": -1,
    "CUBLAS_GEMM_DEFAULT_TENSOR_OP": 99,
    "CUBLAS_DEFAULT_MATH": 0,
    "CUBLAS_TENSOR_OP_MATH": 1,
    "CUBLAS_COMPUTE_32F": 68,
    "CUBLAS_COMPUTE_32F_PEDANTIC": 69,
    "CUBLAS_COMPUTE_64F": 70,
    "CUBLAS_COMPUTE_64F_PEDANTIC": 71,
    "CUBLAS_COMPUTE_32I": 72,
    "CUBLAS_COMPUTE_32I_PEDANTIC": 73,
    "CUBLAS_COMPUTE_32F_FAST_16F": 74,
    "CUBLAS_COMPUTE_32F_FAST_16BF": 75,
    "CUBLAS_COMPUTE_32F_FAST_TF32": 77,
}

CUSOLVER_CONSTANTS = {
    "CUSOLVER_EIG_MODE_NOVECTOR": 0,
    "CUSOLVER_EIG_MODE_VECTOR": 1,
}


def transposed(a: np.ndarray, op: int) -> np.ndarray:
    """op(A) for CUBLAS_OP_N, _T or _C; nothing here is complex."""
    return a.T if op else a


def set_info(pointer: int, value: int) -> None:
    array(pointer, 1, np.int32)[0] = value


def pointer_list(pointer: int, count: int) -> list[int]:
    """The addresses of the matrices of a batch."""
    return array(pointer, count, np.uintp).tolist()


def pointer_lists(count: int, *pointers: int):
    """The addresses of what belongs together in several batches."""
    return zip(*[pointer_list(pointer, count) for pointer in pointers], strict=True)


# ------------------------------------------------------------------------------------------ cuBLAS


def multiply(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, dtype):
    """C = alpha op(A) op(B) + beta C."""
    left = transposed(matrix(a, lda, *((k, m) if ta else (m, k)), dtype), ta)
    right = transposed(matrix(b, ldb, *((n, k) if tb else (k, n)), dtype), tb)
    result = matrix(c, ldc, m, n, dtype)
    update(result, scalar(alpha, dtype), lambda: left @ right, scalar(beta, dtype))


def update(target, alpha, product, beta) -> None:
    """target = alpha product() + beta target; as in BLAS, what has a factor of 0 is not read."""
    if beta == 0:
        target[...] = 0
    elif beta != 1:
        target *= beta
    if alpha != 0:
        target += alpha * product()


def gemm_ex(
    handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc,
    compute=None, algorithm=None,
):  # fmt: skip
    multiply(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, DTYPES[c_type])


def gemm_strided_batched_ex(
    handle, ta, tb, m, n, k, alpha, a, a_type, lda, a_step, b, b_type, ldb, b_step, beta,
    c, c_type, ldc, c_step, count, compute, algorithm,
):  # fmt: skip
    dtype = DTYPES[c_type]
    size = np.dtype(dtype).itemsize
    for i in range(count):
        multiply(
            ta, tb, m, n, k, alpha, a + i * a_step * size, lda, b + i * b_step * size, ldb,
            beta, c + i * c_step * size, ldc, dtype,
        )  # fmt: skip


def solve_triangular(side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, dtype):
    """op(A) X = alpha B, or X op(A) = alpha B; X replaces B."""
    size = m if side == LEFT else n
    factor = matrix(a, lda, size, size, dtype)
    right = matrix(b, ldb, m, n, dtype)
    scaled = scalar(alpha, dtype) * right
    options = {"lower": uplo == LOWER, "unit_diagonal": diag == UNIT, "check_finite": False}
    if side == LEFT:
        right[...] = scipy.linalg.solve_triangular(factor, scaled, trans=trans, **options)
    else:
        # X op(A) = B is op(A)' X' = B'
        right[...] = scipy.linalg.solve_triangular(factor, scaled.T, trans=trans == 0, **options).T


def factorize_lu(a, lda, n, m, dtype):
    """LU of the matrix at a, in place; returns 1-origin pivots and LAPACK's info."""
    whole = matrix(a, lda, m, n, dtype)
    (getrf,) = lapack.get_lapack_funcs(("getrf",), (whole,))
    factors, pivots, info = getrf(whole)
    whole[...] = factors
    return pivots + 1, info


def substitute_lu(trans, n, nrhs, a, lda, pivots, b, ldb, dtype):
    """Solves with the factors of factorize_lu."""
    factors = matrix(a, lda, n, n, dtype)
    right = matrix(b, ldb, n, nrhs, dtype)
    (getrs,) = lapack.get_lapack_funcs(("getrs",), (factors,))
    solution, info = getrs(factors, pivots - 1, right, trans=trans)
    right[...] = solution
    return info


def blas_functions(letter: str, dtype) -> dict:
    """The functions of cuBLAS for one type, by their names."""

    def nrm2(handle, n, x, step, result):
        array(result, 1, dtype)[0] = np.linalg.norm(vector(x, n, dtype, step))

    def dot(handle, n, x, x_step, y, y_step, result):
        array(result, 1, dtype)[0] = vector(x, n, dtype, x_step) @ vector(y, n, dtype, y_step)

    def gemv(handle, trans, m, n, alpha, a, lda, x, x_step, beta, y, y_step):
        op = transposed(matrix(a, lda, m, n, dtype), trans)
        source = vector(x, op.shape[1], dtype, x_step)
        result = vector(y, op.shape[0], dtype, y_step)
        update(result, scalar(alpha, dtype), lambda: op @ source, scalar(beta, dtype))

    def gemm(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        multiply(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, dtype)

    def gemm_batched(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count):
        for one_a, one_b, one_c in pointer_lists(count, a, b, c):
            multiply(ta, tb, m, n, k, alpha, one_a, lda, one_b, ldb, beta, one_c, ldc, dtype)

    def gemm_strided_batched(handle, ta, tb, m, n, k, alpha, a, lda, a_step, b, ldb, b_step, beta, c, ldc, c_step, count):
        size = np.dtype(dtype).itemsize
        for i in range(count):
            multiply(
                ta, tb, m, n, k, alpha, a + i * a_step * size, lda, b + i * b_step * size, ldb,
                beta, c + i * c_step * size, ldc, dtype,
            )  # fmt: skip

    def trsm(handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb):
        solve_triangular(side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, dtype)

    def trsm_batched(handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, count):
        for one_a, one_b in pointer_lists(count, a, b):
            solve_triangular(side, uplo, trans, diag, m, n, alpha, one_a, lda, one_b, ldb, dtype)

    def geam(handle, ta, tb, m, n, alpha, a, lda, beta, b, ldb, c, ldc):
        left = transposed(matrix(a, lda, *((n, m) if ta else (m, n)), dtype), ta)
        right = transposed(matrix(b, ldb, *((n, m) if tb else (m, n)), dtype), tb)
        total = np.zeros((m, n), dtype)
        update(total, scalar(alpha, dtype), lambda: left, 1)
        update(total, scalar(beta, dtype), lambda: right, 1)
        matrix(c, ldc, m, n, dtype)[...] = total

    def getrf_batched(handle, n, a, lda, pivots, info, count):
        for i, one_a in enumerate(pointer_list(a, count)):
            found, status = factorize_lu(one_a, lda, n, n, dtype)
            array(pivots, (count, n), np.int32)[i] = found
            array(info, count, np.int32)[i] = status

    def getrs_batched(handle, trans, n, nrhs, a, lda, pivots, b, ldb, info, count):
        found = array(pivots, (count, n), np.int32)
        for i, (one_a, one_b) in enumerate(pointer_lists(count, a, b)):
            substitute_lu(trans, n, nrhs, one_a, lda, found[i], one_b, ldb, dtype)
        set_info(info, 0)

    names = {
        "nrm2": nrm2,
        "dot": dot,
        "gemv": gemv,
        "gemm": gemm,
        "gemmBatched": gemm_batched,
        "gemmStridedBatched": gemm_strided_batched,
        "geam": geam,
        "trsm": trsm,
        "trsmBatched": trsm_batched,
        "getrfBatched": getrf_batched,
        "getrsBatched": getrs_batched,
    }
    return {letter + name: function for name, function in names.items()}


def install_cublas():
    functions = {
        "create": one,
        "destroy": quiet,
        "setStream": quiet,
        "setMathMode": quiet,
        "setPointerMode": quiet,
        "getStream": quiet,
        "getMathMode": lambda handle: 0,
        "getPointerMode": lambda handle: 0,
        "getVersion": lambda handle: 130000,
        "gemmEx": gemm_ex,
        "gemmStridedBatchedEx": gemm_strided_batched_ex,
    }
    for letter, dtype in LETTERS.items():
        functions |= blas_functions(letter, dtype)
    return stand_in("cupy_backends.cuda.libs.cublas", CUBLAS_CONSTANTS, functions)


# ---------------------------------------------------------------------------------------- cuSOLVER


def cholesky(uplo, n, a, lda, dtype) -> int:
    """The factor of one triangle, in place; returns LAPACK's info."""
    whole = matrix(a, lda, n, n, dtype)
    (potrf,) = lapack.get_lapack_funcs(("potrf",), (whole,))
    factor, info = potrf(whole, lower=uplo == LOWER, clean=False)
    whole[...] = factor
    return info


def cholesky_solve(uplo, n, nrhs, a, lda, b, ldb, dtype) -> int:
    factor = matrix(a, lda, n, n, dtype)
    right = matrix(b, ldb, n, nrhs, dtype)
    (potrs,) = lapack.get_lapack_funcs(("potrs",), (factor,))
    solution, info = potrs(factor, right, lower=uplo == LOWER)
    right[...] = solution
    return info


def solver_functions(letter: str, dtype) -> dict:
    """The functions of cuSOLVER for one type, by their names."""

    def getrf(handle, m, n, a, lda, work, pivots, info):
        found, status = factorize_lu(a, lda, n, m, dtype)
        if pivots:
            array(pivots, min(m, n), np.int32)[...] = found
        set_info(info, status)

    def getrs(handle, trans, n, nrhs, a, lda, pivots, b, ldb, info):
        found = array(pivots, n, np.int32)
        set_info(info, substitute_lu(trans, n, nrhs, a, lda, found, b, ldb, dtype))

    def potrf(handle, uplo, n, a, lda, work, work_size, info):
        set_info(info, cholesky(uplo, n, a, lda, dtype))

    def potrs(handle, uplo, n, nrhs, a, lda, b, ldb, info):
        set_info(info, cholesky_solve(uplo, n, nrhs, a, lda, b, ldb, dtype))

    def potrf_batched(handle, uplo, n, a, lda, info, count):
        for i, one_a in enumerate(pointer_list(a, count)):
            array(info, count, np.int32)[i] = cholesky(uplo, n, one_a, lda, dtype)

    def potrs_batched(handle, uplo, n, nrhs, a, lda, b, ldb, info, count):
        for one_a, one_b in pointer_lists(count, a, b):
            set_info(info, cholesky_solve(uplo, n, nrhs, one_a, lda, one_b, ldb, dtype))

    def geqrf(handle, m, n, a, lda, tau, work, work_size, info):
        whole = matrix(a, lda, m, n, dtype)
        (function,) = lapack.get_lapack_funcs(("geqrf",), (whole,))
        whole[...], found, _, status = function(whole)
        array(tau, min(m, n), dtype)[...] = found
        set_info(info, status)

    def orgqr(handle, m, n, k, a, lda, tau, work, work_size, info):
        whole = matrix(a, lda, m, n, dtype)
        (function,) = lapack.get_lapack_funcs(("orgqr",), (whole,))
        whole[...], _, status = function(whole, array(tau, k, dtype))
        set_info(info, status)

    def gesvd(handle, job_u, job_vt, m, n, a, lda, s, u, ldu, vt, ldvt, work, size, rwork, info):
        if m < n:
            raise ValueError("cuSOLVER's gesvd needs m >= n")
        job_u, job_vt = chr(job_u), chr(job_vt)
        whole = matrix(a, lda, m, n, dtype)
        left, values, right = np.linalg.svd(whole, full_matrices=job_u == "A")
        array(s, n, dtype)[...] = values
        if job_u == "A":
            matrix(u, ldu, m, m, dtype)[...] = left
        elif job_u == "S":
            matrix(u, ldu, m, n, dtype)[...] = left[:, :n]
        elif job_u == "O":
            whole[...] = left[:, :n]
        if job_vt in "AS":
            matrix(vt, ldvt, n, n, dtype)[...] = right
        elif job_vt == "O":
            whole[:n] = right
        set_info(info, 0)

    def gesvdj(handle, jobz, econ, m, n, a, lda, s, u, ldu, v, ldv, work, size, info, params):
        whole = matrix(a, lda, m, n, dtype)
        left, values, right = np.linalg.svd(whole, full_matrices=not econ)
        array(s, min(m, n), dtype)[...] = values
        if jobz:
            matrix(u, ldu, *left.shape, dtype)[...] = left
            matrix(v, ldv, *right.T.shape, dtype)[...] = right.T
        set_info(info, 0)

    functions = {
        "getrf": getrf,
        "getrs": getrs,
        "potrf": potrf,
        "potrs": potrs,
        "potrfBatched": potrf_batched,
        "potrsBatched": potrs_batched,
        "geqrf": geqrf,
        "orgqr": orgqr,
        "gesvd": gesvd,
        "gesvdj": gesvdj,
    }
    sizes = {name + "_bufferSize": one for name in functions}
    return {letter + name: function for name, function in (functions | sizes).items()}


def xsyevd(
    handle, params, jobz, uplo, n, a_type, a, lda, w_type, w, compute_type,
    work, work_size, host_work, host_work_size, info,
):  # fmt: skip
    whole = matrix(a, lda, n, n, DTYPES[a_type])
    values, vectors = np.linalg.eigh(whole, "L" if uplo == LOWER else "U")
    array(w, n, DTYPES[w_type])[...] = values
    if jobz:
        whole[...] = vectors
    set_info(info, 0)


def install_cusolver():
    functions = {
        "create": one,
        "spCreate": one,
        "createParams": one,
        "createGesvdjInfo": one,
        "destroy": quiet,
        "spDestroy": quiet,
        "destroyParams": quiet,
        "destroyGesvdjInfo": quiet,
        "setStream": quiet,
        "spSetStream": quiet,
        "_getVersion": lambda: (12, 0, 0),
        "xsyevd": xsyevd,
        "xsyevd_bufferSize": lambda *args: (1, 1),
    }
    for letter, dtype in LETTERS.items():
        functions |= solver_functions(letter, dtype)
    return stand_in("cupy_backends.cuda.libs.cusolver", CUSOLVER_CONSTANTS, functions)


# ---------------------------------------------------------------------------------- cupyx.cusolver


def check_availability(name: str) -> bool:
    return name in ("gesvdj", "gesvdjBatched", "gesvda", "potrfBatched", "potrsBatched", "syevj")


def gesvdj(a, full_matrices=True, compute_uv=True, overwrite_a=False):
    """As CuPy's: (u, s, v) with a = u @ diag(s) @ v.T, for one matrix or for a stack."""
    if not compute_uv:
        return from_numpy(np.linalg.svd(view(a), compute_uv=False))
    u, s, vt = np.linalg.svd(view(a), full_matrices=full_matrices)
    v = vt.swapaxes(-2, -1)
    if a.ndim == 2:
        return from_numpy(u, "F"), from_numpy(s), from_numpy(v, "F")
    return from_numpy(u), from_numpy(s), from_numpy(v)


def gesvdj_batched(a, full_matrices, compute_uv, overwrite_a):
    return gesvdj(a, full_matrices, compute_uv, overwrite_a)


def gesvd_batched(a, a_dtype, full_matrices, compute_uv, overwrite_a):
    return gesvdj(a.astype(a_dtype, copy=False), full_matrices, compute_uv)


def gesvda(a, compute_uv=True):
    """The thin decomposition of tall matrices."""
    return gesvdj(a, False, compute_uv)


def syevj(a, UPLO="L", with_eigen_vector=True):
    values, vectors = np.linalg.eigh(view(a), UPLO)
    if with_eigen_vector:
        return from_numpy(values), from_numpy(vectors)
    return from_numpy(values)


def geqrf_orgqr_batched(a, mode):
    """QR of a stack of matrices; modes "reduced", "complete" and "r"."""
    if mode == "raw":
        raise NotImplementedError("hostgpu: batched qr with mode='raw'")
    stack = [np.linalg.qr(one_a, mode) for one_a in view(a)]
    if mode == "r":
        return from_numpy(np.stack(stack))
    return from_numpy(np.stack([q for q, _ in stack])), from_numpy(np.stack([r for _, r in stack]))


def install_cupyx_cusolver():
    """The compiled module under cupyx.cusolver, which is linked to the real library."""
    functions = {
        "check_availability": check_availability,
        "gesvdj": gesvdj,
        "_gesvdj_batched": gesvdj_batched,
        "_gesvd_batched": gesvd_batched,
        "gesvda": gesvda,
        "syevj": syevj,
        "_syevj_batched": syevj,
        "_geqrf_orgqr_batched": geqrf_orgqr_batched,
    }
    tables = ("cuda_version", "hip_version", "compute_capability")
    constants = {f"_available_{table}": {} for table in tables}
    return stand_in(f"cupyx.{compiled_cusolver()}", constants, functions)


def compiled_cusolver() -> str:
    """How that module is called: CuPy 14 has one in Python around it. To import cupyx would be too early."""
    (place,) = importlib.util.find_spec("cupyx").submodule_search_locations
    return "_cusolver" if any(Path(place).glob("_cusolver.*")) else "cusolver"


def bind_cusolver() -> None:
    """Makes the stand-in an attribute of cupyx, as an import would have; after CuPy was imported."""
    import cupyx

    name = compiled_cusolver()
    setattr(cupyx, name, sys.modules[f"cupyx.{name}"])


def install() -> None:
    """Puts the stand-ins in place; before CuPy is imported."""
    import cupy_backends.cuda.libs  # noqa: F401 - the stand-ins become its attributes

    install_cublas()
    install_cusolver()
    install_cupyx_cusolver()
    stand_in("cupy_backends.cuda.libs.curand", {}, {})  # can be imported; every call says that it is not there
