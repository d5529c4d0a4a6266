// Normal equations of one regression on RANK unknowns, by one warp, in shared memory.
//
// Rows (d, y) of a design go into a tile of shared memory, 32 at a time. The lanes share the lower triangle of their Gram matrix
// in blocks of SIDE x SIDE, so that a number read from shared memory is used SIDE times and registers do not grow with the rank
// squared. With few blocks several groups of lanes take turns at the rows. The matrix then takes the place of the tile: its
// row RANK is the right-hand side.
#pragma once

constexpr int AUGMENTED = RANK + 1;
// Side of a lane's block. A number read from shared memory is used SIDE times, and SIDE * SIDE sums take registers. BLOCKS must
// not exceed the 32 lanes, which takes 5 at rank 32.
constexpr int SIDE = AUGMENTED <= 3 ? AUGMENTED : AUGMENTED <= 9 ? 3 : AUGMENTED <= 20 ? 4 : 5;
constexpr int SIDES = (AUGMENTED + SIDE - 1) / SIDE;
constexpr int BLOCKS = SIDES * (SIDES + 1) / 2;
constexpr int GROUPS = 32 / BLOCKS;
constexpr int PADDED = SIDES * SIDE;
constexpr int STRIDE = PADDED | 1;  // odd: lanes that write their rows do not meet in a bank
constexpr int TILE_ROWS = PADDED > 32 ? PADDED : 32;
constexpr int TILE = TILE_ROWS * STRIDE;

static_assert(RANK >= 1 && RANK <= 32, "a row of the matrix for each lane");

constexpr REAL EPSILON = sizeof(REAL) == 8 ? REAL(2.220446049250313e-16) : REAL(1.1920929e-07f);

struct Gram {
    REAL sum[SIDE][SIDE];
    int row, column, group;  // where this lane's block begins; lanes that are left over have no group

    __device__ __forceinline__ Gram(int lane) {
        int rest = lane % BLOCKS;
        int side = 0;
        while (rest > side) {
            rest -= ++side;
        }
        row = side * SIDE;
        column = rest * SIDE;
        group = lane / BLOCKS;
#pragma unroll
        for (int x = 0; x < SIDE; x++) {
#pragma unroll
            for (int y = 0; y < SIDE; y++) {
                sum[x][y] = 0;
            }
        }
    }

    // Take in one row from each lane that has one. `row_of` is in global memory.
    __device__ __forceinline__ void add(REAL* tile, int lane, bool taken, const REAL* row_of, REAL y) {
        const unsigned mask = __ballot_sync(EVERY_LANE, taken);
        if (mask == 0) {
            return;
        }
        __syncwarp();
        if (taken) {
            REAL* place = tile + __popc(mask & ((1u << lane) - 1)) * STRIDE;
#pragma unroll
            for (int q = 0; q < RANK; q++) {
                place[q] = row_of[q];
            }
            place[RANK] = y;
#pragma unroll
            for (int q = AUGMENTED; q < PADDED; q++) {
                place[q] = 0;
            }
        }
        __syncwarp();
        if (group < GROUPS) {
            const int rows = __popc(mask);
#pragma unroll 1
            for (int e = group; e < rows; e += GROUPS) {
                const REAL* place = tile + e * STRIDE;
                REAL left[SIDE], right[SIDE];
#pragma unroll
                for (int x = 0; x < SIDE; x++) {
                    left[x] = place[row + x];
                    right[x] = place[column + x];
                }
#pragma unroll
                for (int x = 0; x < SIDE; x++) {
#pragma unroll
                    for (int y = 0; y < SIDE; y++) {
                        sum[x][y] += left[x] * right[y];
                    }
                }
            }
        }
    }

    // Write the lower triangle to the tile.
    __device__ __forceinline__ void finish(REAL* tile) {
        __syncwarp();
#pragma unroll
        for (int x = 0; x < SIDE; x++) {
#pragma unroll
            for (int y = 0; y < SIDE; y++) {
                const REAL total = group_sum<GROUPS, BLOCKS>(sum[x][y], group);
                if (group == 0) {
                    tile[(row + x) * STRIDE + column + y] = total;
                }
            }
        }
        __syncwarp();
    }
};

