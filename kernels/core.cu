// The core's iteration on the observations of the intersection: an m x n matrix by rows, as U = left Q^T (grid.Grid).
//
// A warp takes a row (or a column, by a second list of the entries). Each lane has an entry; for products with X the lanes
// then share its columns, so that rows of X are read in one piece. Where indptr is null the rows are dense, and entries of
// weight 0 are not there. Sums over everything are finished by the last block, in a fixed order.
//
// REAL and WIDTH, the columns of left and Q, are given with -D.
#include "entry.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "select.cuh"

constexpr int WARPS = 4;  // of a block, as in cuda/grid.py: rows of different lengths keep few others waiting
constexpr int SELECT_THREADS = 512;  // one block selects the median: more threads read faster, but collide in the 256 counters

// Split the residual at zeta: outliers to S, weighted inliers to G, Z = (U + G) Q. sums: the squared norm of the residual
// without the former outliers, and the number of outliers. former may be S itself, or null.
extern "C" __global__ void __launch_bounds__(128, 1)
    threshold(int64 m, int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ value,
              const REAL* __restrict__ weight, const REAL* __restrict__ left, const REAL* __restrict__ Q,
              const REAL* __restrict__ zeta_at, const REAL* former, REAL* S, REAL* __restrict__ G, REAL* __restrict__ Z,
              double* partial, unsigned* arrived, REAL* __restrict__ sums) {
    __shared__ Stage stages[WARPS];
    const int lane = threadIdx.x % 32;
    Stage& stage = stages[threadIdx.x / 32];
    const REAL zeta = *zeta_at;
    double totals[2] = {0, 0};
    for (int64 row = int64(blockIdx.x) * WARPS + threadIdx.x / 32; row < m; row += int64(gridDim.x) * WARPS) {
        const int64 first = indptr ? indptr[row] : row * n;
        const int64 count = indptr ? indptr[row + 1] - first : n;
        __syncwarp();
        for (int q = lane; q < WIDTH; q += 32) {
            stage.row[q] = left[row * WIDTH + q];
        }
        __syncwarp();
        RowSum product(lane);
        REAL square = 0;
        int outliers = 0;
#pragma unroll 1
        for (int64 t = lane; t - lane < count; t += 32) {
            const int64 at = first + t;
            REAL g = 0, s = 0;
            int place = 0;
            if (t < count) {
                const REAL eta = weight[at];
                if (eta > 0) {
                    place = indptr ? index[at] : int(t);
                    const REAL E = residual<WIDTH>(value[at], Q + int64(place) * WIDTH, stage.row);
                    const REAL rest = former ? E - former[at] : E;
                    square += rest * rest;
                    if (stands_out(E, zeta)) {
                        s = E;
                        outliers++;
                    } else {
                        g = eta * E;
                    }
                }
                S[at] = s;
                G[at] = g;
            }
            product.add(stage, g, place, Q);
        }
        product.write(Z + row * WIDTH, left + row * WIDTH);
        totals[0] += double(square);
        totals[1] += double(outliers);
    }
    if (grid_sum(totals, partial, arrived)) {
        sums[0] = REAL(totals[0]);
        sums[1] = REAL(totals[1]);
    }
}

// Inlying residuals without weights, where they are, and how many of each row.
extern "C" __global__ void __launch_bounds__(128, 1)
    inlying(int64 m, int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ value,
            const REAL* __restrict__ weight, const REAL* __restrict__ left, const REAL* __restrict__ Q, REAL zeta,
            REAL* __restrict__ kept, unsigned char* __restrict__ inside, int64* __restrict__ of_row) {
    __shared__ Stage stages[WARPS];
    const int lane = threadIdx.x % 32;
    Stage& stage = stages[threadIdx.x / 32];
    for (int64 row = int64(blockIdx.x) * WARPS + threadIdx.x / 32; row < m; row += int64(gridDim.x) * WARPS) {
        const int64 first = indptr ? indptr[row] : row * n;
        const int64 count = indptr ? indptr[row + 1] - first : n;
        __syncwarp();
        for (int q = lane; q < WIDTH; q += 32) {
            stage.row[q] = left[row * WIDTH + q];
        }
        __syncwarp();
        int found = 0;
#pragma unroll 1
        for (int64 t = lane; t < count; t += 32) {
            const int64 at = first + t;
            REAL E = 0;
            bool in = false;
            if (weight[at] > 0) {
                const int64 place = indptr ? index[at] : t;
                E = residual<WIDTH>(value[at], Q + place * WIDTH, stage.row);
                in = inlies(E, zeta);
            }
            kept[at] = in ? E : REAL(0);
            inside[at] = in;
            found += in;
        }
        __syncwarp();
        found = warp_sum(found);
        if (lane == 0) {
            of_row[row] = found;
        }
    }
}

