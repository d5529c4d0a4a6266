// Blocks of entries by units (backends/blocks.py) taken apart and put together: some units, some entries, two blocks as one, units
// and positions exchanged. Values are moved as they are; but for residuals, nothing is computed with them.
//
// A warp has a unit. What a unit gets is counted first, and the last block to arrive makes the places where units begin of it.
// REAL is given with -D, for the size of a value alone.
#include "entry.cuh"
#include "lists.cuh"
#include "reduce.cuh"

constexpr int WARPS = 4, MANY_WARPS = 32;  // of a block, and of one that has everything, as in cuda/blocks.py
constexpr int THREADS = 32 * WARPS;

template <int SIZE>
struct WordOf;
template <>
struct WordOf<4> {
    typedef unsigned type;
};
template <>
struct WordOf<8> {
    typedef uint64 type;
};
typedef typename WordOf<sizeof(REAL)>::type Word;

// Which entries are wanted: those with a flag of their own, and at positions with a flag; null stands for all.
struct Wanted {
    const bool* flags;
    const bool* places;

    __device__ __forceinline__ bool at(int64 at, int position) const {
        return (!flags || flags[at]) && (!places || places[position]);
    }
};

// How many entries of some units (all, if null) are wanted, to ends[1 .. n].
__device__ __forceinline__ void count_each(int64 n, const int64* units, const int64* indptr, const int* index, const Wanted& wanted,
                                           int64* ends) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64 k = int64(blockIdx.x) * warps + threadIdx.x / 32; k < n; k += int64(gridDim.x) * warps) {
        const int64 unit = units ? units[k] : k;
        int64 count = indptr[unit + 1] - indptr[unit];
        if (wanted.flags || wanted.places) {
            int found = 0;
            for (int64 at = indptr[unit] + lane; at < indptr[unit + 1]; at += 32) {
                found += wanted.at(at, index[at]);
            }
            __syncwarp();
            count = warp_sum(found);
        }
        if (lane == 0) {
            ends[k + 1] = count;
        }
    }
}

// Where the wanted entries of some units (all, if null) will begin: ends (n + 1).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    count_wanted(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
                 const bool* __restrict__ flags, const bool* __restrict__ places, unsigned* arrived, int64* ends) {
    count_each(n, units, indptr, index, {flags, places}, ends);
    if (last_block(arrived, gridDim.x)) {
        scan<THREADS>(n, ends);
    }
}

// Each wanted entry of some units, in their order, is given to `take`: the number of its unit in the list, where it stands, its
// position, and its place among those that are taken.
template <class Take>
__device__ __forceinline__ void each_wanted(int64 n, const int64* units, const int64* indptr, const int* index, const Wanted& wanted,
                                            const int64* starts, const Take& take) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64 k = int64(blockIdx.x) * warps + threadIdx.x / 32; k < n; k += int64(gridDim.x) * warps) {
        const int64 unit = units ? units[k] : k;
        int64 to = starts[k];
        const int64 end = indptr[unit + 1];
        for (int64 at = indptr[unit] + lane; at - lane < end; at += 32) {
            const bool taken = at < end && wanted.at(at, index[at]);
            __syncwarp();
            const unsigned mask = __ballot_sync(EVERY_LANE, taken);
            if (taken) {
                take(k, at, index[at], to + __popc(mask & ((1u << lane) - 1)));
            }
            to += __popc(mask);
        }
    }
}

// The wanted entries: their positions, values and sigma (or null), and, where there is room for them, the numbers of their units in
// the list.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    take_wanted(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
                const bool* __restrict__ flags, const bool* __restrict__ places, const int64* __restrict__ starts,
                const Word* __restrict__ value, const Word* __restrict__ sigma, int* __restrict__ to_index,
                Word* __restrict__ to_value, Word* __restrict__ to_sigma, int64* __restrict__ to_unit) {
    each_wanted(n, units, indptr, index, {flags, places}, starts, [&](int64 k, int64 at, int position, int64 place) {
        to_index[place] = position;
        to_value[place] = value[at];
        if (sigma) {
            to_sigma[place] = sigma[at];
        }
        if (to_unit) {
            to_unit[place] = k;
        }
    });
}

