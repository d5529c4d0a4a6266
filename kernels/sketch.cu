// Sketches of the core's truncated SVD: matrices of many rows and WIDTH columns, by rows.
//
// orthonormalise and combine: Householder's QR of panels of rows, a block for each, and of the triangles that they leave, by the
// last block to arrive. Householder, since the last columns of a sketch are nearly dependent, or 0: its Q is orthonormal
// even then, where Cholesky's factor of the Gram matrix has lost half of the digits, or does not exist.
// rotate: the new iterate from the two, and how far it is from the former one.
//
// REAL and WIDTH are given with -D.
#include "entry.cuh"
#include "reduce.cuh"

constexpr int THREADS = 256;
constexpr int PANEL = GIVEN_PANEL_BYTES / int(WIDTH * sizeof(REAL));  // rows of a panel that fits into shared memory
constexpr int SQUARE = WIDTH * WIDTH;
constexpr int COLUMNS = WIDTH < 32 ? WIDTH : 32;
constexpr int PER_WARP = 32 / COLUMNS;  // rows that a warp of `rotate` takes at a time
constexpr int PER_LANE = (WIDTH + 31) / 32;

// A matrix of WIDTH columns in shared or global memory.
struct Matrix {
    REAL* at;
    int64 down, across;

    __device__ __forceinline__ REAL& operator()(int64 row, int column) const {
        return at[row * down + column * across];
    }
};

// Householder's reflections I - weight v v^T that make A triangular. v has `top` at its own row and A's column below it; the
// triangle is A above the diagonal, and `diagonal`. A warp has its columns, a lane its rows, so that a block waits once for
// each column. By all threads of a block; rows >= WIDTH.
struct Reflections {
    REAL diagonal[WIDTH], weight[WIDTH], top[WIDTH];

    __device__ __forceinline__ void make(const Matrix& A, int64 rows) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int j = 0; j < WIDTH; j++) {
            __syncthreads();  // column j is what it will be
            const REAL head = A(j, j);
            REAL tail = 0;
            for (int64 i = lane; i < rows; i += 32) {
                if (i > j) {
                    tail += A(i, j) * A(i, j);
                }
            }
            tail = warp_sum(tail);
            // nothing below the diagonal: no reflection, as in LAPACK
            const REAL length = tail == 0 ? head : -copysign(sqrt(head * head + tail), head);
            const REAL first = head - length;
            const REAL factor = tail == 0 ? REAL(0) : -1 / (length * first);
            if (threadIdx.x == 0) {
                diagonal[j] = length;
                weight[j] = factor;
                top[j] = first;
            }
            for (int q = warp; q < WIDTH; q += THREADS / 32) {
                if (q > j) {
                    apply(A, j, first, factor, A, q, rows);
                }
            }
        }
        __syncthreads();
    }

    // The orthonormal Q with A = Q R: the reflections of the first unit vectors.
    __device__ __forceinline__ void span(const Matrix& A, const Matrix& Q, int64 rows) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int q = warp; q < WIDTH; q += THREADS / 32) {
            for (int64 i = lane; i < rows; i += 32) {
                Q(i, q) = i == q;
            }
            for (int j = q; j >= 0; j--) {
                apply(A, j, top[j], weight[j], Q, q, rows);
            }
        }
        __syncthreads();
    }

    // Reflect column q of X by column j of A. By a warp.
    __device__ __forceinline__ void apply(const Matrix& A, int j, REAL first, REAL factor, const Matrix& X, int q,
                                          int64 rows) const {
        const int lane = threadIdx.x % 32;
        REAL product = 0;
        for (int64 i = lane; i < rows; i += 32) {
            if (i >= j) {
                product += (i == j ? first : A(i, j)) * X(i, q);
            }
        }
        product = factor * warp_sum(product);
        for (int64 i = lane; i < rows; i += 32) {
            if (i >= j) {
                X(i, q) -= product * (i == j ? first : A(i, j));
            }
        }
    }

    // The triangle R, to global memory by rows.
    __device__ __forceinline__ void write(const Matrix& A, REAL* R) const {
        for (int e = threadIdx.x; e < SQUARE; e += THREADS) {
            const int p = e / WIDTH, q = e % WIDTH;
            R[e] = p < q ? A(p, q) : p == q ? diagonal[p] : REAL(0);
        }
    }
};