// Of each row and of each column the inliers and all entries of the fit: rows (2, m), columns (2, n), which are 0 before; and the sum of
// the squared inlying residuals.
extern "C" __global__ void __launch_bounds__(128, 1)
    tally(int64 m, int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ value,
          const REAL* __restrict__ weight, const REAL* __restrict__ left, const REAL* __restrict__ Q, REAL zeta,
          unsigned* __restrict__ rows, unsigned* columns, double* partial, unsigned* arrived, double* __restrict__ square) {
    __shared__ Stage stages[WARPS];
    const int lane = threadIdx.x % 32;
    Stage& stage = stages[threadIdx.x / 32];
    double total[1] = {0};
    for (int64 row = int64(blockIdx.x) * WARPS + threadIdx.x / 32; row < m; row += int64(gridDim.x) * WARPS) {
        const int64 first = indptr ? indptr[row] : row * n;
        const int64 count = indptr ? indptr[row + 1] - first : n;
        __syncwarp();
        for (int q = lane; q < WIDTH; q += 32) {
            stage.row[q] = left[row * WIDTH + q];
        }
        __syncwarp();
        int inside = 0, all = 0;
#pragma unroll 1
        for (int64 t = lane; t < count; t += 32) {
            if (weight[first + t] > 0) {
                const int64 place = indptr ? index[first + t] : t;
                const REAL E = residual<WIDTH>(value[first + t], Q + place * WIDTH, stage.row);
                all++;
                atomicAdd(columns + n + place, 1u);
                if (inlies(E, zeta)) {
                    inside++;
                    total[0] += double(E) * double(E);
                    atomicAdd(columns + place, 1u);
                }
            }
        }
        __syncwarp();
        inside = warp_sum(inside);
        all = warp_sum(all);
        if (lane == 0) {
            rows[row] = inside;
            rows[m + row] = all;
        }
    }
    if (grid_sum(total, partial, arrived)) {
        *square = total[0];
    }
}

// How many entries of each column are inside; source says where a column's entries are among those by rows.
extern "C" __global__ void __launch_bounds__(128, 1)
    count_columns(int64 n, const int64* __restrict__ indptr, const int64* __restrict__ source,
                  const unsigned char* __restrict__ inside, int64* __restrict__ of_column) {
    const int lane = threadIdx.x % 32;
    for (int64 column = int64(blockIdx.x) * WARPS + threadIdx.x / 32; column < n; column += int64(gridDim.x) * WARPS) {
        int found = 0;
        for (int64 at = indptr[column] + lane; at < indptr[column + 1]; at += 32) {
            found += inside[source[at]];
        }
        __syncwarp();
        found = warp_sum(found);
        if (lane == 0) {
            of_column[column] = found;
        }
    }
}

// out = base turn + G X for G by rows, or, with the entries by columns and their source, base turn + G^T X. base may be null, and
// so may turn (WIDTH x WIDTH) for the unit matrix. X may be in any order: factors of cuSOLVER come by columns.
extern "C" __global__ void __launch_bounds__(128, 1)
    multiply(int64 m, int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const int64* __restrict__ source,
             const REAL* __restrict__ G, const REAL* __restrict__ X, int64 row_step, int64 column_step,
             const REAL* __restrict__ base, const REAL* __restrict__ turn, REAL* __restrict__ out) {
    __shared__ Stage stages[WARPS];
    const int lane = threadIdx.x % 32;
    Stage& stage = stages[threadIdx.x / 32];
    for (int64 row = int64(blockIdx.x) * WARPS + threadIdx.x / 32; row < m; row += int64(gridDim.x) * WARPS) {
        RowSum product(lane);
        const int64 first = indptr ? indptr[row] : row * n, end = indptr ? indptr[row + 1] : first + n;
#pragma unroll 1
        for (int64 at = first + lane; at - lane < end; at += 32) {
            const bool there = at < end;
            const REAL g = there ? G[source ? source[at] : at] : REAL(0);
            product.add(stage, g, !there ? 0 : indptr ? index[at] : int(at - first), X, row_step, column_step);
        }
        product.write(out + row * WIDTH, base ? base + row * WIDTH : nullptr, turn);
    }
}