// What is left of the entries of few units, at positions with a flag, without a product of factors, as the upper half of a float32 (its
// digits to 0.4 %), and their positions, in 16 bits where these are enough: a third of the bytes that go to the host. Where those of
// units begin goes to starts (n + 1). Unit k of the list has row own_rows[k] of its factor, position p has row other_rows[p] of the
// other. One block: a warp has a unit anyway, and these are few.
extern "C" __global__ void __launch_bounds__(32 * MANY_WARPS, 1)
    take_residuals(int64 n, const int64* __restrict__ units, const int64* __restrict__ indptr, const int* __restrict__ index,
                   const bool* __restrict__ places, const REAL* __restrict__ value, const REAL* __restrict__ own,
                   const int64* __restrict__ own_rows, const REAL* __restrict__ other, const int64* __restrict__ other_rows, int rank,
                   int64* starts, unsigned short* __restrict__ small, int* __restrict__ large, unsigned short* __restrict__ left_over) {
    const Wanted wanted = {nullptr, places};
    count_each(n, units, indptr, index, wanted, starts);
    scan<32 * MANY_WARPS>(n, starts);
    __syncthreads();
    each_wanted(n, units, indptr, index, wanted, starts, [&](int64 k, int64 at, int position, int64 place) {
        REAL rest = value[at];
        for (int q = 0; q < rank; q++) {
            rest = fma(-own[own_rows[k] * rank + q], other[other_rows[position] * rank + q], rest);
        }
        left_over[place] = (unsigned short)((__float_as_uint(float(rest)) + 0x8000u) >> 16);
        if (small) {
            small[place] = (unsigned short)(position);
        } else {
            large[place] = position;
        }
    });
}

// Rows of a matrix (n, width): row p of `core` where places[k] is p, or row p of `rest` and, behind its n_rest rows, of `more`, times
// `scale` (or null), where it is -1 - p.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    join_rows(int64 n, int width, const int64* __restrict__ places, const REAL* __restrict__ core, int64 n_rest,
              const REAL* __restrict__ rest, const REAL* __restrict__ more, const REAL* __restrict__ scale, REAL* __restrict__ out) {
    for (int64 t = int64(blockIdx.x) * THREADS + threadIdx.x; t < n * width; t += int64(gridDim.x) * THREADS) {
        const int64 p = places[t / width], behind = -1 - p;
        const int q = int(t % width);
        if (p >= 0) {
            out[t] = core[p * width + q];
        } else {
            const REAL x = behind < n_rest ? rest[behind * width + q] : more[(behind - n_rest) * width + q];
            out[t] = scale ? x * scale[q] : x;
        }
    }
}

// Units (all, if null) and positions exchanged, by counting: a block has a run of units, one after the other.
__device__ __forceinline__ int64 run_begin(int64 n, unsigned run) {
    return n * int64(run) / int64(gridDim.x);
}

// How many entries each run has at each position: counts (runs, length); and where positions will begin: ends (length + 1), 0 before.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    count_places(int64 n, const int64* __restrict__ units, int64 length, const int64* __restrict__ indptr,
                 const int* __restrict__ index, unsigned* counts, unsigned* arrived, int64* ends) {
    unsigned* const mine = counts + blockIdx.x * length;
    const int64 first = run_begin(n, blockIdx.x), last = run_begin(n, blockIdx.x + 1);
    for (int64 p = threadIdx.x; p < length; p += THREADS) {
        mine[p] = 0;
    }
    __syncthreads();
    if (units) {
        for (int64 k = first; k < last; k++) {
            for (int64 at = indptr[units[k]] + threadIdx.x; at < indptr[units[k] + 1]; at += THREADS) {
                atomicAdd(mine + index[at], 1u);
            }
        }
    } else {
        for (int64 at = indptr[first] + threadIdx.x; at < indptr[last]; at += THREADS) {
            atomicAdd(mine + index[at], 1u);
        }
    }
    __syncthreads();
    for (int64 p = threadIdx.x; p < length; p += THREADS) {
        atomicAdd(reinterpret_cast<uint64*>(ends + p + 1), uint64(__ldcg(mine + p)));  // whole numbers, in any order
    }
    if (last_block(arrived, gridDim.x)) {
        scan<THREADS>(length, ends);
    }
}

