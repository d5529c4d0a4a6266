// What follows for each unit from the table of its fit pass (backends/plain/verdicts.py), and sums over all of them.
//
// A thread has a unit. What is known of all units of a side is one table of doubles: see `UnitTable` in cuda/verdicts.py. Units of the
// core are in it as well, with a status of -1 - theirs, and are left out here. REAL is the dtype of the fit pass.
#include "entry.cuh"
#include "lists.cuh"
#include "reduce.cuh"
#include "rules.cuh"

constexpr int THREADS = 128, PICKERS = 1024;  // as in cuda/verdicts.py

enum Known { STATUS, N_OBS, N_INLIERS, SPREAD, ERROR, N_INFORMATIVE, N_HELD, N_CONSENSUS, COLUMNS };
enum Fit { FIT_OBS, FIT_INLIERS, FIT_SPREAD, FIT_ILL, FIT_ERROR, FIT_INFORMATIVE, FIT_HELD, FIT_CONSENSUS };  // passes.Column

// A bin that exists, whatever came out of a fit.
__device__ inline int within(double bin) {
    return bin > 0 ? (bin < BINS ? int(bin) : BINS) : 0;
}

// Of each of two counts, the bin of the median and the total: out (2, 2). By one block; a thread has a range of bins.
__device__ __forceinline__ void medians(const unsigned* counts, double* __restrict__ out) {
    __shared__ double totals[THREADS];
    constexpr int EACH = (BINS + THREADS) / THREADS;
    for (int h = 0; h < 2; h++) {
        const unsigned* mine = counts + h * (BINS + 1);
        const int first = threadIdx.x * EACH, last = first + EACH < BINS + 1 ? first + EACH : BINS + 1;
        double sum = 0;
        for (int b = first; b < last; b++) {
            sum += __ldcg(mine + b);
        }
        __syncthreads();
        totals[threadIdx.x] = sum;
        __syncthreads();
        double before = 0, total = 0;
        for (int t = 0; t < THREADS; t++) {
            before += t < int(threadIdx.x) ? totals[t] : 0.0;
            total += totals[t];
        }
        if (threadIdx.x == 0) {
            out[2 * h] = 0;
            out[2 * h + 1] = total;
        }
        __syncthreads();
        for (int b = first; b < last; b++) {  // the first bin up to which half of them lie
            const double up_to = before + __ldcg(mine + b);
            if (before < 0.5 * total && up_to >= 0.5 * total) {
                out[2 * h] = b;
            }
            before = up_to;
        }
    }
}

// Read the table of a pass over some units, and write what is known of the units of the core: `rows` of `inside`. Units of the pass
// are counted by share of inliers and by spread, counts (2, BINS + 1): see `medians` for what comes out.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    diagnose(int64 n, const int64* __restrict__ units, const REAL* __restrict__ fits, double rank, double floor_, int64 n_inside,
             const int64* __restrict__ inside, const double* __restrict__ rows, unsigned* counts, double* __restrict__ known,
             unsigned* arrived, double* __restrict__ out) {
    const int64 first = int64(blockIdx.x) * THREADS + threadIdx.x, step = int64(gridDim.x) * THREADS;
    for (int64 k = first; k < n_inside * COLUMNS; k += step) {
        known[inside[k / COLUMNS] * COLUMNS + k % COLUMNS] = rows[k];
    }
    for (int64 k = first; k < n; k += step) {
        const REAL* fit = fits + k * COLUMNS;
        double* to = known + units[k] * COLUMNS;
        const double n_obs = fit[FIT_OBS], n_inliers = fit[FIT_INLIERS], spread = fit[FIT_SPREAD];
        to[STATUS] = first_status(n_obs, n_inliers, fit[FIT_ILL], rank);
        to[N_OBS] = n_obs;
        to[N_INLIERS] = n_inliers;
        to[SPREAD] = spread;
        to[ERROR] = fit[FIT_ERROR];
        to[N_INFORMATIVE] = fit[FIT_INFORMATIVE];
        to[N_HELD] = fit[FIT_HELD];
        to[N_CONSENSUS] = fit[FIT_CONSENSUS];
        if (to[STATUS] != TOO_FEW_OBSERVATIONS) {
            atomicAdd(counts + within(share_bin(n_obs, n_inliers)), 1u);
        }
        atomicAdd(counts + BINS + 1 + (floor_ > 0 ? within(spread_bin(spread, floor_)) : 0), 1u);
    }
    if (last_block(arrived, gridDim.x)) {
        medians(counts, out);
    }
}