__device__ __forceinline__ REAL trace(const REAL* matrix) {
    REAL total = 0;
#pragma unroll 1
    for (int k = 0; k < RANK; k++) {
        total += matrix[k * STRIDE + k];
    }
    return total;
}

// A hair to be added to the diagonal; 1 if the matrix is 0.
__device__ __forceinline__ REAL ridge_of(REAL size) {
    return size > 0 ? RIDGE * EPSILON * size : REAL(1);
}

// Factorise matrix + ridge I = L D L^T in place. Column k below the diagonal becomes L D; the pivots, clamped from below at the
// ridge, are what `pivot` says. Rows from RANK to `rows` (the right-hand side) go along.
__device__ __forceinline__ void factorise(REAL* matrix, int rows, REAL ridge, int lane) {
    __syncwarp();
    if (lane < RANK) {
        matrix[lane * STRIDE + lane] += ridge;
    }
    __syncwarp();
#pragma unroll 1
    for (int k = 0; k < RANK; k++) {
        const REAL scale = REAL(1) / max(matrix[k * STRIDE + k], ridge);
#pragma unroll
        for (int i = lane; i < rows; i += 32) {
            if (i > k) {
                const REAL factor = matrix[i * STRIDE + k] * scale;
                const int end = i < RANK ? i : RANK - 1;
#pragma unroll 1
                for (int j = k + 1; j <= end; j++) {
                    matrix[i * STRIDE + j] -= factor * matrix[j * STRIDE + k];
                }
            }
        }
        __syncwarp();
    }
}

__device__ __forceinline__ REAL pivot(const REAL* matrix, int k, REAL ridge) {
    return max(matrix[k * STRIDE + k], ridge);
}

// Solve the factorised system; lane q gets, and writes, a[q].
__device__ __forceinline__ void substitute(const REAL* matrix, REAL ridge, REAL* a, int lane) {
    REAL rest = lane < RANK ? matrix[RANK * STRIDE + lane] : REAL(0);
#pragma unroll 1
    for (int i = RANK - 1; i >= 0; i--) {
        const REAL found = __shfl_sync(EVERY_LANE, rest, i) / pivot(matrix, i, ridge);
        if (lane < i) {
            rest -= matrix[i * STRIDE + lane] * found;
        }
        if (lane == i) {
            a[i] = found;
        }
    }
    __syncwarp();
}

// From the lower triangle of G to that of T G T^T.
__device__ __forceinline__ void whiten(REAL* matrix, const REAL* __restrict__ white, int lane) {
    __syncwarp();
    REAL row[RANK];
#pragma unroll
    for (int q = 0; q < RANK; q++) {
        row[q] = 0;
    }
    if (lane < RANK) {
#pragma unroll 1
        for (int p = 0; p < RANK; p++) {
            const REAL factor = white[lane * RANK + p];
#pragma unroll
            for (int q = 0; q < RANK; q++) {
                row[q] += factor * matrix[q <= p ? p * STRIDE + q : q * STRIDE + p];
            }
        }
    }
    __syncwarp();
    if (lane < RANK) {
#pragma unroll 1
        for (int j = 0; j <= lane; j++) {
            REAL total = 0;
#pragma unroll
            for (int q = 0; q < RANK; q++) {
                total += row[q] * white[j * RANK + q];
            }
            matrix[lane * STRIDE + j] = total;
        }
    }
    __syncwarp();
}

// The trace of the inverse of a factorised matrix; the part above the diagonal is overwritten.
__device__ __forceinline__ REAL inverse_trace(REAL* matrix, REAL ridge, int lane) {
    REAL total = 0;
    if (lane < RANK) {
        // Lane j solves L x = e_j, and keeps x_i / pivot_i right of its diagonal.
        REAL* mine = matrix + lane * STRIDE;
        const REAL first = REAL(1) / pivot(matrix, lane, ridge);
        total = first;
#pragma unroll 1
        for (int i = lane + 1; i < RANK; i++) {
            REAL x = -matrix[i * STRIDE + lane] * first;
#pragma unroll 1
            for (int k = lane + 1; k < i; k++) {
                x -= matrix[i * STRIDE + k] * mine[k];
            }
            mine[i] = x / pivot(matrix, i, ridge);
            total += x * mine[i];
        }
    }
    __syncwarp();
    return warp_sum(total);
}