// The entries by position, those at the same one in the order of their units. A unit has a position once, so no two threads ask for the
// same place. `done` (runs, length) counts what stands before. Without values, places of entries stand for them.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    exchange(int64 n, const int64* __restrict__ units, int64 length, const int64* __restrict__ indptr, const int* __restrict__ index,
             const unsigned* __restrict__ counts, unsigned* done, const int64* __restrict__ starts, const Word* __restrict__ value,
             const Word* __restrict__ sigma, int* __restrict__ to_index, Word* __restrict__ to_value, Word* __restrict__ to_sigma) {
    unsigned* const mine = done + blockIdx.x * length;
    for (int64 p = threadIdx.x; p < length; p += THREADS) {
        unsigned before = 0;
        for (unsigned run = 0; run < blockIdx.x; run++) {
            before += counts[run * length + p];
        }
        mine[p] = before;
    }
    __syncthreads();
    const int64 last = run_begin(n, blockIdx.x + 1);
    for (int64 k = run_begin(n, blockIdx.x); k < last; k++) {
        const int64 unit = units ? units[k] : k;
        for (int64 at = indptr[unit] + threadIdx.x; at < indptr[unit + 1]; at += THREADS) {
            const int64 place = starts[index[at]] + mine[index[at]]++;
            to_index[place] = int(k);
            to_value[place] = value ? value[at] : Word(at);
            if (sigma) {
                to_sigma[place] = sigma[at];
            }
        }
        __syncthreads();
    }
}

// Where the entries of units will begin that have those of two blocks, each position once. Of the second, the units are `units2` (all,
// if null).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    count_union(int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const int64* __restrict__ units2,
                const int64* __restrict__ indptr2, const int* __restrict__ index2, unsigned* arrived, int64* ends) {
    const int lane = threadIdx.x % 32;
    for (int64 unit = int64(blockIdx.x) * WARPS + threadIdx.x / 32; unit < n; unit += int64(gridDim.x) * WARPS) {
        const int64 unit2 = units2 ? units2[unit] : unit, first = indptr2[unit2], last = indptr2[unit2 + 1];
        int alone = 0;
        for (int64 at = indptr[unit] + lane; at < indptr[unit + 1]; at += 32) {
            const int64 there = lower_bound(index2, first, last, index[at]);
            alone += there == last || index2[there] != index[at];
        }
        __syncwarp();
        alone = warp_sum(alone);
        if (lane == 0) {
            ends[unit + 1] = last - first + alone;
        }
    }
    if (last_block(arrived, gridDim.x)) {
        scan<THREADS>(n, ends);
    }
}

struct Half {
    const int64* units;
    const int64* indptr;
    const int* index;
    const Word* value;
    const Word* sigma;

    __device__ __forceinline__ int64 at(int64 unit) const {
        return units ? units[unit] : unit;
    }
};