// out = base turn + G^T X for a dense G (m x n) by rows. A thread has a column of G, a block some of its rows; the last block of
// some columns adds up. gridDim.x is a multiple of `groups`, the number of groups of 128 columns, and arrived has one of them each.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    multiply_columns(int64 m, int64 n, int groups, const REAL* __restrict__ G, const REAL* __restrict__ X,
                     const REAL* __restrict__ base, const REAL* __restrict__ turn, REAL* partial, unsigned* arrived,
                     REAL* __restrict__ out) {
    constexpr int ROWS = 16;  // of X in shared memory at a time
    __shared__ REAL rows[ROWS * WIDTH];
    const int group = blockIdx.x % groups, slab = blockIdx.x / groups, slabs = gridDim.x / groups;
    const int64 first = int64(group) * blockDim.x, column = first + threadIdx.x;
    const int64 begin = slab * m / slabs, end = (slab + 1) * m / slabs;
    REAL sum[WIDTH];
#pragma unroll
    for (int q = 0; q < WIDTH; q++) {
        sum[q] = 0;
    }
    for (int64 top = begin; top < end; top += ROWS) {
        const int count = int(end - top < ROWS ? end - top : ROWS);
        __syncthreads();
        for (int e = threadIdx.x; e < count * WIDTH; e += blockDim.x) {
            rows[e] = X[top * WIDTH + e];
        }
        __syncthreads();
        if (column < n) {
#pragma unroll 1
            for (int i = 0; i < count; i++) {
                const REAL g = G[(top + i) * n + column];
#pragma unroll
                for (int q = 0; q < WIDTH; q++) {
                    sum[q] += g * rows[i * WIDTH + q];
                }
            }
        }
    }
    if (column < n) {
#pragma unroll
        for (int q = 0; q < WIDTH; q++) {
            partial[(slab * n + column) * WIDTH + q] = sum[q];
        }
    }
    if (!last_block(arrived + group, slabs)) {
        return;
    }
    const int64 last = first + blockDim.x < n ? first + blockDim.x : n;
    for (int64 e = first * WIDTH + threadIdx.x; e < last * WIDTH; e += blockDim.x) {
        REAL total = base ? turned_row(base + e / WIDTH * WIDTH, turn, int(e % WIDTH)) : REAL(0);
        for (int64 of = 0; of < slabs; of++) {
            total += __ldcg(partial + of * n * WIDTH + e);
        }
        out[e] = total;
    }
}

