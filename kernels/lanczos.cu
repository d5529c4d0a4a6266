// How rows and columns tie each other down through the entries they share (judge/ties.py): the steps of Lanczos's method, which a
// CUDA graph repeats.
//
// Vectors and their images G v are kept as they come; sizes has their lengths, so that a vector divided by its size is one of
// Lanczos's. `step` counts them on the device: the last one is number *step. Sums over everything are in a fixed order.
//
// REAL and RANK, the unknowns of a unit, are given with -D.
#include "entry.cuh"
#include "reduce.cuh"

constexpr int WARPS = 4;  // of a block, as in cuda/ties.py
constexpr int TILE = 32;  // columns that a block has in shared memory at a time
constexpr int SQUARE = RANK * RANK;
constexpr int THREADS = 32 * WARPS;

// inverse_u times the sum over the entries j of unit u of others_j (own_u . x_j). Where `step` is there, x is the last of the
// vectors (length, RANK), divided by its size.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    couple(int64 units, int64 length, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ own,
           const REAL* __restrict__ others, const REAL* __restrict__ x, const int* __restrict__ step,
           const REAL* __restrict__ sizes, const REAL* __restrict__ inverse, REAL* __restrict__ out) {
    __shared__ REAL rows[WARPS][RANK], sums[WARPS][RANK];
    const int lane = threadIdx.x % 32;
    REAL* const row = rows[threadIdx.x / 32];
    REAL* const total = sums[threadIdx.x / 32];
    const REAL size = step ? sizes[*step] : REAL(1);
    const REAL* const moves = step ? x + *step * length * RANK : x;
    for (int64 unit = int64(blockIdx.x) * WARPS + threadIdx.x / 32; unit < units; unit += int64(gridDim.x) * WARPS) {
        __syncwarp();
        if (lane < RANK) {
            row[lane] = own[unit * RANK + lane];
        }
        __syncwarp();
        REAL sum[RANK];
#pragma unroll
        for (int q = 0; q < RANK; q++) {
            sum[q] = 0;
        }
#pragma unroll 1
        for (int64 at = indptr[unit] + lane; at < indptr[unit + 1]; at += 32) {
            const int64 place = int64(index[at]) * RANK;
            REAL moved = 0;
#pragma unroll
            for (int q = 0; q < RANK; q++) {
                moved += row[q] * moves[place + q];
            }
#pragma unroll
            for (int q = 0; q < RANK; q++) {
                sum[q] += others[place + q] * moved;
            }
        }
        __syncwarp();
#pragma unroll
        for (int q = 0; q < RANK; q++) {
            const REAL whole = warp_sum(sum[q]);
            if (lane == q) {
                total[q] = whole;
            }
        }
        __syncwarp();
        if (lane < RANK) {
            REAL result = 0;
            for (int p = 0; p < RANK; p++) {
                result += inverse[unit * SQUARE + lane * RANK + p] * total[p];
            }
            out[unit * RANK + lane] = result / size;
        }
    }
}

// An entry of a direction without its parts along the vectors so far, and without a part of the gauge, where they are given.
__device__ __forceinline__ REAL reduced(REAL value, int64 e, int64 n, int last, const REAL* along, const REAL* vectors,
                                        const REAL* share, const REAL* right) {
    for (int t = 0; along && t <= last; t++) {
        value -= vectors[t * n * RANK + e] * along[t];
    }
    if (share) {
        const REAL* row = right + e / RANK * RANK;
        for (int p = 0; p < RANK; p++) {
            value -= row[p] * share[p * RANK + e % RANK];
        }
    }
    return value;
}