// The status of units beside the others, and what may have to be done with them: bits, with the former status above them. sums: how
// many have each of the five bits.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    judge(int64 n, const int64* __restrict__ units, const Limits* __restrict__ limits, double* known, unsigned char* __restrict__ bits,
          double* partial, unsigned* arrived, double* __restrict__ sums) {
    const Limits at = *limits;
    double counted[FORMER] = {0, 0, 0, 0, 0};
    for (int64 k = int64(blockIdx.x) * THREADS + threadIdx.x; k < n; k += int64(gridDim.x) * THREADS) {
        double* unit = known + units[k] * COLUMNS;
        const double n_obs = unit[N_OBS], n_inliers = unit[N_INLIERS];
        double after, found;
        verdict(unit[STATUS], n_obs, n_inliers, unit[SPREAD], unit[ERROR], unit[N_INFORMATIVE], at, after, found);
        int mine = int(found);
        if (at.contests && after == OK && contestable(n_obs, n_inliers, at.share, at.holdout, at.consensus)) {
            mine |= CONTESTABLE;
        }
#pragma unroll
        for (int bit = 0; bit < FORMER; bit++) {
            counted[bit] += mine >> bit & 1;
        }
        bits[k] = mine | int(unit[STATUS]) << FORMER;
        unit[STATUS] = after;
    }
    if (grid_sum(counted, partial, arrived)) {
        for (int bit = 0; bit < FORMER; bit++) {
            sums[bit] = counted[bit];
        }
    }
}

