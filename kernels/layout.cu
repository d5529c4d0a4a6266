// The intersection laid out for the core (core/problem.py): who is held out, what takes part in the fit and with which step, and the
// entries from which medians are taken.
//
// A warp has a unit, a row of the intersection. What a row gets is counted first. REAL is given with -D.
#include "entry.cuh"
#include "lists.cuh"
#include "reduce.cuh"

constexpr int WARPS = 4;  // of a block, as in cuda/layout.py
constexpr int THREADS = 32 * WARPS;

enum Kind { FIT = 1, HELD = 2, SAMPLE = 4 };  // of an entry; one of the sample takes part in the fit

// The kinds of all entries; where rows of each kind begin: ends (3, n + 1), of the fit, the held-out ones and the sample; and the sum
// of squares of the fit.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    survey(int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ value,
           const int64* __restrict__ unit_names, const int64* __restrict__ index_names, uint64 key, uint64 below,
           unsigned char* __restrict__ kinds, int64* ends, double* partial, unsigned* arrived, double* __restrict__ total) {
    __shared__ bool last;
    const HeldOut out = {key, below, index_names, false};
    const int lane = threadIdx.x % 32;
    double square[1] = {0};
    for (int64 unit = int64(blockIdx.x) * WARPS + threadIdx.x / 32; unit < n; unit += int64(gridDim.x) * WARPS) {
        int held = 0, sample = 0;
        const int64 first = indptr[unit], end = indptr[unit + 1];
        for (int64 at = first + lane; at < end; at += 32) {
            const bool is_held = out.at(unit_names[unit], index[at]), is_sample = !is_held && value[at] != 0;
            kinds[at] = is_held ? HELD : is_sample ? FIT | SAMPLE : FIT;
            held += is_held;
            sample += is_sample;
            square[0] += is_held ? 0.0 : double(value[at]) * double(value[at]);
        }
        __syncwarp();
        held = warp_sum(held);
        sample = warp_sum(sample);
        if (lane == 0) {
            ends[unit + 1] = end - first - held;
            ends[n + 1 + unit + 1] = held;
            ends[2 * (n + 1) + unit + 1] = sample;
        }
    }
    const bool has_sum = grid_sum(square, partial, arrived);
    if (threadIdx.x == 0) {
        last = has_sum;
        if (has_sum) {
            *total = square[0];
        }
    }
    __syncthreads();
    if (last) {
        for (int kind = 0; kind < 3; kind++) {
            scan<THREADS>(n, ends + kind * (n + 1));
        }
    }
}

// Some entries as lists: row, column and value.
struct Triplets {
    int64* i;
    int64* j;
    REAL* y;

    __device__ __forceinline__ void put(int64 place, int64 row, int column, REAL value) const {
        i[place] = row;
        j[place] = column;
        y[place] = value;
    }
};

// The step of each entry, by who sees it (0 if it is held out): weight; the entries of the fit with their steps, as lists by rows, or
// as matrices (n, length) that are 0 before, where there are no lists; and those that are held out, and those of the sample.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    lay_out(int64 n, int64 length, const int64* __restrict__ indptr, const int* __restrict__ index, const REAL* __restrict__ value,
            const unsigned char* __restrict__ kinds, const signed char* __restrict__ seen_by, REAL by_r, REAL by_c, REAL by_both,
            const int64* __restrict__ ends, REAL* __restrict__ weight, int* __restrict__ to_index, REAL* __restrict__ to_value,
            REAL* __restrict__ to_weight, int64* __restrict__ held_i, int64* __restrict__ held_j, REAL* __restrict__ held_y,
            int64* __restrict__ sample_i, int64* __restrict__ sample_j, REAL* __restrict__ sample_y) {
    const Triplets held = {held_i, held_j, held_y}, sample = {sample_i, sample_j, sample_y};
    const int lane = threadIdx.x % 32;
    const unsigned before = (1u << lane) - 1;
    for (int64 unit = int64(blockIdx.x) * WARPS + threadIdx.x / 32; unit < n; unit += int64(gridDim.x) * WARPS) {
        int64 fit_at = ends[unit], held_at = ends[n + 1 + unit], sample_at = ends[2 * (n + 1) + unit];
        const int64 end = indptr[unit + 1];
        for (int64 at = indptr[unit] + lane; at - lane < end; at += 32) {
            const int kind = at < end ? kinds[at] : 0;
            __syncwarp();
            const unsigned fits = __ballot_sync(EVERY_LANE, kind & FIT), holds = __ballot_sync(EVERY_LANE, kind & HELD),
                           samples = __ballot_sync(EVERY_LANE, kind & SAMPLE);
            if (kind) {
                const int column = index[at];
                const REAL y = value[at];
                const REAL step = kind & HELD ? REAL(0) : seen_by[at] == 3 ? by_both : seen_by[at] == 2 ? by_c : by_r;
                weight[at] = step;
                if (kind & FIT) {
                    const int64 place = to_index ? fit_at + __popc(fits & before) : unit * length + column;
                    if (to_index) {
                        to_index[place] = column;
                    }
                    to_value[place] = y;
                    to_weight[place] = step;
                } else {
                    held.put(held_at + __popc(holds & before), unit, column, y);
                }
                if (kind & SAMPLE) {
                    sample.put(sample_at + __popc(samples & before), unit, column, y);
                }
            }
            fit_at += __popc(fits);
            held_at += __popc(holds);
            sample_at += __popc(samples);
        }
    }
}
