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
