// What follows for each unit from the table of its fit pass (backends/plain/verdicts.py), and sums over all of them.
//
// A thread has a unit. What is known of all units of a side is one table of doubles: see `UnitTable` in cuda/verdicts.py. Units of the
// core are in it as well, with a status of -1 - theirs, and are left out here. REAL is the dtype of the fit pass.
#include "entry.cuh"
#include "reduce.cuh"
#include "rules.cuh"

constexpr int THREADS = 128;  // as in cuda/verdicts.py

enum Known { STATUS, N_OBS, N_INLIERS, SPREAD, ERROR, N_INFORMATIVE, N_HELD, N_CONSENSUS, COLUMNS };
enum Fit { FIT_OBS, FIT_INLIERS, FIT_SPREAD, FIT_ILL, FIT_ERROR, FIT_INFORMATIVE, FIT_HELD, FIT_CONSENSUS };  // passes.Column

// A bin that exists, whatever came out of a fit.
__device__ inline int within(double bin) {
    return bin > 0 ? (bin < BINS ? int(bin) : BINS) : 0;
}

// Read the table of a pass over some units, and count them by share of inliers and by spread: counts (2, BINS + 1).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    diagnose(int64 n, const int64* __restrict__ units, const REAL* __restrict__ fits, double rank, double floor_,
             unsigned* __restrict__ counts, double* __restrict__ known) {
    for (int64 k = int64(blockIdx.x) * THREADS + threadIdx.x; k < n; k += int64(gridDim.x) * THREADS) {
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
}

// Of each of two counts, the bin of the median and the total: out (2, 2). One block; a thread has a range of bins.
extern "C" __global__ void __launch_bounds__(THREADS, 1) medians(const unsigned* __restrict__ counts, double* __restrict__ out) {
    __shared__ double totals[THREADS];
    constexpr int EACH = (BINS + THREADS) / THREADS;
    for (int h = 0; h < 2; h++) {
        const unsigned* mine = counts + h * (BINS + 1);
        const int first = threadIdx.x * EACH, last = first + EACH < BINS + 1 ? first + EACH : BINS + 1;
        double sum = 0;
        for (int b = first; b < last; b++) {
            sum += mine[b];
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
            const double up_to = before + mine[b];
            if (before < 0.5 * total && up_to >= 0.5 * total) {
                out[2 * h] = b;
            }
            before = up_to;
        }
    }
}

// The status of units beside the others, and what may have to be done with them: bits, with the former status above them. sums: how
// many are doubtful, have too few inliers, and have no spread.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    judge(int64 n, const int64* __restrict__ units, const Limits* __restrict__ limits, double* known, unsigned char* __restrict__ bits,
          double* partial, unsigned* arrived, double* __restrict__ sums) {
    const Limits at = *limits;
    double counted[3] = {0, 0, 0};
    for (int64 k = int64(blockIdx.x) * THREADS + threadIdx.x; k < n; k += int64(gridDim.x) * THREADS) {
        double* unit = known + units[k] * COLUMNS;
        const double n_obs = unit[N_OBS], n_inliers = unit[N_INLIERS];
        double after, found;
        verdict(unit[STATUS], n_obs, n_inliers, unit[SPREAD], unit[ERROR], unit[N_INFORMATIVE], at, after, found);
        int mine = int(found);
        if (at.contests && after == OK && contestable(n_obs, n_inliers, at.share, at.holdout, at.consensus)) {
            mine |= CONTESTABLE;
        }
        counted[0] += (mine & DOUBTFUL) != 0;
        counted[1] += (mine & FAILED) != 0;
        counted[2] += (mine & UNKNOWN) != 0;
        bits[k] = mine | int(unit[STATUS]) << FORMER;
        unit[STATUS] = after;
    }
    if (grid_sum(counted, partial, arrived)) {
        for (int s = 0; s < 3; s++) {
            sums[s] = counted[s];
        }
    }
}

// What pick_units looks for.
struct Picked {
    const unsigned char* bits;
    int wanted, unwanted;
    const double* known;
    double far_more;
    double totals[2];

