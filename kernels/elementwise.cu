// The paper's operators on whole matrices (operators.py), each in one pass. REAL is given with -D.
//
// They are files like the others, and no cupy.ElementwiseKernel: what happens to an entry is then taken from entry.cuh, as
// everywhere, and the same gate compiles them for all architectures without a device, which CuPy's generated text needs.
#include "entry.cuh"

// zeta has one number for each entry, or one for all.
extern "C" __global__ void __launch_bounds__(256, 1)
    threshold_each(int64 n, const REAL* __restrict__ M, const REAL* __restrict__ zetas, REAL zeta, REAL* __restrict__ out) {
#pragma unroll 1  // four at a time, as the compiler likes, are slower: other warps hide the latency
    for (int64 t = int64(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += int64(gridDim.x) * blockDim.x) {
        out[t] = hard_threshold(M[t], zetas ? zetas[t] : zeta);
    }
}

// X, what stays where neither block sees an entry, may be null.
extern "C" __global__ void __launch_bounds__(256, 1)
    union_each(int64 n, const REAL* __restrict__ of_R, const REAL* __restrict__ of_C, const unsigned char* __restrict__ in_R,
               const unsigned char* __restrict__ in_C, REAL eta_R, REAL eta_C, REAL both_etas, const REAL* __restrict__ X,
               REAL* __restrict__ out) {
#pragma unroll 1  // four at a time, as the compiler likes, are slower: other warps hide the latency
    for (int64 t = int64(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += int64(gridDim.x) * blockDim.x) {
        const REAL neither = X ? X[t] : REAL(0);
        out[t] = union_sum(of_R[t], of_C[t], in_R[t] != 0, in_C[t] != 0, eta_R, eta_C, both_etas, neither);
    }
}
