// Normal equations of one regression on RANK unknowns, by one warp.
//
// Rows (d, y) of a design go into a tile of shared memory, 32 at a time. The lanes share the lower triangle of their Gram matrix
// in blocks of SIDE x SIDE, so that a number read from shared memory is used SIDE times and registers do not grow with the rank
// squared. With few blocks several groups of lanes take turns at the rows. The matrix then takes the place of the tile: its
// row RANK is the right-hand side. To solve, each lane takes a row of it into registers; columns of pivots go through the tile.
#pragma once

constexpr int AUGMENTED = RANK + 1;
// Side of a lane's block. A number read from shared memory is used SIDE times, and SIDE * SIDE sums take registers. BLOCKS must
// not exceed the 32 lanes, which takes 5 at rank 32. Two doubles are one access.
constexpr int SIDE = AUGMENTED <= 3 ? AUGMENTED : AUGMENTED <= 9 ? (sizeof(REAL) == 8 && AUGMENTED <= 7 ? 2 : 3) : AUGMENTED <= 20 ? 4 : 5;
// Where the unknowns fill whole blocks, the right-hand side would take a row of blocks for itself: lanes then have its sums apart.
constexpr bool APART = RANK % SIDE == 0;
constexpr int PADDED = APART ? RANK : (AUGMENTED + SIDE - 1) / SIDE * SIDE;
constexpr int SIDES = PADDED / SIDE;
constexpr int BLOCKS = SIDES * (SIDES + 1) / 2;
// From four groups on a power of two: then each adds up a part of the sums of all (see Gram::finish).
constexpr int GROUPS = BLOCKS == 3 ? 8 : BLOCKS == 6 ? 4 : 32 / BLOCKS;
constexpr int SUMS = SIDE * SIDE + (APART ? SIDE : 0);
// Numbers that are read at a time where they are aligned for it. In the tile a side takes a slot that is; where all rows in
// global memory are aligned, they are read so, too.
constexpr int WIDE = 16 / sizeof(REAL);
constexpr int SLOT = SIDE == 3 ? 4 : SIDE;
constexpr bool ALIGNED = SLOT % WIDE == 0, ROWS_ALIGNED = RANK % WIDE == 0;
constexpr int LINE = SIDES * SLOT + 1 > AUGMENTED ? SIDES * SLOT + (APART ? 1 : 0) : AUGMENTED;
// Odd, in numbers or in pieces of 16 bytes: lanes that write their rows do not meet in a bank.
constexpr int STRIDE = ALIGNED ? ((LINE + WIDE - 1) / WIDE | 1) * WIDE : LINE | 1;
constexpr int TILE_ROWS = PADDED > 32 ? PADDED : 32;
constexpr int TILE = TILE_ROWS * STRIDE;
constexpr int VECTOR = (RANK + WIDE - 1) / WIDE * WIDE;  // room for a vector whose end may be read in whole pieces

static_assert(RANK >= 1 && RANK <= 32, "a row of the matrix for each lane");

constexpr REAL EPSILON = sizeof(REAL) == 8 ? REAL(2.220446049250313e-16) : REAL(1.1920929e-07f);

struct alignas(16) Wide {
    REAL at[WIDE];
};

// N numbers from memory to registers, in pieces of 16 bytes if they are aligned; the last piece may go beyond them.
template <int N, bool WHOLE>
__device__ __forceinline__ void fetch_row(REAL (&to)[N], const REAL* from) {
    if constexpr (WHOLE) {
#pragma unroll
        for (int q = 0; q < N; q += WIDE) {
            const Wide piece = *reinterpret_cast<const Wide*>(from + q);
#pragma unroll
            for (int p = 0; p < WIDE; p++) {
                if (q + p < N) {
                    to[q + p] = piece.at[p];
                }
            }
        }
    } else {
#pragma unroll
        for (int q = 0; q < N; q++) {
            to[q] = from[q];
        }
    }
}

struct Gram {
    REAL sum[SUMS];          // row by row; then the right-hand side of this lane's columns, if it is apart
    int row, column, group;  // where this lane's block begins; lanes that are left over have no group
    int left_slot, right_slot;

