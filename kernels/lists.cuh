// Ascending lists.
#pragma once

// The first place of an ascending list that is not below x.
template <class V>
__device__ __forceinline__ int64 lower_bound(const V* __restrict__ list, int64 first, int64 last, V x) {
    while (first < last) {
        const int64 middle = first + (last - first) / 2;
        if (list[middle] < x) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

// From counts in ends[1 .. n] to where units begin, by one block. Its threads have a range of units each.
template <int THREADS>
__device__ __forceinline__ void scan(int64 n, int64* ends) {
    __shared__ int64 totals[THREADS];
    __syncthreads();  // it may be called several times
    const int64 each = (n + THREADS - 1) / THREADS;
    const int64 first = threadIdx.x * each, last = first + each < n ? first + each : n;
    int64 sum = 0;
    for (int64 k = first; k < last; k++) {
        sum += __ldcg(ends + k + 1);
    }
    totals[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int t = 0; t < int(threadIdx.x); t++) {
        sum += totals[t];
    }
    for (int64 k = first; k < last; k++) {
        sum += __ldcg(ends + k + 1);
        ends[k + 1] = sum;
    }
    if (threadIdx.x == 0) {
        ends[0] = 0;
    }
}