// Of a matrix X (rows x WIDTH), which is overwritten: panels of Q, the triangle R, and turn = Y^T Q for another matrix Y of as
// many rows, if there is one. gridDim.x is the number of panels. With one panel `out` is Q; with more, `tops` has for each panel a
// square to multiply its part of `out` with (see combine). stack, crossed, work and tops have a square for each panel.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    orthonormalise(int64 rows, REAL* X, const REAL* __restrict__ Y, REAL* out, REAL* stack, REAL* crossed, REAL* work, REAL* tops,
                   unsigned* arrived, REAL* __restrict__ R, REAL* __restrict__ turn) {
    __shared__ REAL first[PANEL * WIDTH];
    __shared__ REAL second[PANEL * WIDTH];
    __shared__ Reflections reflections;
    const int panels = gridDim.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64 begin = blockIdx.x * rows / panels, count = (blockIdx.x + 1) * rows / panels - begin;
    bool staged = count <= PANEL;
    REAL* const target = out + begin * WIDTH;
    Matrix A = {X + begin * WIDTH, WIDTH, 1}, Q = {target, WIDTH, 1};
    if (staged) {
        for (int64 e = threadIdx.x; e < count * WIDTH; e += THREADS) {
            first[e % WIDTH * PANEL + e / WIDTH] = A.at[e];
        }
        A = {first, 1, PANEL};
        Q = {second, 1, PANEL};
    }
    reflections.make(A, count);
    reflections.span(A, Q, count);
    if (staged) {
        for (int64 e = threadIdx.x; e < count * WIDTH; e += THREADS) {
            target[e] = Q(e / WIDTH, int(e % WIDTH));
        }
    }
    reflections.write(A, panels == 1 ? R : stack + int64(blockIdx.x) * SQUARE);
    REAL* const products = panels == 1 ? turn : crossed + int64(blockIdx.x) * SQUARE;
    for (int e = warp; Y && e < SQUARE; e += THREADS / 32) {
        const int p = e / WIDTH, q = e % WIDTH;
        REAL product = 0;
        for (int64 i = lane; i < count; i += 32) {
            product += Y[(begin + i) * WIDTH + p] * Q(i, q);
        }
        product = warp_sum(product);
        if (lane == 0) {
            products[e] = product;
        }
    }
    if (panels == 1 || !last_block(arrived, panels)) {
        return;
    }
    const int64 height = int64(panels) * WIDTH;
    staged = height <= PANEL;
    A = {staged ? first : work, 1, staged ? PANEL : height};
    Q = staged ? Matrix{second, 1, PANEL} : Matrix{tops, WIDTH, 1};
    for (int64 e = threadIdx.x; e < height * WIDTH; e += THREADS) {
        A(e / WIDTH, int(e % WIDTH)) = __ldcg(stack + e);
    }
    reflections.make(A, height);
    reflections.span(A, Q, height);
    if (staged) {
        for (int64 e = threadIdx.x; e < height * WIDTH; e += THREADS) {
            tops[e] = Q(e / WIDTH, int(e % WIDTH));
        }
    }
    reflections.write(A, R);
    for (int e = warp; Y && e < SQUARE; e += THREADS / 32) {
        const int p = e / WIDTH, q = e % WIDTH;
        REAL product = 0;
        for (int64 i = lane; i < height; i += 32) {
            product += __ldcg(crossed + (i / WIDTH * WIDTH + p) * WIDTH + i % WIDTH) * Q(i, q);
        }
        product = warp_sum(product);
        if (lane == 0) {
            turn[e] = product;
        }
    }
}

// Q of several panels: each part times its square.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    combine(int64 rows, int panels, const REAL* __restrict__ parts, const REAL* __restrict__ tops, REAL* __restrict__ out) {
    for (int64 e = int64(blockIdx.x) * THREADS + threadIdx.x; e < rows * WIDTH; e += int64(gridDim.x) * THREADS) {
        const int64 row = e / WIDTH, panel = ((row + 1) * panels - 1) / rows;
        const REAL* square = tops + panel * SQUARE + e % WIDTH;
        REAL sum = 0;
#pragma unroll 4
        for (int p = 0; p < WIDTH; p++) {
            sum += parts[row * WIDTH + p] * square[p * WIDTH];
        }
        out[e] = sum;
    }
}