    __device__ __forceinline__ Gram(int lane) {
        int rest = lane % BLOCKS;
        int side = 0;
#pragma unroll
        for (int s = 1; s < SIDES; s++) {
            if (rest > side) {
                rest -= ++side;
            }
        }
        row = side * SIDE;
        column = rest * SIDE;
        left_slot = side * SLOT;
        right_slot = rest * SLOT;
        group = lane / BLOCKS;
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            sum[s] = 0;
        }
    }

    // Take in one row from each lane that has one, and say how many there are. `row_of` is in global memory.
    __device__ __forceinline__ int add(REAL* tile, int lane, bool taken, const REAL* row_of, REAL y) {
        const unsigned mask = __ballot_sync(EVERY_LANE, taken);
        __syncwarp();
        if (taken) {
            REAL its[RANK], line[SIDES * SLOT];
            fetch_row<RANK, ROWS_ALIGNED>(its, row_of);
#pragma unroll
            for (int q = 0; q < SIDES * SLOT; q++) {
                const int c = q / SLOT * SIDE + q % SLOT;
                line[q] = q % SLOT >= SIDE || c > RANK ? REAL(0) : c == RANK ? y : its[c < RANK ? c : 0];
            }
            put(tile + __popc(mask & ((1u << lane) - 1)) * STRIDE, line, y);
        }
        __syncwarp();
        const int rows = __popc(mask), end = group < GROUPS ? rows : 0;
#pragma unroll 1  // two at a time take registers that another block could have
        for (int e = group; e < end; e += GROUPS) {
            const REAL* const place = tile + e * STRIDE;
            REAL left[SIDE], right[SIDE];
            fetch_row<SIDE, ALIGNED>(left, place + left_slot);
            fetch_row<SIDE, ALIGNED>(right, place + right_slot);
#pragma unroll
            for (int x = 0; x < SIDE; x++) {
#pragma unroll
                for (int y = 0; y < SIDE; y++) {
                    sum[x * SIDE + y] += left[x] * right[y];
                }
            }
            if constexpr (APART) {
                const REAL value = place[SIDES * SLOT];
#pragma unroll
                for (int y = 0; y < SIDE; y++) {
                    sum[SIDE * SIDE + y] += value * right[y];
                }
            }
        }
        return rows;
    }

    __device__ __forceinline__ void put(REAL* place, const REAL (&line)[SIDES * SLOT], REAL y) const {
        constexpr int PIECE = ALIGNED ? WIDE : 1;
#pragma unroll
        for (int q = 0; q < SIDES * SLOT; q += PIECE) {
            if constexpr (ALIGNED) {
                Wide piece;
#pragma unroll
                for (int p = 0; p < WIDE; p++) {
                    piece.at[p] = line[q + p];
                }
                *reinterpret_cast<Wide*>(place + q) = piece;
            } else {
                place[q] = line[q];
            }
        }
        if constexpr (APART) {
            place[SIDES * SLOT] = y;
        }
    }

    // Where sum number s of this lane belongs in the tile; -1 if another lane has the same.
    __device__ __forceinline__ int place_of(int s) const {
        if (s < SIDE * SIDE) {
            return (row + s / SIDE) * STRIDE + column + s % SIDE;
        }
        return row == column && s < SUMS ? RANK * STRIDE + column + s - SIDE * SIDE : -1;
    }

    // Write the lower triangle to the tile; before anybody reads it, the lanes have to be synchronised.
    __device__ __forceinline__ void finish(REAL* tile, int lane) {
        __syncwarp();
        if constexpr (GROUPS >= 4) {
            // In each step a group takes half of the sums from another one, and gives it those of the other half.
            int first = 0, n = SUMS;
            halve<GROUPS / 2, SUMS>(first, n, lane);
            constexpr int LEFT = (SUMS + GROUPS - 1) / GROUPS;
#pragma unroll
            for (int s = 0; s < LEFT; s++) {
                const int place = s < n && group < GROUPS ? place_of(first + s) : -1;
                if (place >= 0) {
                    tile[place] = sum[s];
                }
            }
        } else {
#pragma unroll
            for (int s = 0; s < SUMS; s++) {
                const REAL total = group_sum<GROUPS, BLOCKS>(sum[s], group);
                if (group == 0 && place_of(s) >= 0) {
                    tile[place_of(s)] = total;
                }
            }
        }
    }

    // Of N sums, number `first` and on, this lane keeps half, added to those of a lane STEP groups away.
    template <int STEP, int N>
    __device__ __forceinline__ void halve(int& first, int& n, int lane) {
        constexpr int HALF = (N + 1) / 2;
        const bool upper = (group & STEP) != 0;
        const int partner = group < GROUPS ? upper ? lane - STEP * BLOCKS : lane + STEP * BLOCKS : lane;
#pragma unroll
        for (int s = 0; s < HALF; s++) {
            const REAL high = s + HALF < N ? sum[s + HALF] : REAL(0);
            const REAL other = __shfl_sync(EVERY_LANE, upper ? sum[s] : high, partner);
            sum[s] = (upper ? high : sum[s]) + other;
        }
        first += upper ? HALF : 0;
        n = upper ? n - HALF : min(n, HALF);
        if constexpr (STEP > 1) {
            halve<STEP / 2, HALF>(first, n, lane);
        }
    }
};

__device__ __forceinline__ REAL trace(const REAL* matrix) {
    REAL total = 0;
#pragma unroll
    for (int k = 0; k < RANK; k++) {
        total += matrix[k * STRIDE + k];
    }
    return total;
}

