"""A stand-in for cuSPARSE: SciPy on the "device" pointers.

It has what cupyx.scipy.sparse calls to build CSR, CSC and COO matrices, and to sort and convert them,
also from and to dense ones. Arithmetic is not there.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.sparse

from .pointers import DTYPES, array, matrix, one, quiet, stand_in

INDEX_DTYPES = {1: np.uint16, 2: np.int32, 3: np.int64}

CONSTANTS = {
    "CUSPARSE_POINTER_MODE_HOST": 0,
    "CUSPARSE_POINTER_MODE_DEVICE": 1,
    "CUSPARSE_ACTION_SYMBOLIC": 0,
    "CUSPARSE_ACTION_NUMERIC": 1,
    "CUSPARSE_INDEX_BASE_ZERO": 0,
    "CUSPARSE_INDEX_BASE_ONE": 1,
    "CUSPARSE_MATRIX_TYPE_GENERAL": 0,
    "CUSPARSE_FILL_MODE_LOWER": 0,
    "CUSPARSE_FILL_MODE_UPPER": 1,
    "CUSPARSE_DIAG_TYPE_NON_UNIT": 0,
    "CUSPARSE_DIAG_TYPE_UNIT": 1,
    "CUSPARSE_OPERATION_NON_TRANSPOSE": 0,
    "CUSPARSE_OPERATION_TRANSPOSE": 1,
    "CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE": 2,
    "CUSPARSE_DIRECTION_ROW": 0,
    "CUSPARSE_DIRECTION_COLUMN": 1,
    "CUSPARSE_INDEX_16U": 1,
    "CUSPARSE_INDEX_32I": 2,
    "CUSPARSE_INDEX_64I": 3,
    "CUSPARSE_ORDER_COL": 1,
    "CUSPARSE_ORDER_ROW": 2,
    "CUSPARSE_CSR2CSC_ALG1": 1,
    "CUSPARSE_SPARSETODENSE_ALG_DEFAULT": 0,
    "CUSPARSE_DENSETOSPARSE_ALG_DEFAULT": 0,
}


class CuSparseError(RuntimeError):
    """CuPy catches this; the stand-in never raises it."""


# ------------------------------------------------------------------------------------- descriptors

_descriptors: dict[int, object] = {}
_numbers = itertools.count(1)


def register(descriptor) -> int:
    """A handle for a descriptor."""
    number = next(_numbers)
    _descriptors[number] = descriptor
    return number


def destroy(number) -> None:
    _descriptors.pop(number, None)


class Compressed:
    """A CSR or CSC matrix in device memory."""

    def __init__(self, kind, rows, cols, nnz, indptr, indices, data, index_type, data_type):
        self.kind = kind
        self.shape = (rows, cols)
        self.nnz = nnz
        self.pointers = (indptr, indices, data)
        self.index_dtype = INDEX_DTYPES[index_type]
        self.dtype = DTYPES[data_type]

    def arrays(self):
        """indptr, indices and data, as NumPy arrays on the device memory."""
        indptr, indices, data = self.pointers
        major = self.shape[0] if self.kind == "csr" else self.shape[1]
        return (
            array(indptr, major + 1, self.index_dtype),
            array(indices, self.nnz, self.index_dtype),
            array(data, self.nnz, self.dtype),
        )

    def matrix(self):
        indptr, indices, data = self.arrays()
        make = scipy.sparse.csr_array if self.kind == "csr" else scipy.sparse.csc_array
        return make((data, indices, indptr), shape=self.shape)

    def resize(self, nnz, indptr) -> None:
        """The structure of a result that is about to be stored; its arrays come later."""
        self.nnz = nnz
        major = self.shape[0] if self.kind == "csr" else self.shape[1]
        array(self.pointers[0], major + 1, self.index_dtype)[...] = indptr

    def store(self, values) -> None:
        """Writes a matrix with as many entries as were announced."""
        indptr, indices, data = self.arrays()
        indptr[...] = values.indptr
        indices[...] = values.indices
        data[...] = values.data


class Coordinates:
    """A COO matrix in device memory."""

    def __init__(self, rows, cols, nnz, row, col, data, index_type, data_type):
        self.shape = (rows, cols)
        self.nnz = nnz
        self.pointers = (row, col, data)
        self.index_dtype = INDEX_DTYPES[index_type]
        self.dtype = DTYPES[data_type]

    def arrays(self):
        row, col, data = self.pointers
        return (
            array(row, self.nnz, self.index_dtype),
            array(col, self.nnz, self.index_dtype),
            array(data, self.nnz, self.dtype),
        )

    def matrix(self):
        row, col, data = self.arrays()
        return scipy.sparse.coo_array((data, (row, col)), shape=self.shape).tocsr()

    def resize(self, nnz, indptr) -> None:
        self.nnz = nnz

    def store(self, values) -> None:
        values = values.tocoo()
        row, col, data = self.arrays()
        row[...] = values.row
        col[...] = values.col
        data[...] = values.data


def create_csr(rows, cols, nnz, indptr, indices, data, indptr_type, index_type, base, data_type):
    return register(Compressed("csr", rows, cols, nnz, indptr, indices, data, index_type, data_type))


def create_csc(rows, cols, nnz, indptr, indices, data, indptr_type, index_type, base, data_type):
    return register(Compressed("csc", rows, cols, nnz, indptr, indices, data, index_type, data_type))


def create_coo(rows, cols, nnz, row, col, data, index_type, base, data_type):
    return register(Coordinates(rows, cols, nnz, row, col, data, index_type, data_type))


def create_sparse_vector(size, nnz, indices, data, index_type, base, data_type):
    return register((array(indices, nnz, INDEX_DTYPES[index_type]),
                     array(data, nnz, DTYPES[data_type])))  # fmt: skip


def create_vector(size, data, data_type):
    return register(array(data, size, DTYPES[data_type]))


def create_matrix(rows, cols, ld, data, data_type, order):
    if order == CONSTANTS["CUSPARSE_ORDER_COL"]:
        return register(matrix(data, ld, rows, cols, DTYPES[data_type]))
    return register(matrix(data, ld, cols, rows, DTYPES[data_type]).T)


def matrix_size(number, rows, cols, nnz) -> None:
    found = _descriptors[number]
    array(rows, 1, np.int64)[0] = found.shape[0]
    array(cols, 1, np.int64)[0] = found.shape[1]
    array(nnz, 1, np.int64)[0] = found.nnz


# ----------------------------------------------------------------------------- sorting, conversion


def identity_permutation(handle, n, p) -> None:
    array(p, n, np.int32)[...] = np.arange(n)


def sort_triplets(major, minor, p, nnz) -> None:
    """Sorts by major, then minor index, and the permutation with them."""
    major = array(major, nnz, np.int32)
    minor = array(minor, nnz, np.int32)
    permutation = array(p, nnz, np.int32)
    order = np.lexsort((minor, major))
    for values in (major, minor, permutation):
        values[...] = values[order]


def sort_coo_by_row(handle, m, n, nnz, row, col, p, work) -> None:
    sort_triplets(row, col, p, nnz)


def sort_coo_by_column(handle, m, n, nnz, row, col, p, work) -> None:
    sort_triplets(col, row, p, nnz)


def sort_compressed(major_size, nnz, indptr, indices, p) -> None:
    indptr = array(indptr, major_size + 1, np.int32)
    indices = array(indices, nnz, np.int32)
    permutation = array(p, nnz, np.int32)
    major = np.repeat(np.arange(major_size), np.diff(indptr))
    order = np.lexsort((indices, major))
    for values in (indices, permutation):
        values[...] = values[order]


def sort_csr(handle, m, n, nnz, descriptor, indptr, indices, p, work) -> None:
    sort_compressed(m, nnz, indptr, indices, p)


def sort_csc(handle, m, n, nnz, descriptor, indptr, indices, p, work) -> None:
    sort_compressed(n, nnz, indptr, indices, p)


def gather(handle, y, x) -> None:
    """The elements of the dense vector y at the indices of the sparse vector x."""
    indices, data = _descriptors[x]
    data[...] = _descriptors[y][indices]


def rows_to_pointers(handle, row, nnz, m, indptr, base) -> None:
    counts = np.bincount(array(row, nnz, np.int32), minlength=m)
    array(indptr, m + 1, np.int32)[...] = np.concatenate(([0], np.cumsum(counts)))


def pointers_to_rows(handle, indptr, nnz, m, row, base) -> None:
    counts = np.diff(array(indptr, m + 1, np.int32))
    array(row, nnz, np.int32)[...] = np.repeat(np.arange(m), counts)


def csr_to_csc(
    handle, m, n, nnz, data, indptr, indices, out_data, out_indptr, out_indices,
    data_type, action, base, algorithm, work,
):  # fmt: skip
    source = Compressed("csr", m, n, nnz, indptr, indices, data, 2, data_type)
    target = Compressed("csc", m, n, nnz, out_indptr, out_indices, out_data, 2, data_type)
    target.store(source.matrix().tocsc())


def to_dense(handle, a, b, algorithm, work) -> None:
    _descriptors[b][...] = _descriptors[a].matrix().toarray()


def from_dense_analysis(handle, a, b, algorithm, work) -> None:
    dense = _descriptors[a]
    target = _descriptors[b]
    by_column = getattr(target, "kind", "csr") == "csc"
    counts = np.count_nonzero(dense, axis=0 if by_column else 1)
    target.resize(int(counts.sum()), np.concatenate(([0], np.cumsum(counts))))


def from_dense_convert(handle, a, b, algorithm, work) -> None:
    target = _descriptors[b]
    make = scipy.sparse.csr_array
    if getattr(target, "kind", "csr") == "csc":
        make = scipy.sparse.csc_array
    target.store(make(np.asarray(_descriptors[a])))


# -------------------------------------------------------------------------------------- the module

FUNCTIONS = {
    "create": one,
    "createMatDescr": one,
    "destroy": quiet,
    "destroyMatDescr": quiet,
    "setStream": quiet,
    "setPointerMode": quiet,
    "setMatType": quiet,
    "setMatIndexBase": quiet,
    "setMatFillMode": quiet,
    "setMatDiagType": quiet,
    "getVersion": lambda handle: 12700,
    "get_build_version": lambda: 12700,
    "is_cuda_python_build": lambda: False,
    "createCsr": create_csr,
    "createCsc": create_csc,
    "createCoo": create_coo,
    "createSpVec": create_sparse_vector,
    "createDnVec": create_vector,
    "createDnMat": create_matrix,
    "destroySpMat": destroy,
    "destroySpVec": destroy,
    "destroyDnVec": destroy,
    "destroyDnMat": destroy,
    "spMatGetSize": matrix_size,
    "createIdentityPermutation": identity_permutation,
    "xcoosort_bufferSizeExt": one,
    "xcoosortByRow": sort_coo_by_row,
    "xcoosortByColumn": sort_coo_by_column,
    "xcsrsort_bufferSizeExt": one,
    "xcsrsort": sort_csr,
    "xcscsort_bufferSizeExt": one,
    "xcscsort": sort_csc,
    "gather": gather,
    "xcoo2csr": rows_to_pointers,
    "xcsr2coo": pointers_to_rows,
    "csr2cscEx2_bufferSize": one,
    "csr2cscEx2": csr_to_csc,
    "sparseToDense_bufferSize": one,
    "sparseToDense": to_dense,
    "denseToSparse_bufferSize": one,
    "denseToSparse_analysis": from_dense_analysis,
    "denseToSparse_convert": from_dense_convert,
}


def install() -> None:
    """Puts the stand-in in place; before CuPy is imported."""
    constants = CONSTANTS | {"CuSparseError": CuSparseError}
    stand_in("cupy_backends.cuda.libs.cusparse", constants, FUNCTIONS)
