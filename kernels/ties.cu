// How rows and columns tie each other down through the entries they share (judge/ties.py): the normal equations of each unit, their
// inverses, and components that rest on one entry. lanczos.cu has the rest.
//
// REAL and RANK, the unknowns of a unit, are given with -D.
#include "entry.cuh"
#include "reduce.cuh"

constexpr int WARPS = 4;     // of a block, as in cuda/ties.py
constexpr int SOLVERS = 2;   // warps of a block of `invert`: each has two matrices in shared memory
constexpr int PACKED = RANK * (RANK + 1) / 2;
constexpr int SQUARE = RANK * RANK;
constexpr int THREADS = 32 * WARPS;

// Packed sums of x x^T over the entries of each unit. A warp has a unit, a lane some entries of the matrix.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    grams(int64 units, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ X,
          REAL* __restrict__ packed) {
    constexpr int PER_LANE = (PACKED + 31) / 32;
    const int lane = threadIdx.x % 32;
    int row[PER_LANE], column[PER_LANE];
#pragma unroll
    for (int l = 0; l < PER_LANE; l++) {
        const int e = lane + 32 * l;
        row[l] = 0;
        while ((row[l] + 1) * (row[l] + 2) / 2 <= e && row[l] < RANK - 1) {
            row[l]++;
        }
        column[l] = e < PACKED ? e - row[l] * (row[l] + 1) / 2 : 0;
    }
    for (int64 unit = int64(blockIdx.x) * WARPS + threadIdx.x / 32; unit < units; unit += int64(gridDim.x) * WARPS) {
        REAL sum[PER_LANE];
#pragma unroll
        for (int l = 0; l < PER_LANE; l++) {
            sum[l] = 0;
        }
        for (int64 at = indptr[unit]; at < indptr[unit + 1]; at++) {
            const REAL* x = X + int64(index[at]) * RANK;
#pragma unroll
            for (int l = 0; l < PER_LANE; l++) {
                sum[l] += x[row[l]] * x[column[l]];
            }
        }
#pragma unroll
        for (int l = 0; l < PER_LANE; l++) {
            if (lane + 32 * l < PACKED) {
                packed[unit * PACKED + lane + 32 * l] = sum[l];
            }
        }
    }
}

// The lower Cholesky factor, in place. By a warp, a lane for each row.
__device__ __forceinline__ void factorise(REAL (*a)[RANK + 1], int lane) {
    for (int j = 0; j < RANK; j++) {
        __syncwarp();
        const REAL pivot = sqrt(a[j][j]);
        __syncwarp();
        if (lane >= j && lane < RANK) {
            a[lane][j] = lane == j ? pivot : a[lane][j] / pivot;
        }
        __syncwarp();
        if (lane > j && lane < RANK) {
            for (int p = j + 1; p <= lane; p++) {
                a[lane][p] -= a[lane][j] * a[p][j];
            }
        }
    }
    __syncwarp();
}

// The inverse of such a factor, to b, whose triangle above the diagonal becomes 0. By a warp, a lane for each column.
__device__ __forceinline__ void invert_factor(REAL (*a)[RANK + 1], REAL (*b)[RANK + 1], int lane) {
    if (lane < RANK) {
        for (int i = 0; i < RANK; i++) {
            REAL rest = i == lane;
            for (int p = lane; p < i; p++) {
                rest -= a[i][p] * b[p][lane];
            }
            b[i][lane] = i < lane ? REAL(0) : rest / a[i][i];
        }
    }
}

// Inverses (units, RANK, RANK) of packed matrices, with a ridge relative to the mean of their diagonals; `skew` is the trace of the
// inverse as if that mean were 1. Where there are normal numbers, moved = L normal with L L^T the inverse.
extern "C" __global__ void __launch_bounds__(32 * SOLVERS, 1)
    invert(int64 units, const REAL* __restrict__ packed, REAL ridge, const REAL* __restrict__ normal, REAL* __restrict__ inverse,
           REAL* __restrict__ skew, REAL* __restrict__ moved) {
    __shared__ REAL first[SOLVERS][RANK][RANK + 1], second[SOLVERS][RANK][RANK + 1];
    const int lane = threadIdx.x % 32;
    REAL(*a)[RANK + 1] = first[threadIdx.x / 32];
    REAL(*b)[RANK + 1] = second[threadIdx.x / 32];
    for (int64 unit = int64(blockIdx.x) * SOLVERS + threadIdx.x / 32; unit < units; unit += int64(gridDim.x) * SOLVERS) {
        const REAL* G = packed + unit * PACKED;
        REAL size = 0;
        for (int q = 0; q < RANK; q++) {
            size += G[q * (q + 3) / 2];
        }
        size = size > 0 ? size / RANK : REAL(1);
        __syncwarp();
        if (lane < RANK) {
            for (int p = 0; p <= lane; p++) {
                a[lane][p] = G[lane * (lane + 1) / 2 + p] / size + (p == lane ? ridge : REAL(0));
            }
        }
        factorise(a, lane);
        invert_factor(a, b, lane);
        __syncwarp();
        REAL trace = 0;
        if (lane < RANK) {
            for (int p = 0; p < RANK; p++) {
                REAL sum = 0;
                for (int i = lane > p ? lane : p; i < RANK; i++) {
                    sum += b[i][lane] * b[i][p];
                }
                a[lane][p] = sum;
                trace += p == lane ? sum : REAL(0);
                inverse[unit * SQUARE + lane * RANK + p] = sum / size;
            }
        }
        __syncwarp();
        trace = warp_sum(trace);
        if (lane == 0) {
            skew[unit] = trace;
        }
        if (normal) {
            factorise(a, lane);
            if (lane < RANK) {
                REAL sum = 0;
                for (int p = 0; p <= lane; p++) {
                    sum += a[lane][p] * normal[unit * RANK + p];
                }
                moved[unit * RANK + lane] = sum / sqrt(size);
            }
        }
    }
}