// The entries of one of two blocks go to where they stand among those of both. Those that both have are written by the first.
__device__ __forceinline__ void merge(const Half& mine, const Half& other, bool is_first, int64 unit, int64 to, int lane,
                                      int* to_index, Word* to_value, Word* to_sigma, signed char* code) {
    const int64 begin = mine.indptr[mine.at(unit)], end = mine.indptr[mine.at(unit) + 1];
    const int64 first = other.indptr[other.at(unit)], last = other.indptr[other.at(unit) + 1];
    int64 before = 0;  // entries that both have, so far
    for (int64 at = begin + lane; at - lane < end; at += 32) {
        int64 there = last;
        bool both = false;
        if (at < end) {
            there = lower_bound(other.index, first, last, mine.index[at]);
            both = there < last && other.index[there] == mine.index[at];
        }
        __syncwarp();
        const unsigned mask = __ballot_sync(EVERY_LANE, both);
        if (at < end && (is_first || !both)) {
            const int64 place = to + at - begin + there - first - before - __popc(mask & ((1u << lane) - 1));
            to_index[place] = mine.index[at];
            to_value[place] = mine.value[at];
            if (mine.sigma) {
                to_sigma[place] = mine.sigma[at];
            }
            code[place] = both ? 3 : is_first ? 1 : 2;
        }
        before += __popc(mask);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    take_union(int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const Word* __restrict__ value,
               const Word* __restrict__ sigma, const int64* __restrict__ units2, const int64* __restrict__ indptr2,
               const int* __restrict__ index2, const Word* __restrict__ value2, const Word* __restrict__ sigma2, const int64* __restrict__ starts,
               int* __restrict__ to_index, Word* __restrict__ to_value, Word* __restrict__ to_sigma,
               signed char* __restrict__ code) {
    const Half first = {nullptr, indptr, index, value, sigma}, second = {units2, indptr2, index2, value2, sigma2};
    for (int64 unit = int64(blockIdx.x) * WARPS + threadIdx.x / 32; unit < n; unit += int64(gridDim.x) * WARPS) {
        merge(first, second, true, unit, starts[unit], threadIdx.x % 32, to_index, to_value, to_sigma, code);
        merge(second, first, false, unit, starts[unit], threadIdx.x % 32, to_index, to_value, to_sigma, code);
    }
}

// Digits of a place that differ much between neighbours.
__device__ __forceinline__ uint64 scattered(int64 place, uint64 odd) {
    const uint64 mixed = (uint64(place) + 1) * odd;
    return (mixed ^ uint64(int64(mixed) >> 29)) * odd;
}

// A number for each unit, and one for each position, the same for two that have the same entries: see
// `samples.intersection.fingerprints`. Those of positions are 0 before; they are sums of whole numbers, in any order.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fingerprint(int64 n, const int64* __restrict__ indptr, const int* __restrict__ index, const Word* __restrict__ value, uint64 odd,
                uint64* __restrict__ of_units, uint64* of_positions) {
    for (int64 unit = int64(blockIdx.x) * WARPS + threadIdx.x / 32; unit < n; unit += int64(gridDim.x) * WARPS) {
        uint64 sum = 0;
        for (int64 at = indptr[unit] + threadIdx.x % 32; at < indptr[unit + 1]; at += 32) {
            // shifts of signed numbers, as NumPy has them
            const int64 digits = sizeof(Word) == 8 ? int64(value[at]) : int64(int(value[at]));
            const uint64 mixed = (uint64(digits) ^ uint64(digits >> 32)) + odd;
            sum += mixed * scattered(index[at], odd);
            atomicAdd(of_positions + index[at], mixed * scattered(unit, odd));
        }
        __syncwarp();
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) {
            of_units[unit] = sum;
        }
    }
}

// The largest sizes of the values of two blocks, by blocks of threads: partial (2, gridDim.x) while they are sought.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    largest_sizes(int64 n, const REAL* __restrict__ value, int64 n2, const REAL* __restrict__ value2, double* partial, unsigned* arrived,
                  double* __restrict__ out) {
    __shared__ double slots[WARPS];
    const int64 begin = int64(blockIdx.x) * THREADS + threadIdx.x, step = int64(gridDim.x) * THREADS;
    for (int h = 0; h < 2; h++) {
        const REAL* const mine = h ? value2 : value;
        const int64 count = h ? n2 : n;
        double most = 0;
        for (int64 t = begin; t < count; t += step) {
            most = fmax(most, fabs(double(mine[t])));
        }
        __syncwarp();
        most = block_max(most, slots);
        if (threadIdx.x == 0) {
            partial[h * gridDim.x + blockIdx.x] = most;
        }
    }
    if (last_block(arrived, gridDim.x)) {
        for (int h = 0; h < 2; h++) {
            double most = 0;
            for (unsigned b = threadIdx.x; b < gridDim.x; b += THREADS) {
                most = fmax(most, __ldcg(partial + h * gridDim.x + b));
            }
            __syncwarp();
            most = block_max(most, slots);
            if (threadIdx.x == 0) {
                out[h] = most;
            }
        }
    }
}