// P = parts_P u, left = P diag(s) with singular values from `rank` on taken for 0, Q = parts_Q v, and the change of left Q^T
// relative to the new one: result = ||left Q^T - old left old Q^T|| / ||left||, without the cancellation of inner products (see
// Grid.change). left, Q and s are the former ones before; crossed = old Q^T parts_Q. The first `left_blocks` blocks take the rows
// of left, the others those of Q.
extern "C" __global__ void __launch_bounds__(128, 1)
    rotate(int64 m, int64 n, int rank, int left_blocks, const REAL* __restrict__ parts_P, const REAL* __restrict__ parts_Q,
           const REAL* __restrict__ u, const REAL* __restrict__ values, const REAL* __restrict__ v,
           const REAL* __restrict__ crossed, REAL* __restrict__ P, REAL* left, REAL* Q, REAL* s, double* partial,
           unsigned* arrived, REAL* __restrict__ result) {
    __shared__ REAL rotation[SQUARE], former[SQUARE];
    const bool of_left = int(blockIdx.x) < left_blocks;
    for (int e = threadIdx.x; e < SQUARE; e += blockDim.x) {
        const int p = e / WIDTH, q = e % WIDTH;
        rotation[e] = of_left ? u[e] : v[e];
        // what the old row is compared with: old left (old Q^T Q), or Q (Q^T old Q) = parts_Q crossed^T
        REAL sum = of_left ? REAL(0) : crossed[q * WIDTH + p];
        for (int t = 0; of_left && t < WIDTH; t++) {
            sum += crossed[p * WIDTH + t] * v[t * WIDTH + q];
        }
        former[e] = sum;
    }
    __syncthreads();
    const int lane = threadIdx.x % 32, part = lane / COLUMNS, column = lane % COLUMNS, warps = blockDim.x / 32;
    const int64 rows = of_left ? m : n;
    const int64 block = of_left ? blockIdx.x : blockIdx.x - left_blocks, blocks = of_left ? left_blocks : gridDim.x - left_blocks;
    double totals[2] = {0, 0};
    for (int64 base = (block * warps + threadIdx.x / 32) * PER_WARP; base < rows; base += blocks * warps * PER_WARP) {
        const int64 row = base + part;
        const bool there = part < PER_WARP && row < rows;
        const REAL* from = (of_left ? parts_P : parts_Q) + row * WIDTH;
        REAL* const old = (of_left ? left : Q) + row * WIDTH;
        REAL fresh[PER_LANE];
#pragma unroll
        for (int l = 0; l < PER_LANE; l++) {
            const int q = l * 32 + column;
            fresh[l] = 0;
            if (there && q < WIDTH) {
                REAL expected = 0;
#pragma unroll 4
                for (int p = 0; p < WIDTH; p++) {
                    fresh[l] += from[p] * rotation[p * WIDTH + q];
                    expected += (of_left ? old[p] : from[p]) * former[p * WIDTH + q];
                }
                const REAL scaled = q < rank ? fresh[l] * values[q] : REAL(0);
                const double moved = of_left ? double(scaled - expected) : double((old[q] - expected) * s[q]);
                totals[0] += moved * moved;
                totals[1] += of_left ? double(scaled) * double(scaled) : 0.0;
            }
        }
        __syncwarp();  // the old row was read by all lanes that need it
#pragma unroll
        for (int l = 0; l < PER_LANE; l++) {
            const int q = l * 32 + column;
            if (there && q < WIDTH) {
                if (of_left) {
                    P[row * WIDTH + q] = fresh[l];
                }
                old[q] = !of_left ? fresh[l] : q < rank ? fresh[l] * values[q] : REAL(0);
            }
        }
    }
    if (grid_sum(totals, partial, arrived)) {
        *result = REAL(sqrt(totals[0]) / sqrt(totals[1]));
        for (int q = 0; q < WIDTH; q++) {  // by the last block: the others have read the former ones
            s[q] = q < rank ? values[q] : REAL(0);
        }
    }
}
