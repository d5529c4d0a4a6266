// The SVD of a small matrix, WIDTH x WIDTH: one-sided Jacobi, by one block. The sketch of the core (sketch.cu) starts from the former
// singular vectors, so that its triangle is nearly diagonal and two or three sweeps are enough.
//
// REAL and WIDTH are given with -D.
#include "entry.cuh"
#include "reduce.cuh"

constexpr int THREADS = 256;
constexpr int SQUARE = WIDTH * WIDTH;

// Columns of a WIDTH x WIDTH matrix, those of the right singular vectors, and what belongs to them; in shared memory.
struct Jacobi {
    REAL column[WIDTH][WIDTH], right[WIDTH][WIDTH];
    REAL norm[WIDTH];
    int place[WIDTH];
    bool turned[THREADS / 32];

    // The product of two columns. In double: the squares of float's small columns would vanish.
    __device__ __forceinline__ double product(int p, int q) const {
        double sum = 0;
        for (int i = threadIdx.x % 32; i < WIDTH; i += 32) {
            sum += double(column[p][i]) * double(column[q][i]);
        }
        __syncwarp();
        return warp_sum(sum);
    }

    // Make two columns orthogonal, if they are not. By a warp.
    __device__ __forceinline__ bool turn(int p, int q) {
        const double tolerance = sizeof(REAL) == 8 ? 1e-15 : 5e-7;  // some units of rounding: less is never reached
        const double a = product(p, p), b = product(q, q), c = product(p, q);
        if (!(fabs(c) > tolerance * sqrt(a) * sqrt(b))) {
            return false;  // NaN, too
        }
        const double ratio = (b - a) / (2 * c);
        const double tangent = copysign(1 / (fabs(ratio) + sqrt(1 + ratio * ratio)), ratio);
        const REAL cosine = REAL(1 / sqrt(1 + tangent * tangent)), sine = REAL(tangent / sqrt(1 + tangent * tangent));
        for (int i = threadIdx.x % 32; i < WIDTH; i += 32) {
            mix(column[p][i], column[q][i], cosine, sine);
            mix(right[p][i], right[q][i], cosine, sine);
        }
        return true;
    }

    static __device__ __forceinline__ void mix(REAL& x, REAL& y, REAL cosine, REAL sine) {
        const REAL before = x;
        x = cosine * before - sine * y;
        y = sine * before + cosine * y;
    }

    // Once every pair of columns; pairs that have no column in common at the same time, by a warp each.
    __device__ __forceinline__ bool sweep() {
        constexpr int PAIRS = (WIDTH + 1) / 2, ROUNDS = 2 * PAIRS - 1;
        const int warp = threadIdx.x / 32;
        bool mine = false;
        for (int round = 0; round < ROUNDS; round++) {
            for (int t = warp; t < PAIRS; t += THREADS / 32) {
                const int p = t == 0 ? ROUNDS : (round + t) % ROUNDS, q = (round - t + ROUNDS) % ROUNDS;
                if (p < WIDTH && q < WIDTH) {  // one has no partner if their number is odd
                    mine |= turn(p < q ? p : q, p < q ? q : p);
                }
            }
            __syncthreads();
        }
        if (threadIdx.x % 32 == 0) {
            turned[warp] = mine;
        }
        __syncthreads();
        bool any = false;
        for (int w = 0; w < THREADS / 32; w++) {
            any |= turned[w];
        }
        __syncthreads();
        return any;
    }

    // A unit vector orthogonal to the left singular vectors before `next`, in place of one that has no direction. By one
    // thread: only matrices of a smaller rank need it, such as 0.
    __device__ __forceinline__ void complete(REAL* u, int next) const {
        int largest = 0;
        REAL most = -1;
        for (int i = 0; i < WIDTH; i++) {
            REAL rest = 1;
            for (int q = 0; q < next; q++) {
                rest -= u[i * WIDTH + q] * u[i * WIDTH + q];
            }
            largest = rest > most ? i : largest;
            most = rest > most ? rest : most;
        }
        for (int i = 0; i < WIDTH; i++) {
            u[i * WIDTH + next] = i == largest;
        }
        for (int twice = 0; twice < 2; twice++) {
            REAL square = 0;
            for (int q = 0; q < next; q++) {
                REAL along = 0;
                for (int i = 0; i < WIDTH; i++) {
                    along += u[i * WIDTH + q] * u[i * WIDTH + next];
                }
                for (int i = 0; i < WIDTH; i++) {
                    u[i * WIDTH + next] -= along * u[i * WIDTH + q];
                }
            }
            for (int i = 0; i < WIDTH; i++) {
                square += u[i * WIDTH + next] * u[i * WIDTH + next];
            }
            for (int i = 0; i < WIDTH; i++) {
                u[i * WIDTH + next] /= sqrt(square);
            }
        }
    }
};

// T^T = u diag(s) v^T for a WIDTH x WIDTH matrix T by rows; s descends. By one block.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    small_svd(const REAL* __restrict__ T, REAL* u, REAL* __restrict__ s, REAL* __restrict__ v) {
    constexpr int MOST_SWEEPS = 30;  // ten are many
    const REAL nothing = sizeof(REAL) == 8 ? REAL(1e-150) : REAL(1e-30);  // a column whose direction is rounding
    __shared__ Jacobi jacobi;
    for (int e = threadIdx.x; e < SQUARE; e += THREADS) {
        jacobi.column[e / WIDTH][e % WIDTH] = T[e];
        jacobi.right[e / WIDTH][e % WIDTH] = e / WIDTH == e % WIDTH;
    }
    __syncthreads();
    for (int n = 0; n < MOST_SWEEPS && jacobi.sweep(); n++) {
    }
    for (int q = threadIdx.x / 32; q < WIDTH; q += THREADS / 32) {
        const double square = jacobi.product(q, q);
        if (threadIdx.x % 32 == 0) {
            jacobi.norm[q] = REAL(sqrt(square));
        }
    }
    __syncthreads();
    for (int q = threadIdx.x; q < WIDTH; q += THREADS) {
        int larger = 0;
        for (int p = 0; p < WIDTH; p++) {
            larger += jacobi.norm[p] > jacobi.norm[q] || (!(jacobi.norm[p] < jacobi.norm[q]) && p < q);
        }
        jacobi.place[q] = larger;
        s[larger] = jacobi.norm[q];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < SQUARE; e += THREADS) {
        const int q = e / WIDTH, i = e % WIDTH;
        u[i * WIDTH + jacobi.place[q]] = jacobi.column[q][i] / jacobi.norm[q];
        v[i * WIDTH + jacobi.place[q]] = jacobi.right[q][i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int alive = 0;
        for (int q = 0; q < WIDTH; q++) {
            alive += !(jacobi.norm[q] <= nothing);
        }
        for (int q = alive; q < WIDTH; q++) {
            jacobi.complete(u, q);
        }
    }
}
