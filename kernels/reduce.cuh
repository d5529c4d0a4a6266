// Sums over warps, blocks and grids, in an order that depends on nothing but the launch.
#pragma once

const unsigned EVERY_LANE = 0xffffffffu;

// Every lane gets the sum.
template <class V>
__device__ __forceinline__ V warp_sum(V value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        value += __shfl_xor_sync(EVERY_LANE, value, offset);
    }
    return value;
}

#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ int warp_sum(int value) {
    return __reduce_add_sync(EVERY_LANE, value);
}
#endif

template <class V>
__device__ __forceinline__ V warp_max(V value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        const V other = __shfl_xor_sync(EVERY_LANE, value, offset);
        value = other > value ? other : value;
    }
    return value;
}

// Lanes are GROUPS groups of `SIZE` lanes each; the lanes of group 0 get the sum over the groups.
template <int GROUPS, int SIZE, class V>
__device__ __forceinline__ V group_sum(V value, int group) {
    constexpr int half = GROUPS > 16 ? 16 : GROUPS > 8 ? 8 : GROUPS > 4 ? 4 : GROUPS > 2 ? 2 : GROUPS > 1 ? 1 : 0;
#pragma unroll
    for (int step = half; step > 0; step >>= 1) {
        const V other = __shfl_down_sync(EVERY_LANE, value, step * SIZE);
        value += group < step && group + step < GROUPS ? other : V(0);
    }
    return value;
}

// Thread 0 gets the sum over the block; `slots` is shared memory, one for each warp. All threads take part.
template <class V>
__device__ __forceinline__ V block_sum(V value, V* slots) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        slots[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < int(blockDim.x / 32); w++) {
            value += slots[w];
        }
    }
    return value;
}

// The same for the largest.
template <class V>
__device__ __forceinline__ V block_max(V value, V* slots) {
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        slots[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < int(blockDim.x / 32); w++) {
            value = slots[w] > value ? slots[w] : value;
        }
    }
    return value;
}

// Whether this block is the last of `blocks` to get here. What the other blocks wrote to global memory before can then be read, past
// the first cache (__ldcg). `arrived` is 0 before the launch and after it.
__device__ __forceinline__ bool last_block(unsigned* arrived, unsigned blocks) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1u) == blocks - 1;
        if (last) {
            atomicExch(arrived, 0u);
        }
        __threadfence();
    }
    __syncthreads();
    return last;
}

// Sum over the grid: the last block to arrive has it in its thread 0, and returns true. `partial` has N numbers for each block.
template <int N>
__device__ __forceinline__ bool grid_sum(double (&value)[N], double* partial, unsigned* arrived) {
    __shared__ double slots[32];
    for (int s = 0; s < N; s++) {
        const double total = block_sum(value[s], slots);
        if (threadIdx.x == 0) {
            partial[int64(blockIdx.x) * N + s] = total;
        }
    }
    if (!last_block(arrived, gridDim.x)) {
        return false;
    }
    for (int s = 0; s < N; s++) {
        double total = 0;
        for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
            total += __ldcg(partial + int64(b) * N + s);
        }
        value[s] = block_sum(total, slots);
    }
    return threadIdx.x == 0;
}
