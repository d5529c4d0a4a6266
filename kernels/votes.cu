// What is asked of single entries by rows: who is held out, who agrees with the solution of its unit, and who clearly does not.
//
// A warp has a unit. REAL is given with -D; the rank is an argument, since nothing here is worth a compilation for each.
#include "entry.cuh"
#include "reduce.cuh"

constexpr int WARPS = 4;  // of a block, as in cuda/votes.py

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

// Of each of some units, how many entries are nearer to its solution a than `floor`, and how many are at `far` or beyond: votes
// (2, n).
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    count_votes(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
                const REAL* __restrict__ value, const REAL* __restrict__ basis, const REAL* __restrict__ usable,
                const REAL* __restrict__ a, int rank, REAL floor_, REAL far, int64* __restrict__ votes) {
    const int lane = threadIdx.x % 32;
    for (int64 k = int64(blockIdx.x) * WARPS + threadIdx.x / 32; k < n; k += int64(gridDim.x) * WARPS) {
        int near = 0, beyond = 0;
        for (int64 at = indptr[units[k]] + lane; at < indptr[units[k] + 1]; at += 32) {
            const REAL away = distance(value[at], index[at], basis, usable, a + k * rank, rank);
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
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    take_rejected(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
                  const REAL* __restrict__ value, const REAL* __restrict__ basis, const REAL* __restrict__ usable,
                  const REAL* __restrict__ a, int rank, REAL far, const int64* __restrict__ starts, int* __restrict__ to_index,
                  REAL* __restrict__ to_value) {
    const int lane = threadIdx.x % 32;
    for (int64 k = int64(blockIdx.x) * WARPS + threadIdx.x / 32; k < n; k += int64(gridDim.x) * WARPS) {
        int64 to = starts[k];
        const int64 end = indptr[units[k] + 1];
        for (int64 at = indptr[units[k]] + lane; at - lane < end; at += 32) {
            const bool taken = at < end && distance(value[at], index[at], basis, usable, a + k * rank, rank) >= far;
            __syncwarp();
            const unsigned mask = __ballot_sync(EVERY_LANE, taken);
            if (taken) {
                const int64 place = to + __popc(mask & ((1u << lane) - 1));
                to_index[place] = index[at];
                to_value[place] = value[at];
            }
            to += __popc(mask);
        }
    }
}
