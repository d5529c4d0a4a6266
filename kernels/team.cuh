// The threads that share a unit: a warp, or all warps of the block.
#pragma once

// Entries from which all warps of a block take a unit: 32 for each lane. One warp would take so long that the others wait for it
// at the end of the launch; for shorter units the barriers between the warps cost more than they gain.
constexpr int LONG = GIVEN_LONG;

struct Team {
    int warp, warps, lane;
    double* slots;  // shared memory, one for each warp

    __device__ __forceinline__ void sync() const {
        if (warps == 1) {
            __syncwarp();
        } else {
            __syncthreads();
        }
    }

    // All threads of the team get the sum, or the largest.
    template <bool LARGEST, class V>
    __device__ __forceinline__ V reduce(V value) const {
        return across<LARGEST>(LARGEST ? warp_max(value) : warp_sum(value));
    }

    // The same of numbers that all lanes of a warp have.
    template <bool LARGEST, class V>
    __device__ __forceinline__ V across(V value) const {
        if (warps > 1) {
            __syncthreads();
            if (lane == 0) {
                slots[warp] = double(value);
            }
            __syncthreads();
            value = V(slots[0]);
            for (int w = 1; w < warps; w++) {
                const V other = V(slots[w]);
                value = !LARGEST ? value + other : other > value ? other : value;
            }
        }
        return value;
    }

    template <class V>
    __device__ __forceinline__ V sum(V value) const {
        return reduce<false>(value);
    }

    __device__ __forceinline__ bool any(bool value) const {
        return warps == 1 ? __any_sync(EVERY_LANE, value) != 0 : __syncthreads_or(value) != 0;
    }
};

// Rounds in which the warps of a block take long units of a group together, after each has taken a short one: none, or one for
// each unit. All threads take part; `own` is the unit of this warp, in the list of units, each of which is there `times` times.
__device__ __forceinline__ int long_rounds(const int64* units, int64 n_units, int times, const int64* indptr, int64 own,
                                           bool has_one, int per_block) {
    bool is_long = false;
    if (has_one && own < n_units) {
        const int64 unit = units[own / times];
        is_long = indptr[unit + 1] - indptr[unit] > LONG;
    }
    return __syncthreads_or(is_long) ? per_block : 0;
}