    // Observations of a unit, none of one that is not determined.
    __device__ __forceinline__ double n_obs(int64 k) const {
        const double status = known[k * COLUMNS + STATUS];
        return status == OK || status == -1 - OK ? known[k * COLUMNS + N_OBS] : 0.0;
    }
    __device__ __forceinline__ double n_outliers(int64 k) const {
        return larger(n_obs(k) - known[k * COLUMNS + N_INLIERS], 0.0);
    }
    __device__ __forceinline__ bool at(int64 k) const {
        if (bits) {
            return (bits[k] & wanted) && !(bits[k] & unwanted);
        }
        if (far_more > 0) {
            return n_outliers(k) > larger(far_more * (totals[1] / larger(totals[0], 1.0)) * n_obs(k), 2.0);
        }
        const double status = known[k * COLUMNS + STATUS];
        return status != OK && status != -1 - OK;
    }
};

// Some numbers, ascending, and how many they are: of units with one of the `wanted` bits and none of the unwanted ones; without bits,
// of those that are not determined or, if far_more is above 0, of those with so many times the outliers that all have. For the latter
// totals has the observations and outliers of all, and outliers those of each. One block.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    pick_units(int64 n, const unsigned char* __restrict__ bits, int wanted, int unwanted, const double* __restrict__ known,
               double far_more, int64* __restrict__ numbers, int64* __restrict__ count, double* __restrict__ outliers,
               double* __restrict__ totals) {
    __shared__ int of_warp[THREADS / 32];
    __shared__ double slots[THREADS / 32], sums[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Picked picked = {bits, wanted, unwanted, known, far_more, {0, 0}};
    if (!bits && far_more > 0) {
        double all = 0, out = 0;
        for (int64 k = threadIdx.x; k < n; k += THREADS) {
            outliers[k] = picked.n_outliers(k);
            all += picked.n_obs(k);
            out += outliers[k];
        }
        all = block_sum(all, slots);
        out = block_sum(out, slots);
        if (threadIdx.x == 0) {
            totals[0] = sums[0] = all;
            totals[1] = sums[1] = out;
        }
        __syncthreads();
        picked.totals[0] = sums[0];
        picked.totals[1] = sums[1];
    }
    int64 before = 0;
    for (int64 first = 0; first < n; first += THREADS) {
        const int64 k = first + threadIdx.x;
        const bool taken = k < n && picked.at(k);
        __syncwarp();
        const unsigned mask = __ballot_sync(EVERY_LANE, taken);
        __syncthreads();
        if (lane == 0) {
            of_warp[warp] = __popc(mask);
        }
        __syncthreads();
        int64 place = before + __popc(mask & ((1u << lane) - 1));
        for (int w = 0; w < THREADS / 32; w++) {
            place += w < warp ? of_warp[w] : 0;
            before += of_warp[w];
        }
        if (taken) {
            numbers[place] = k;
        }
    }
    if (threadIdx.x == 0) {
        *count = before;
    }
}

// What is known of some units, by their numbers, with their bits and numbers: out (n, COLUMNS + 2).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gather_units(int64 n, const int64* __restrict__ places, const int64* __restrict__ units, const double* __restrict__ known,
                 const unsigned char* __restrict__ bits, double* __restrict__ out) {
    for (int64 k = int64(blockIdx.x) * THREADS + threadIdx.x; k < n; k += int64(gridDim.x) * THREADS) {
        for (int c = 0; c < COLUMNS; c++) {
            out[k * (COLUMNS + 2) + c] = known[units[places[k]] * COLUMNS + c];
        }
        out[k * (COLUMNS + 2) + COLUMNS] = bits[places[k]];
        out[k * (COLUMNS + 2) + COLUMNS + 1] = double(places[k]);
    }
}

// Of all units that are not of the core: how many have each status, sums of observations and inliers, of the squared errors of those
// that are determined, and of held-out entries and those of them that agree.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    summarise(int64 n, const double* __restrict__ known, double* partial, unsigned* arrived, double* __restrict__ out) {
    double sums[10] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int64 k = int64(blockIdx.x) * THREADS + threadIdx.x; k < n; k += int64(gridDim.x) * THREADS) {
        const double* unit = known + k * COLUMNS;
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
