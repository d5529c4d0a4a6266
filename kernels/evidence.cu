// How a core does on some of its entries, and what its basis is like (backends/plain/evidence.py): a handful of numbers of each.
//
// REAL and RANK, the components of the core, are given with -D. Sums over everything are in a fixed order.
#include "entry.cuh"
#include "reduce.cuh"
#include "select.cuh"

constexpr int THREADS = 256;  // as in cuda/evidence.py
constexpr int SUMS = 7;
constexpr int PACKED = RANK * (RANK + 1) / 2;

// Entries (i, j, y) beside the core W diag(s) V^T: residuals to rest, values to shown (at least `size`), whether they tell something to
// informative. sums: see `Measured`; the last 2 RANK are those of the components.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    measure(int64 n, const int64* __restrict__ i, const int64* __restrict__ j, const REAL* __restrict__ y, const REAL* __restrict__ W,
            const REAL* __restrict__ s, const REAL* __restrict__ V, REAL floor_, REAL size, REAL near, REAL slack,
            REAL* __restrict__ rest, REAL* __restrict__ shown, bool* __restrict__ informative, double* partial, unsigned* arrived,
            double* __restrict__ out) {
    double sums[SUMS + 2 * RANK];
#pragma unroll
    for (int k = 0; k < SUMS + 2 * RANK; k++) {
        sums[k] = 0;
    }
    for (int64 t = int64(blockIdx.x) * THREADS + threadIdx.x; t < n; t += int64(gridDim.x) * THREADS) {
        const REAL *left = W + i[t] * RANK, *right = V + j[t] * RANK;
        REAL fit = 0;
#pragma unroll
        for (int k = 0; k < RANK; k++) {
            fit = fma(left[k] * s[k], right[k], fit);
        }
        const REAL r = y[t] - fit;
        const bool told = fabs(fit) > size, large = fabs(y[t]) > size;
        rest[t] = r;
        shown[t] = large ? y[t] : size;
        informative[t] = told || large;
        sums[0] += told || large;
        sums[1] += (told || large) && inlies(r, floor_);
        sums[2] += inlies(r, floor_);
        sums[3] += told && y[t] == 0;
        sums[4] += y[t] != 0;
        sums[5] += inlies(r, near);
        sums[6] += inlies(r, near) ? double(r) * double(r) : 0.0;
#pragma unroll
        for (int k = 0; k < RANK; k++) {
            const REAL part = left[k] * s[k] * right[k], bound = fabs(part) + slack;
            const REAL clipped = r > bound ? bound : r < -bound ? -bound : r;
            sums[SUMS + k] += double(part) * double(part + clipped);
            sums[SUMS + RANK + k] += double(part) * double(part);
        }
    }
    if (grid_sum(sums, partial, arrived)) {
        for (int k = 0; k < SUMS + 2 * RANK; k++) {
            out[k] = sums[k];
        }
    }
}

// How many values are within `floor_` of what was fitted to the value half a list away. Thread 0 has it. By one block.
__device__ __forceinline__ double by_chance(const REAL* value, const REAL* rest, int64 n, REAL floor_, double* slots) {
    double found = 0;
    for (int64 t = threadIdx.x; t < n; t += THREADS) {
        const int64 from = t >= n / 2 ? t - n / 2 : t - n / 2 + n;
        found += inlies(value[t] - (value[from] - rest[from]), floor_);
    }
    return block_sum(found, slots);
}

// A block for each number: the lower quartile of the sizes of residuals, and of values, of m informative entries; the median size of
// all n values; and of both lists, how many agree by chance.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    compare(int64 m, const REAL* __restrict__ rest, const REAL* __restrict__ shown, int64 n, const REAL* __restrict__ y,
            const REAL* __restrict__ all_rest, REAL floor_, double* __restrict__ out) {
    __shared__ double slots[THREADS / 32];
    double found = 0;
    switch (blockIdx.x) {
        case 0:
            found = m > 0 ? select(rest, m, (m - 1) / 4) : REAL(0);
            break;
        case 1:
            found = m > 0 ? select(shown, m, (m - 1) / 4) : REAL(0);
            break;
        case 2:
            found = n > 0 ? select(y, n, (n - 1) / 2) : REAL(0);
            break;
        case 3:
            found = by_chance(shown, rest, m, floor_, slots);
            break;
        default:
            found = by_chance(y, all_rest, n, floor_, slots);
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = found;
    }
}

// How many of n numbers are larger than `size`.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    count_larger(int64 n, const REAL* __restrict__ x, REAL size, double* partial, unsigned* arrived, double* __restrict__ out) {
    double found[1] = {0};
    for (int64 t = int64(blockIdx.x) * THREADS + threadIdx.x; t < n; t += int64(gridDim.x) * THREADS) {
        found[0] += fabs(x[t]) > size;
    }
    if (grid_sum(found, partial, arrived)) {
        *out = found[0];
    }
}

// A block for each: median and lower quartile of the sizes of n numbers, and their mean size and mean square.
extern "C" __global__ void __launch_bounds__(THREADS, 1) sizes(int64 n, const REAL* __restrict__ y, double* __restrict__ out) {
    __shared__ double slots[THREADS / 32];
    if (blockIdx.x < 2) {
        const REAL found = select(y, n, blockIdx.x == 0 ? (n - 1) / 2 : (n - 1) / 4);
        if (threadIdx.x == 0) {
            out[blockIdx.x] = found;
        }
        return;
    }
    double sum = 0;
    for (int64 t = threadIdx.x; t < n; t += THREADS) {
        const double size = fabs(y[t]);
        sum += blockIdx.x == 2 ? size : size * size;
    }
    sum = block_sum(sum, slots);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = sum / double(n);
    }
}

// The largest square in each column of two matrices (.., RANK) one below the other: a block for each column.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    largest_squares(int64 length, const REAL* __restrict__ x, int64 length2, const REAL* __restrict__ y, double* __restrict__ out) {
    __shared__ double slots[THREADS / 32];
    double most = 0;
    for (int64 t = threadIdx.x; t < length + length2; t += THREADS) {
        const double size = double(t < length ? x[t * RANK + blockIdx.x] : y[(t - length) * RANK + blockIdx.x]);
        most = size * size > most ? size * size : most;
    }
    most = block_max(most, slots);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = most;
    }
}

// Of a basis (length, RANK): sums of x x^T over the rows that are usable, packed; how many these are; and the largest square of a row.
// One block; its threads share the packed entries, and then the rows.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    basis_facts(int64 length, const REAL* __restrict__ basis, const REAL* __restrict__ usable, double* __restrict__ out) {
    __shared__ double slots[THREADS / 32], largest[THREADS / 32];
    for (int e = threadIdx.x; e < PACKED; e += THREADS) {
        int row = 0;
        while ((row + 1) * (row + 2) / 2 <= e) {
            row++;
        }
        const int column = e - row * (row + 1) / 2;
        double sum = 0;
        for (int64 t = 0; t < length; t++) {
            sum += double(basis[t * RANK + row]) * double(basis[t * RANK + column] * usable[t]);
        }
        out[e] = sum;
    }
    double count = 0, most = 0;
    for (int64 t = threadIdx.x; t < length; t += THREADS) {
        double square = 0;
        for (int k = 0; k < RANK; k++) {
            square += double(basis[t * RANK + k]) * double(basis[t * RANK + k]);
        }
        most = square > most ? square : most;
        count += usable[t] > 0;
    }
    __syncwarp();
    count = block_sum(count, slots);
    most = block_max(most, largest);
    if (threadIdx.x == 0) {
        out[PACKED] = count;
        out[PACKED + 1] = most;
    }
}