// The larger of zeta and floor times the median size of the residuals at some entries (i, j, y). zeta comes from a schedule by the
// number of iterations that were `done` before this one, or is given, where the schedule is null.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS, 1)
    floor_threshold(int64 n, const int64* __restrict__ i, const int64* __restrict__ j, const REAL* __restrict__ y,
                    const REAL* __restrict__ left, const REAL* __restrict__ Q, REAL zeta, const REAL* __restrict__ schedule,
                    const int* __restrict__ done, REAL floor_, REAL* size, unsigned* arrived, REAL* __restrict__ result) {
    for (int64 t = int64(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += int64(gridDim.x) * blockDim.x) {
        size[t] = fabs(residual<WIDTH>(y[t], Q + j[t] * WIDTH, left + i[t] * WIDTH));
    }
    if (last_block(arrived, gridDim.x)) {
        const REAL lowest = n > 0 ? floor_ * select(size, n, (n - 1) / 2) : REAL(0);
        const REAL decayed = schedule ? schedule[*done + 1] : zeta;
        if (threadIdx.x == 0) {
            *result = lowest <= decayed ? decayed : lowest;  // NaN stays
        }
    }
}

// ||left Q^T - old_left old_Q^T|| / ||left||, with turn = old_Q^T Q; see grid.Grid.change.
extern "C" __global__ void __launch_bounds__(128, 1)
    change(int64 m, int64 n, const REAL* __restrict__ left, const REAL* __restrict__ Q, const REAL* __restrict__ old_left,
           const REAL* __restrict__ old_Q, const REAL* __restrict__ old_s, const REAL* __restrict__ turn, double* partial,
           unsigned* arrived, REAL* __restrict__ result) {
    __shared__ REAL shared_turn[WIDTH * WIDTH];
    for (int e = threadIdx.x; e < WIDTH * WIDTH; e += blockDim.x) {
        shared_turn[e] = turn[e];
    }
    __syncthreads();
    double totals[2] = {0, 0};
    const int64 cells = (m + n) * WIDTH;
    for (int64 cell = int64(blockIdx.x) * blockDim.x + threadIdx.x; cell < cells; cell += int64(gridDim.x) * blockDim.x) {
        const int64 row = cell / WIDTH;
        const int column = int(cell - row * WIDTH);
        REAL moved;
        if (row < m) {
            moved = left[cell];
            totals[1] += double(moved) * double(moved);
#pragma unroll 4
            for (int p = 0; p < WIDTH; p++) {
                moved = fma(-old_left[row * WIDTH + p], shared_turn[p * WIDTH + column], moved);
            }
        } else {
            moved = old_Q[cell - m * WIDTH];
#pragma unroll 4
            for (int p = 0; p < WIDTH; p++) {
                moved = fma(-Q[(row - m) * WIDTH + p], shared_turn[column * WIDTH + p], moved);
            }
            moved *= old_s[column];
        }
        totals[0] += double(moved) * double(moved);
    }
    if (grid_sum(totals, partial, arrived)) {
        *result = REAL(sqrt(totals[0]) / sqrt(totals[1]));
    }
}

// The numbers of an iteration and its singular values, after those of the iterations before it.
extern "C" __global__ void __launch_bounds__(64, 1)
    record(const REAL* __restrict__ before, int n_before, const REAL* a, const REAL* b, const REAL* c, const REAL* d, const REAL* e,
           const REAL* __restrict__ s, REAL* __restrict__ out) {
    for (int k = threadIdx.x; k < n_before; k += blockDim.x) {
        out[k] = before[k];
    }
    const REAL* const from[5] = {a, b, c, d, e};
#pragma unroll
    for (int k = 0; k < 5; k++) {
        if (threadIdx.x == k) {
            out[n_before + k] = *from[k];
        }
    }
    for (int q = threadIdx.x; q < WIDTH; q += blockDim.x) {
        out[n_before + 5 + q] = s[q];
    }
}

// The numbers of an iteration to a row of the table, and its threshold and number of outliers to `state` for the next one.
// state: zeta and the number of outliers; sums: as `threshold` left them.
extern "C" __global__ void __launch_bounds__(64, 1)
    note(int row, const REAL* __restrict__ sums, const REAL* __restrict__ change, const REAL* __restrict__ next_zeta,
         const REAL* __restrict__ s, REAL* state, int* done, REAL* __restrict__ table) {
    REAL* const to = table + row * (5 + WIDTH);
    for (int q = threadIdx.x; q < WIDTH; q += blockDim.x) {
        to[5 + q] = s[q];
    }
    if (threadIdx.x == 0) {
        to[0] = sums[0];
        to[1] = state[1];
        to[2] = state[0];
        to[3] = *change;
        to[4] = *next_zeta;
        state[0] = *next_zeta;
        state[1] = sums[1];
        *done += 1;
    }
}

// left = P diag(s), where singular values from `rank` on are taken for 0.
extern "C" __global__ void __launch_bounds__(128, 1)
    scale(int64 rows, int rank, const REAL* __restrict__ P, const REAL* __restrict__ s, REAL* __restrict__ left,
          REAL* __restrict__ leading) {
    const int64 first = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (int64 e = first; e < rows * WIDTH; e += int64(gridDim.x) * blockDim.x) {
        const int q = int(e % WIDTH);
        left[e] = q < rank ? P[e] * s[q] : REAL(0);
    }
    if (first < WIDTH) {
        leading[first] = first < rank ? s[first] : REAL(0);
    }
}
