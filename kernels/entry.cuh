// What happens to one observed entry, and nothing else: every kernel takes it from here.
//
// REAL is float or double, given with -D, and so are the constants of the method, which Python knows (backends/cuda/sources.py).
#pragma once

constexpr REAL PART = REAL(GIVEN_PART);    // share of the entries that a restart begins with, and that its first threshold lets in
constexpr int HALVINGS = GIVEN_HALVINGS;   // of the interval in which that threshold is sought
constexpr REAL TIGHT = REAL(GIVEN_TIGHT);  // standard deviations below which the threshold may jump
constexpr REAL RIDGE = REAL(GIVEN_RIDGE);  // of normal equations, in units of rounding
constexpr int LEAST_HELD = GIVEN_LEAST_HELD;  // units with fewer entries than this, times the rank, have none held out

typedef long long int64;
typedef unsigned long long uint64;

// y - row . a, in steps that no compiler may contract otherwise: a residual that is computed again, because there was no room
// to keep it, is the same to the last bit.
template <int N>
__device__ __forceinline__ REAL residual(REAL y, const REAL* row, const REAL* a) {
#pragma unroll
    for (int q = 0; q < N; q++) {
        y = fma(-row[q], a[q], y);
    }
    return y;
}

// Below the threshold; false for NaN.
__device__ __forceinline__ bool inlies(REAL x, REAL zeta) {
    return fabs(x) < zeta;
}

// At the threshold or beyond; false for NaN.
__device__ __forceinline__ bool stands_out(REAL x, REAL zeta) {
    return fabs(x) >= zeta;
}

// T_zeta of the paper.
__device__ __forceinline__ REAL hard_threshold(REAL x, REAL zeta) {
    return inlies(x, zeta) ? REAL(0) : x;
}

// The union sum: an entry that both blocks see is the mean of their updates, weighted by 1 / eta.
__device__ __forceinline__ REAL union_sum(REAL of_R, REAL of_C, bool in_R, bool in_C, REAL eta_R, REAL eta_C, REAL both_etas,
                                          REAL neither) {
    if (in_R && in_C) {
        return (eta_C * of_R + eta_R * of_C) / both_etas;
    }
    return in_R ? of_R : in_C ? of_C : neither;
}

// 53 random bits that belong to the position (i, j); `key` is made from the seed and the stream (see backends/random.py).
__device__ __forceinline__ uint64 bits_at(int64 i, int64 j, uint64 key) {
    const uint64 first = 0xBF58476D1CE4E5B9ull, second = 0x94D049BB133111EBull;
    uint64 z = ((uint64(i) << 32) + uint64(j)) ^ key;
    z = (z ^ (z >> 30)) * first;
    z = (z ^ (z >> 27)) * second;
    z ^= z >> 31;
    z = (z ^ (z >> 30)) * first;
    z ^= z >> 31;
    return z >> 11;
}

// A uniform number on [0, 1) from such bits, the same as random.uniform_at.
__device__ __forceinline__ double uniform(uint64 bits) {
    return double(bits) * (1.0 / 9007199254740992.0);
}

// Which entries are held out of the fit: those whose 53 bits are below `below`, that is, whose uniform number is below the share.
struct HeldOut {
    uint64 key, below;
    const int64* index_names;
    bool transposed;

    __device__ __forceinline__ bool at(int64 unit_name, int index) const {
        const int64 place = index_names[index];
        const uint64 bits = transposed ? bits_at(place, unit_name, key) : bits_at(unit_name, place, key);
        return bits < below;
    }
};
