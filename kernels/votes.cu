// What is asked of single entries by rows: who is held out, who agrees with the solution of its unit, and who clearly does not.
//
// A warp has a unit. REAL is given with -D; the rank is an argument, since nothing here is worth a compilation for each.
#include "entry.cuh"
#include "lists.cuh"
#include "reduce.cuh"

constexpr int WARPS = 4, MANY_WARPS = 32;  // of a block, and of the one that has everything, as in cuda/votes.py

// Whether the entries are held out of the fit; units are rows.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    held_out(int64 units, const int64* __restrict__ indptr, const int* __restrict__ index, const int64* __restrict__ unit_names,
             const int64* __restrict__ index_names, uint64 key, uint64 below, bool* __restrict__ held) {
    const HeldOut out = {key, below, index_names, false};
    for (int64 u = int64(blockIdx.x) * WARPS + threadIdx.x / 32; u < units; u += int64(gridDim.x) * WARPS) {
        for (int64 at = indptr[u] + threadIdx.x % 32; at < indptr[u + 1]; at += 32) {
            held[at] = out.at(unit_names[u], index[at]);
        }
    }
}

// How far an entry is from the solution of its unit; below 0 where its position does not vote.
__device__ __forceinline__ REAL distance(REAL y, int place, const REAL* __restrict__ basis, const REAL* __restrict__ usable,
                                         const REAL* __restrict__ a, int rank) {
    if (!(usable[place] > 0)) {
        return -1;
    }
    for (int q = 0; q < rank; q++) {
        y = fma(-basis[int64(place) * rank + q], a[q], y);
    }
    return fabs(y);
}

// Which entries are nearer to left @ right^T than `floor`, in units and at positions that are usable.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    agree(int64 units, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ value,
          const REAL* __restrict__ left, const REAL* __restrict__ right, const REAL* __restrict__ of_unit,
          const REAL* __restrict__ of_position, int rank, REAL floor_, bool* __restrict__ found) {
    for (int64 u = int64(blockIdx.x) * WARPS + threadIdx.x / 32; u < units; u += int64(gridDim.x) * WARPS) {
        for (int64 at = indptr[u] + threadIdx.x % 32; at < indptr[u + 1]; at += 32) {
            const REAL away = of_unit[u] > 0 ? distance(value[at], index[at], right, of_position, left + u * rank, rank) : REAL(-1);
            found[at] = away >= 0 && away < floor_;
        }
    }
}

// Some units beside their solutions; row `rows` of the coefficients (k of unit k, if null) is that of a unit.
struct Voters {
    const int64* __restrict__ units;
    const int64* __restrict__ indptr;
    const int* __restrict__ index;
    const REAL* __restrict__ value;
    const REAL* __restrict__ basis;
    const REAL* __restrict__ usable;
    const REAL* __restrict__ coefficients;
    const int64* __restrict__ rows;
    int rank;

    __device__ __forceinline__ int64 begin(int64 k) const {
        return indptr[units[k]];
    }
    __device__ __forceinline__ int64 end(int64 k) const {
        return indptr[units[k] + 1];
    }
    __device__ __forceinline__ REAL away(int64 k, int64 at) const {
        return distance(value[at], index[at], basis, usable, coefficients + (rows ? rows[k] : k) * rank, rank);
    }
};

// Of each of n units, how many entries are nearer than `floor`, and how many are at `far` or beyond: votes (2, n).
__device__ __forceinline__ void count(const Voters& all, int64 n, REAL floor_, REAL far, int64* votes) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64 k = int64(blockIdx.x) * warps + threadIdx.x / 32; k < n; k += int64(gridDim.x) * warps) {
        int near = 0, beyond = 0;
        for (int64 at = all.begin(k) + lane; at < all.end(k); at += 32) {
            const REAL away = all.away(k, at);
            near += away >= 0 && away < floor_;
            beyond += away >= far;
        }
        __syncwarp();
        near = warp_sum(near);
        beyond = warp_sum(beyond);
        if (lane == 0) {
            votes[k] = near;
            votes[n + k] = beyond;
        }
    }
}

// The entries at `far` or beyond, in their order; those of a unit go to starts[k] and after.
__device__ __forceinline__ void take(const Voters& all, int64 n, REAL far, const int64* starts, int* __restrict__ to_index,
                                     REAL* __restrict__ to_value) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64 k = int64(blockIdx.x) * warps + threadIdx.x / 32; k < n; k += int64(gridDim.x) * warps) {
        int64 to = starts[k];
        const int64 end = all.end(k);
        for (int64 at = all.begin(k) + lane; at - lane < end; at += 32) {
            const bool taken = at < end && all.away(k, at) >= far;
            __syncwarp();
            const unsigned mask = __ballot_sync(EVERY_LANE, taken);
            if (taken) {
                const int64 place = to + __popc(mask & ((1u << lane) - 1));
                to_index[place] = all.index[at];
                to_value[place] = all.value[at];
            }
            to += __popc(mask);
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    count_votes(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
                const REAL* __restrict__ value, const REAL* __restrict__ basis, const REAL* __restrict__ usable,
                const REAL* __restrict__ coefficients, const int64* __restrict__ rows, int rank, REAL floor_, REAL far,
                int64* __restrict__ votes) {
    count({units, indptr, index, value, basis, usable, coefficients, rows, rank}, n, floor_, far, votes);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    take_rejected(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
                  const REAL* __restrict__ value, const REAL* __restrict__ basis, const REAL* __restrict__ usable,
                  const REAL* __restrict__ coefficients, const int64* __restrict__ rows, int rank, REAL far,
                  const int64* __restrict__ starts, int* __restrict__ to_index, REAL* __restrict__ to_value) {
    take({units, indptr, index, value, basis, usable, coefficients, rows, rank}, n, far, starts, to_index, to_value);
}

// Both for few units, by one block: votes (2, n), and behind them where the entries of units begin (n + 1).
extern "C" __global__ void __launch_bounds__(32 * MANY_WARPS, 1)
    split_few(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
              const REAL* __restrict__ value, const REAL* __restrict__ basis, const REAL* __restrict__ usable,
              const REAL* __restrict__ coefficients, const int64* __restrict__ rows, int rank, REAL floor_, REAL far, int64* votes,
              int* __restrict__ to_index, REAL* __restrict__ to_value) {
    const Voters all = {units, indptr, index, value, basis, usable, coefficients, rows, rank};
    int64* const starts = votes + 2 * n;
    count(all, n, floor_, far, votes);
    __syncthreads();
    for (int64 k = threadIdx.x; k < n; k += 32 * MANY_WARPS) {
        starts[k + 1] = votes[n + k];
    }
    scan<32 * MANY_WARPS>(n, starts);
    __syncthreads();
    take(all, n, far, starts, to_index, to_value);
}