// The share of the gauge in a direction w (n, RANK), less its parts `along` the vectors: inverse vec(right^T G w).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gauge(int64 n, const int* __restrict__ step, const REAL* __restrict__ along, const REAL* __restrict__ vectors,
          const REAL* __restrict__ right, const REAL* __restrict__ G, const REAL* __restrict__ inverse, REAL* w, REAL* partial,
          unsigned* arrived, REAL* __restrict__ share) {
    constexpr int PER_THREAD = (SQUARE + THREADS - 1) / THREADS;
    __shared__ REAL moves[TILE * RANK], images[TILE * RANK], rows[TILE * RANK];
    REAL sum[PER_THREAD];
#pragma unroll
    for (int l = 0; l < PER_THREAD; l++) {
        sum[l] = 0;
    }
    for (int64 first = int64(blockIdx.x) * TILE; first < n; first += int64(gridDim.x) * TILE) {
        const int count = int(n - first < TILE ? n - first : TILE) * RANK;
        __syncthreads();
        for (int e = threadIdx.x; e < count; e += THREADS) {
            const int64 at = first * RANK + e;
            moves[e] = w[at] = reduced(w[at], at, n, *step, along, vectors, nullptr, nullptr);
            rows[e] = right[at];
        }
        __syncthreads();
        for (int e = threadIdx.x; e < count; e += THREADS) {
            REAL image = 0;
            for (int p = 0; p < RANK; p++) {
                image += G[(first * RANK + e) * RANK + p] * moves[e / RANK * RANK + p];
            }
            images[e] = image;
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < PER_THREAD; l++) {
            const int e = threadIdx.x + l * THREADS;
            for (int t = 0; e < SQUARE && t < count; t += RANK) {
                sum[l] += rows[t + e / RANK] * images[t + e % RANK];
            }
        }
    }
#pragma unroll
    for (int l = 0; l < PER_THREAD; l++) {
        const int e = threadIdx.x + l * THREADS;
        if (e < SQUARE) {
            partial[int64(blockIdx.x) * SQUARE + e] = sum[l];
        }
    }
    if (!last_block(arrived, gridDim.x)) {
        return;
    }
    __shared__ REAL totals[SQUARE];
    for (int e = threadIdx.x; e < SQUARE; e += THREADS) {
        REAL total = 0;
        for (int64 b = 0; b < gridDim.x; b++) {
            total += __ldcg(partial + b * SQUARE + e);
        }
        totals[e] = total;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < SQUARE; e += THREADS) {
        REAL total = 0;
        for (int f = 0; f < SQUARE; f++) {
            total += inverse[int64(e) * SQUARE + f] * totals[f];
        }
        share[e] = total;
    }
}

// Take the gauge's share, or the parts `along` the vectors, out of w; then its parts along the vectors, in units of theirs, to
// found, and its product with the last image to alpha, if that is there.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    project(int64 n, const int* __restrict__ step, const REAL* __restrict__ share, const REAL* __restrict__ along,
            const REAL* __restrict__ vectors, const REAL* __restrict__ images, const REAL* __restrict__ sizes,
            const REAL* __restrict__ right, REAL* w, double* partial, unsigned* arrived, REAL* __restrict__ found,
            REAL* __restrict__ alpha) {
    __shared__ double slots[WARPS];
    const int last = *step;
    const int64 begin = int64(blockIdx.x) * THREADS + threadIdx.x, stride = int64(gridDim.x) * THREADS;
    for (int64 e = begin; e < n * RANK; e += stride) {
        w[e] = reduced(w[e], e, n, last, along, vectors, share, right);
    }
    for (int t = 0; t <= last; t++) {
        double product = 0;
        for (int64 e = begin; e < n * RANK; e += stride) {
            product += double(images[t * n * RANK + e]) * double(w[e]);
        }
        product = block_sum(product, slots);
        if (threadIdx.x == 0) {
            partial[int64(t) * gridDim.x + blockIdx.x] = product;
        }
    }
    if (!last_block(arrived, gridDim.x)) {
        return;
    }
    for (int t = threadIdx.x; t <= last; t += THREADS) {
        double total = 0;
        for (int64 b = 0; b < gridDim.x; b++) {
            total += __ldcg(partial + int64(t) * gridDim.x + b);
        }
        found[t] = REAL(total / sizes[t] / sizes[t]);
        if (alpha && t == last) {
            alpha[t] = REAL(total / sizes[t]);
        }
    }
}

// The next vector: w without the gauge's share; its image; its size sqrt(v . G v). last gets alpha of the vector before and this size.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    append(int64 n, int* step, const REAL* __restrict__ w, const REAL* __restrict__ share, const REAL* __restrict__ right,
           const REAL* __restrict__ G, REAL* __restrict__ vectors, REAL* __restrict__ images, double* partial, unsigned* arrived,
           const REAL* __restrict__ alpha, REAL* __restrict__ sizes, REAL* __restrict__ last) {
    __shared__ REAL moves[TILE * RANK];
    const int next = *step + 1;
    double total[1] = {0};
    for (int64 first = int64(blockIdx.x) * TILE; first < n; first += int64(gridDim.x) * TILE) {
        const int count = int(n - first < TILE ? n - first : TILE) * RANK;
        __syncthreads();
        for (int e = threadIdx.x; e < count; e += THREADS) {
            const int64 at = first * RANK + e;
            moves[e] = reduced(w[at], at, n, 0, nullptr, nullptr, share, right);
            vectors[next * n * RANK + at] = moves[e];
        }
        __syncthreads();
        for (int e = threadIdx.x; e < count; e += THREADS) {
            REAL image = 0;
            for (int p = 0; p < RANK; p++) {
                image += G[(first * RANK + e) * RANK + p] * moves[e / RANK * RANK + p];
            }
            images[next * n * RANK + first * RANK + e] = image;
            total[0] += double(moves[e]) * double(image);
        }
    }
    if (grid_sum(total, partial, arrived)) {
        sizes[next] = REAL(total[0] > 0 ? sqrt(total[0]) : 0.0);
        last[0] = next > 0 ? alpha[next - 1] : REAL(0);
        last[1] = sizes[next];
        *step = next;
    }
}
