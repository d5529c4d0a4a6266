// Medians and other quantiles, without a sort.
#pragma once

typedef unsigned int Bits4;
typedef unsigned long long Bits8;
template <int SIZE>
struct BitsOf {
    typedef Bits4 type;
};
template <>
struct BitsOf<8> {
    typedef Bits8 type;
};
typedef BitsOf<sizeof(REAL)>::type Bits;

__device__ __forceinline__ Bits4 as_bits(float x) {
    return __float_as_uint(x);
}
__device__ __forceinline__ Bits8 as_bits(double x) {
    return Bits8(__double_as_longlong(x));
}
__device__ __forceinline__ float as_real(Bits4 x) {
    return __uint_as_float(x);
}
__device__ __forceinline__ double as_real(Bits8 x) {
    return __longlong_as_double((long long)x);
}

// The k-th smallest, from 0, of the sizes of n numbers: the bits of what is not negative are in the same order. Eight bits at a
// time, the numbers that agree with those found so far are counted by their next ones. By one block.
__device__ __forceinline__ REAL select(const REAL* numbers, int64 n, int64 k) {
    __shared__ int found[256];
    __shared__ int digit;
    __shared__ int64 rest;
    Bits prefix = 0;
    for (int shift = 8 * sizeof(REAL) - 8; shift >= 0; shift -= 8) {
        __syncthreads();
        for (int d = threadIdx.x; d < 256; d += blockDim.x) {
            found[d] = 0;
        }
        __syncthreads();
        for (int64 t = threadIdx.x; t < n; t += blockDim.x) {
            const Bits bits = as_bits(fabs(__ldcg(numbers + t)));
            if (((bits ^ prefix) >> shift) < 256) {
                atomicAdd(found + (bits >> shift & 255), 1);
            }
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            // Each lane has eight digits: which lane, then which of its digits, the k-th falls to.
            const int lane = threadIdx.x;
            int mine = 0;
            for (int d = 0; d < 8; d++) {
                mine += found[lane * 8 + d];
            }
            int64 before = mine;
            for (int step = 1; step < 32; step *= 2) {
                const int64 other = __shfl_up_sync(EVERY_LANE, before, step);
                before += lane >= step ? other : 0;
            }
            before -= mine;
            if (before <= k && k < before + mine) {
                int d = lane * 8;
                while (k >= before + found[d]) {
                    before += found[d++];
                }
                digit = d;
                rest = k - before;
            }
        }
        __syncthreads();
        prefix |= Bits(digit) << shift;
        k = rest;
    }
    return as_real(prefix);
}