// Numbers below n that are `wanted`, ascending, given to `take` with their places; how many there are. By one block.
template <class Wanted, class Take>
__device__ __forceinline__ int64 compact(int64 n, const Wanted& wanted, const Take& take) {
    __shared__ int of_warp[PICKERS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 before = 0;
    for (int64 first = 0; first < n; first += PICKERS) {
        const int64 k = first + threadIdx.x;
        const bool taken = k < n && wanted(k);
        __syncwarp();
        const unsigned mask = __ballot_sync(EVERY_LANE, taken);
        __syncthreads();
        if (lane == 0) {
            of_warp[warp] = __popc(mask);
        }
        __syncthreads();
        int64 place = before + __popc(mask & ((1u << lane) - 1));
        for (int w = 0; w < PICKERS / 32; w++) {
            place += w < warp ? of_warp[w] : 0;
            before += of_warp[w];
        }
        if (taken) {
            take(k, place);
        }
    }
    return before;
}

// Two lists of units that are not of the core, by their bits: the numbers of those with one of `lone_bits` and none of `bits`; and of
// those with one of `bits` what is known, their bits, numbers and observations, and their coefficients: rows (.., COLUMNS + 3 + rank).
// counts: how many of each. One block.
extern "C" __global__ void __launch_bounds__(PICKERS, 1)
    pick_units(int64 n, const int64* __restrict__ units, const unsigned char* __restrict__ found, const double* __restrict__ known,
               const int64* __restrict__ indptr, const REAL* __restrict__ a, int rank, int lone_bits, int bits,
               int64* __restrict__ lone, double* __restrict__ rows, int64* __restrict__ counts) {
    const int64 n_lone = compact(
        n, [&](int64 k) { return (found[k] & lone_bits) && !(found[k] & bits); }, [&](int64 k, int64 place) { lone[place] = k; });
    const int64 n_rows = compact(
        n, [&](int64 k) { return (found[k] & bits) != 0; },
        [&](int64 k, int64 place) {
            double* const row = rows + place * (COLUMNS + 3 + rank);
            for (int c = 0; c < COLUMNS; c++) {
                row[c] = known[units[k] * COLUMNS + c];
            }
            row[COLUMNS] = found[k];
            row[COLUMNS + 1] = double(k);
            row[COLUMNS + 2] = double(indptr[units[k] + 1] - indptr[units[k]]);
        });
    __syncthreads();
    for (int64 t = threadIdx.x; t < n_rows * rank; t += PICKERS) {
        double* const row = rows + t / rank * (COLUMNS + 3 + rank);
        row[COLUMNS + 3 + t % rank] = double(a[int64(row[COLUMNS + 1]) * rank + t % rank]);
    }
    if (threadIdx.x == 0) {
        counts[0] = n_lone;
        counts[1] = n_rows;
    }
}

__device__ __forceinline__ bool determined(const double* unit) {
    return unit[STATUS] == OK || unit[STATUS] == -1 - OK;
}

// Numbers of all units that are not determined, and how many they are. One block.
extern "C" __global__ void __launch_bounds__(PICKERS, 1)
    undetermined(int64 n, const double* __restrict__ known, int64* __restrict__ numbers, int64* __restrict__ count) {
    const int64 found = compact(
        n, [&](int64 k) { return !determined(known + k * COLUMNS); }, [&](int64 k, int64 place) { numbers[place] = k; });
    if (threadIdx.x == 0) {
        *count = found;
    }
}

// The outliers of each unit, none of one that is not determined; and of units with more than `far_more` times the share of outliers
// that all have, and more than two: number, observations and outliers, rows (.., 3). out: how many these are, and the observations and
// outliers of all. One block.
extern "C" __global__ void __launch_bounds__(PICKERS, 1)
    crowded(int64 n, const double* __restrict__ known, double far_more, double* outliers, double* __restrict__ rows,
            double* __restrict__ out) {
    __shared__ double slots[PICKERS / 32], sums[2];
    const auto n_obs = [&](int64 k) { return determined(known + k * COLUMNS) ? known[k * COLUMNS + N_OBS] : 0.0; };
    double all = 0, bad = 0;
    for (int64 k = threadIdx.x; k < n; k += PICKERS) {
        outliers[k] = larger(n_obs(k) - known[k * COLUMNS + N_INLIERS], 0.0);
        all += n_obs(k);
        bad += outliers[k];
    }
    all = block_sum(all, slots);
    bad = block_sum(bad, slots);
    if (threadIdx.x == 0) {
        sums[0] = all;
        sums[1] = bad;
    }
    __syncthreads();
    const double share = sums[1] / larger(sums[0], 1.0);
    const int64 found = compact(
        n, [&](int64 k) { return outliers[k] > larger(far_more * share * n_obs(k), 2.0); },
        [&](int64 k, int64 place) {
            rows[3 * place] = double(k);
            rows[3 * place + 1] = n_obs(k);
            rows[3 * place + 2] = outliers[k];
        });
    if (threadIdx.x == 0) {
        out[0] = double(found);
        out[1] = sums[0];
        out[2] = sums[1];
    }
}

// Which of some units have the most outliers, whole numbers: `most` places in their list, those with more than the last of them first.
// One block.
extern "C" __global__ void __launch_bounds__(PICKERS, 1)
    most_outliers(int64 n, const int64* __restrict__ units, const double* __restrict__ outliers, int64 most, int64* __restrict__ places) {
    __shared__ double slots[PICKERS / 32], shared;
    // how many of `most` have at least so many outliers is halved in on: low is had by as many as that, high is not
    double largest = 0;
    for (int64 k = threadIdx.x; k < n; k += PICKERS) {
        largest = larger(largest, outliers[units[k]]);
    }
    __syncwarp();
    largest = block_max(largest, slots);
    if (threadIdx.x == 0) {
        shared = largest;
    }
    __syncthreads();
    double low = 0, high = shared + 1;
    __syncthreads();
    while (high - low > 1) {
        const double middle = floor(0.5 * (low + high));
        double count = 0;
        for (int64 k = threadIdx.x; k < n; k += PICKERS) {
            count += outliers[units[k]] >= middle;
        }
        count = block_sum(count, slots);
        if (threadIdx.x == 0) {
            shared = count;
        }
        __syncthreads();
        (shared >= double(most) ? low : high) = middle;
        __syncthreads();
    }
    const int64 above = compact(
        n, [&](int64 k) { return outliers[units[k]] > low; }, [&](int64 k, int64 place) { places[place] = k; });
    compact(
        n, [&](int64 k) { return outliers[units[k]] == low; },
        [&](int64 k, int64 place) {
            if (above + place < most) {
                places[above + place] = k;
            }
        });
}

// Of all units that are not of the core: how many have each status, sums of observations and inliers, of the squared errors of those
// that are determined, and of held-out entries and those of them that agree. What is known of some units, ascending, is exchanged for
// `rows` before.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    summarise(int64 n, double* known, int64 n_rows, const int64* __restrict__ units, const double* __restrict__ rows, double* partial, unsigned* arrived, double* __restrict__ out) {
    double sums[10] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int64 k = int64(blockIdx.x) * THREADS + threadIdx.x; k < n; k += int64(gridDim.x) * THREADS) {
        double* unit = known + k * COLUMNS;
        const int64 place = lower_bound(units, int64(0), n_rows, k);
        if (place < n_rows && units[place] == k) {
            for (int c = 0; c < COLUMNS; c++) {
                unit[c] = rows[place * COLUMNS + c];
            }
        }
        if (unit[STATUS] < 0) {
            continue;
        }
#pragma unroll
        for (int s = 0; s < 5; s++) {
            sums[s] += unit[STATUS] == s;
        }
        sums[5] += unit[N_OBS];
        sums[6] += unit[N_INLIERS];
        sums[7] += unit[STATUS] == OK ? unit[ERROR] * unit[ERROR] : 0.0;
        sums[8] += unit[N_HELD];
        sums[9] += unit[N_CONSENSUS];
    }
    if (grid_sum(sums, partial, arrived)) {
        for (int s = 0; s < 10; s++) {
            out[s] = sums[s];
        }
    }
}