// A hair to be added to the diagonal; 1 if the matrix is 0.
__device__ __forceinline__ REAL ridge_of(REAL size) {
    return size > 0 ? RIDGE * EPSILON * size : REAL(1);
}

// Factorise matrix + ridge I = L D L^T, the pivots D clamped from below at the ridge; the matrix is lost. The ridge is added to
// the pivots, where it is the same as on the diagonal and needs no access.
//
// INVERSE: the sum of what the lanes get is the trace of the inverse. Else lane q gets number q of the solution, the right-hand
// side being row RANK of the matrix.
template <bool INVERSE>
__device__ __forceinline__ REAL eliminate(REAL* matrix, REAL ridge, int lane) {
    // What stands in the first piece before the pivot is not used, and neither is what follows the right-hand side.
    constexpr int PIECE = ALIGNED ? WIDE : 1, LAST = INVERSE ? RANK : AUGMENTED;
    const bool mine = lane < RANK;
    REAL row[RANK], piece[PIECE];
    fetch_row<RANK, ALIGNED>(row, matrix + (mine ? lane : RANK) * STRIDE);
    REAL rest = !INVERSE && mine ? matrix[RANK * STRIDE + lane] : REAL(0), reciprocal = 0;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < RANK; k++) {
        REAL* const column = matrix + k * STRIDE;  // its numbers are then as they are in L D
        if (mine && lane >= k) {
            column[lane] = row[k];
        }
        if (!INVERSE && lane == k) {
            column[RANK] = rest;
        }
        __syncwarp();
        fetch_row<PIECE, ALIGNED>(piece, column + k / PIECE * PIECE);
        const REAL scale = REAL(1) / max(piece[k % PIECE] + ridge, ridge), factor = row[k] * scale;
        reciprocal = lane == k ? scale : reciprocal;
#pragma unroll
        for (int q = k / PIECE * PIECE; q < LAST; q += PIECE) {
            if (q > k) {
                fetch_row<PIECE, ALIGNED>(piece, column + q);
            }
#pragma unroll
            for (int p = 0; p < PIECE; p++) {
                if (q + p == RANK && !INVERSE) {
                    rest -= lane > k ? factor * piece[p] : REAL(0);
                } else if (q + p > k && q + p < RANK) {
                    row[q + p] -= factor * piece[p];
                }
            }
        }
    }
    if constexpr (INVERSE) {
        REAL total = 0;
#pragma unroll
        for (int q = 0; q < RANK; q++) {
            row[q] = q == lane ? REAL(1) : REAL(0);  // lane j solves L x = e_j
        }
#pragma unroll
        for (int k = 0; k < RANK; k++) {
            const REAL scaled = row[k] * __shfl_sync(EVERY_LANE, reciprocal, k);
            total += row[k] * scaled;
#pragma unroll
            for (int q = (k + 1) / PIECE * PIECE; q < RANK; q += PIECE) {
                fetch_row<PIECE, ALIGNED>(piece, matrix + k * STRIDE + q);
#pragma unroll
                for (int p = 0; p < PIECE; p++) {
                    if (q + p > k && q + p < RANK) {
                        row[q + p] -= scaled * piece[p];
                    }
                }
            }
        }
        return mine ? total : REAL(0);
    } else {
#pragma unroll
        for (int k = RANK - 1; k > 0; k--) {
            const REAL found = __shfl_sync(EVERY_LANE, rest * reciprocal, k);
            if (lane < k) {
                rest -= matrix[lane * STRIDE + k] * found;
            }
        }
        return rest * reciprocal;
    }
}

// From the lower triangle of G to that of T G T^T.
__device__ __forceinline__ void whiten(REAL* matrix, const REAL* __restrict__ white, int lane) {
    __syncwarp();
    const bool mine = lane < RANK;
#pragma unroll
    for (int q = 0; q < RANK; q++) {
        if (mine && q < lane) {
            matrix[q * STRIDE + lane] = matrix[lane * STRIDE + q];
        }
    }
    __syncwarp();
    REAL row[RANK];
#pragma unroll
    for (int q = 0; q < RANK; q++) {
        row[q] = 0;
    }
    const REAL* const its = white + (mine ? lane : 0) * RANK;
#pragma unroll 1
    for (int p = 0; p < RANK; p++) {
        const REAL factor = its[p];
        REAL other[RANK];
        fetch_row<RANK, ALIGNED>(other, matrix + p * STRIDE);
#pragma unroll
        for (int q = 0; q < RANK; q++) {
            row[q] += factor * other[q];
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int j = 0; j < RANK; j++) {
        REAL other[RANK], total = 0;
        fetch_row<RANK, ROWS_ALIGNED>(other, white + j * RANK);
#pragma unroll
        for (int q = 0; q < RANK; q++) {
            total += row[q] * other[q];
        }
        if (mine) {
            matrix[lane * STRIDE + j] = total;
        }
    }
    __syncwarp();
}