// Whether a component of some units rests on a single entry, or on none (plain/lone.py): the largest leverage of the entries that
// agree with a unit's solution is above `alone`, or the trace of the inverse normal equations, times theirs, above `most`. Of units and
// solutions, those with the numbers `picked` are asked (all, if null). Where there is a table of what is known of units, those that do
// get `mark` there for their status.
extern "C" __global__ void __launch_bounds__(32 * SOLVERS, 1)
    lone(int64 n, const int64* __restrict__ picked, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
         const REAL* __restrict__ value, const REAL* __restrict__ basis, const REAL* __restrict__ solutions,
         const REAL* __restrict__ usable, REAL floor_, REAL ridge, REAL alone, REAL most, double* __restrict__ known, double mark, int columns,
         bool* __restrict__ out) {
    __shared__ REAL first[SOLVERS][RANK][RANK + 1], second[SOLVERS][RANK][RANK + 1], solution[SOLVERS][RANK];
    const int lane = threadIdx.x % 32;
    REAL(*a)[RANK + 1] = first[threadIdx.x / 32];
    REAL(*b)[RANK + 1] = second[threadIdx.x / 32];
    REAL* const own = solution[threadIdx.x / 32];
    for (int64 k = int64(blockIdx.x) * SOLVERS + threadIdx.x / 32; k < n; k += int64(gridDim.x) * SOLVERS) {
        const int64 row = picked ? picked[k] : k, unit = units[row];
        const int64 begin = indptr[unit], end = indptr[unit + 1];
        __syncwarp();
        if (lane < RANK) {
            own[lane] = solutions[row * RANK + lane];
            for (int p = 0; p < RANK; p++) {
                a[lane][p] = 0;
            }
        }
        __syncwarp();
        for (int64 at = begin; at < end; at++) {  // all lanes have the same entry, and a row of the matrix each
            const REAL* x = basis + int64(index[at]) * RANK;
            if (usable[index[at]] > 0 && inlies(residual<RANK>(value[at], x, own), floor_) && lane < RANK) {
                for (int p = 0; p <= lane; p++) {
                    a[lane][p] += x[lane] * x[p];
                }
            }
        }
        __syncwarp();
        REAL size = 0;
        for (int q = 0; q < RANK; q++) {
            size += a[q][q];
        }
        const REAL hair = size > 0 ? ridge * size : REAL(1);
        __syncwarp();
        if (lane < RANK) {
            a[lane][lane] += hair;
        }
        factorise(a, lane);
        invert_factor(a, b, lane);
        REAL trace = 0;
        for (int i = 0; lane < RANK && i < RANK; i++) {
            trace += b[i][lane] * b[i][lane];
        }
        __syncwarp();
        trace = warp_sum(trace);
        REAL largest = 0;
        for (int64 at = begin + lane; at < end; at += 32) {
            const REAL* x = basis + int64(index[at]) * RANK;
            if (usable[index[at]] > 0 && inlies(residual<RANK>(value[at], x, own), floor_)) {
                REAL leverage = 0;
                for (int i = 0; i < RANK; i++) {
                    REAL y = 0;
                    for (int p = 0; p <= i; p++) {
                        y += b[i][p] * x[p];
                    }
                    leverage += y * y;
                }
                largest = leverage > largest ? leverage : largest;
            }
        }
        __syncwarp();
        largest = warp_max(largest);
        if (lane == 0) {  // not a number where a pivot was not positive: nothing tells a component
            const bool found = largest > alone || !((size + RANK * hair) * trace <= most);
            if (out) {
                out[k] = found;
            }
            if (known && found) {
                known[unit * columns] = mark;
            }
        }
    }
}
