// Mean and covariance of units of the noise model, given their observations and a prior (plain.posterior.posterior).
//
// A warp takes a unit; a unit with more than LONG entries is taken by the whole block, whose warps then add their sums. What is
// known of a position are some hundred numbers that stand together, so lanes share them: SPAN lanes read a piece of the record
// of one observation, and 32 / SPAN observations are read at a time. For the doubt about an observation these lanes have to add
// up what each of them found: SPAN observations are added up together, so that each lane ends with the sum of the one that it
// weighs. For the normal equations each lane has its part of the matrix in registers.
//
// The system is solved in registers too, its lower triangle and the right-hand side spread over the lanes of a warp. Only the
// column of the pivot goes through shared memory.
//
// REAL and RANK, the number of unknowns, are given with -D.
#include "entry.cuh"
#include "reduce.cuh"
#include "team.cuh"

// Warps of a block, as in cuda/calls.py: more would not leave the shared memory of a multiprocessor to several blocks.
constexpr int WARPS = RANK > 16 ? 2 : 4;
constexpr int PACKED = RANK * (RANK + 1) / 2;  // lower triangle of a symmetric matrix, row by row
constexpr int SYSTEM = PACKED + RANK;          // and the right-hand side as one more row
// Lanes that share an observation: with 8 a lane keeps an eighth of the sums, which takes too many registers at large ranks.
constexpr int SPAN = RANK > 17 ? 16 : 8;
constexpr int AT_A_TIME = 32 / SPAN;
constexpr int PIECES = (PACKED + SPAN - 1) / SPAN;  // of a packed matrix, one for each lane of SPAN
constexpr int SHORT_PIECES = (RANK + SPAN - 1) / SPAN;
constexpr int OWN = (SYSTEM + 31) / 32;  // elements of the system that a lane solves
constexpr REAL FEWEST = REAL(sizeof(REAL) == 8 ? 1e-300 : 1e-37);  // a pivot; the prior keeps pivots far above it

// Columns of the table, in the order of posterior.Fit.
enum Fit { N_FIT, INLIERS, SQUARES, N_INLIERS, RESIDUALS, OBJECTIVE, N_INFORMATIVE, N_COLUMNS };

// Of a warp, in shared memory: where the unit is now, as factors of what is known of a position, and the system.
struct Now {
    REAL of_second[PACKED];      // twice the covariance off the diagonal, once on it
    REAL of_covariance[PACKED];  // the same of products of the mean, with 1 for the offset
    REAL mean[RANK];
    REAL system[SYSTEM];
    REAL column[2][RANK + 1];  // of the pivot, in turns
};

// Row and column of an element of a packed triangle.
struct Place {
    int row, column;

    __device__ __forceinline__ Place(int element) {
        row = int((sqrtf(8.0f * float(element) + 1.0f) - 1.0f) * 0.5f);
        row += (row + 1) * (row + 2) / 2 <= element;
        row -= row * (row + 1) / 2 > element;
        column = element - row * (row + 1) / 2;
    }
};

// Mean and packed covariance, which are in `now.mean` and `now.system`, as factors.
__device__ __forceinline__ void spread_out(Now& now, bool offsets, int lane) {
    __syncwarp();
#pragma unroll 1
    for (int e = lane; e < PACKED; e += 32) {
        const Place at(e);
        const REAL twice = at.row == at.column ? REAL(1) : REAL(2);
        const REAL left = offsets && at.row == RANK - 1 ? REAL(1) : now.mean[at.row];
        const REAL right = offsets && at.column == RANK - 1 ? REAL(1) : now.mean[at.column];
        now.of_second[e] = twice * now.system[e];
        now.of_covariance[e] = twice * left * right;
    }
    __syncwarp();
}

// SPAN numbers of each lane, of SPAN observations: lane j of SPAN gets the sum over these lanes for observation j.
__device__ __forceinline__ REAL add_up(REAL (&part)[SPAN], int lane) {
#pragma unroll
    for (int half = SPAN / 2; half > 0; half >>= 1) {
        const bool upper = (lane & half) != 0;
#pragma unroll
        for (int k = 0; k < SPAN / 2; k++) {
            if (k < half) {
                const REAL kept = upper ? part[k + half] : part[k];
                const REAL given = upper ? part[k] : part[k + half];
                part[k] = kept + __shfl_xor_sync(EVERY_LANE, given, half);
            }
        }
    }
    return part[0];
}

// Products of a record of N numbers with N factors, for the observation of each lane; `second` has another record of each.
template <int N, bool TWO>
__device__ __forceinline__ REAL products(const REAL* __restrict__ first, const REAL* factors, const REAL* __restrict__ second,
                                         const REAL* other_factors, const int (&rows)[SPAN], int lane) {
    REAL part[SPAN];
#pragma unroll
    for (int k = 0; k < SPAN; k++) {
        part[k] = 0;
    }
#pragma unroll 1
    for (int c = lane % SPAN; c < (N + SPAN - 1) / SPAN * SPAN; c += SPAN) {
        const int at = c < N ? c : N - 1;
        const REAL factor = c < N ? factors[at] : REAL(0);
        const REAL other = TWO && c < N ? other_factors[at] : REAL(0);
#pragma unroll
        for (int k = 0; k < SPAN; k++) {
            const int64 place = int64(rows[k]) * N + at;
            part[k] += factor * first[place];
            if (TWO) {
                part[k] += other * second[place];
            }
        }
    }
    return add_up(part, lane);
}

// The inverse of the matrix in now.system, with `precision` added to its diagonal, in its place, and times the right-hand side
// in now.mean: the symmetric form of Gauss-Jordan elimination, which for such matrices is as exact as Cholesky factors.
__device__ __forceinline__ void solve(Now& now, const REAL* __restrict__ precision, int lane) {
    REAL mine[OWN];
    int rows[OWN], columns[OWN];
#pragma unroll
    for (int m = 0; m < OWN; m++) {
        const int e = m * 32 + lane;
        const Place at(e < SYSTEM ? e : 0);
        rows[m] = e < SYSTEM ? at.row : RANK + 1;  // beyond all pivots
        columns[m] = e < SYSTEM ? at.column : RANK + 1;
        mine[m] = e < SYSTEM ? now.system[e] : REAL(0);
        if (e < PACKED && at.row == at.column) {
            mine[m] += precision[at.row];
        }
    }
#pragma unroll 1
    for (int k = 0; k < RANK; k++) {
        REAL* const column = now.column[k & 1];  // lanes may still read the other one
#pragma unroll
        for (int m = 0; m < OWN; m++) {
            if (rows[m] == k || columns[m] == k) {
                column[rows[m] == k ? columns[m] : rows[m]] = mine[m];
            }
        }
        __syncwarp();
        const REAL scale = REAL(1) / max(column[k], FEWEST);
#pragma unroll
        for (int m = 0; m < OWN; m++) {
            if (rows[m] <= RANK) {
                if (rows[m] == k || columns[m] == k) {
                    mine[m] = rows[m] == columns[m] ? -scale : mine[m] * scale;
                } else {
                    mine[m] -= column[rows[m]] * scale * column[columns[m]];
                }
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < OWN; m++) {
        if (rows[m] < RANK) {
            now.system[m * 32 + lane] = -mine[m];
        } else if (rows[m] == RANK) {
            now.mean[columns[m]] = mine[m];
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 1)
    posterior(const int64* __restrict__ units, int64 n_units, int per_block, const int64* __restrict__ indptr,
              const int* __restrict__ index, const void* __restrict__ value, int single, const REAL* __restrict__ weight,
              const REAL* __restrict__ x, const REAL* __restrict__ shift, const REAL* __restrict__ second,
              const REAL* __restrict__ cross, const REAL* __restrict__ covariance, const REAL* __restrict__ scale, int offsets,
              REAL variance, REAL constant, REAL growth, REAL tail, REAL top, REAL odds, REAL log_in, REAL log_out, const REAL* __restrict__ precision,
              const REAL* __restrict__ mean0, const REAL* __restrict__ covariance0, const REAL* __restrict__ scale0,
              const REAL* __restrict__ temperatures, int steps, int measure, REAL* __restrict__ means,
              REAL* __restrict__ covariances, REAL* __restrict__ table) {
    __shared__ Now nows[WARPS];
    __shared__ double slots[WARPS];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int group = lane / SPAN, member = lane % SPAN;
    const int half_tail = int(tail) / 2;
    for (int64 first_unit = int64(blockIdx.x) * per_block; first_unit < n_units; first_unit += int64(gridDim.x) * per_block) {
        // First each warp by itself, if its unit is short; then all together, unit by unit, those that are long.
        const int rounds = long_rounds(units, n_units, 1, indptr, first_unit + warp, warp < per_block, per_block);
#pragma unroll 1
        for (int round = 0; round <= rounds; round++) {
            const bool together = round > 0;
            if (together) {
                __syncthreads();
            }
            const int64 k = first_unit + (together ? round - 1 : warp);
            if (k >= n_units || (!together && warp >= per_block)) {
                continue;
            }
            const int64 unit = units[k], first = indptr[unit];
            const int count = int(indptr[unit + 1] - first);  // of one unit: 32 bits are enough
            if (together != (count > LONG)) {
                continue;
            }
            const Team team = {together ? warp : 0, together ? warps : 1, lane, slots};
            Now& now = nows[together ? 0 : warp];
            const REAL own = variance * scale0[k];
            if (team.warp == 0) {
                for (int e = lane; e < PACKED; e += 32) {
                    now.system[e] = covariance0[k * PACKED + e];
                }
                for (int q = lane; q < RANK; q += 32) {
                    now.mean[q] = mean0[k * RANK + q];
                }
                spread_out(now, offsets != 0, lane);
            }
            team.sync();

#pragma unroll 1
            for (int step = 0; step < steps + (measure ? 1 : 0); step++) {
                const bool last = step == steps, tabled = step == (measure ? steps : steps - 1);
                const REAL temperature = last ? REAL(1) : temperatures[step], heat = temperature * temperature;
                REAL sums[PIECES], right[SHORT_PIECES];
#pragma unroll
                for (int m = 0; m < PIECES; m++) {
                    sums[m] = 0;
                }
#pragma unroll
                for (int m = 0; m < SHORT_PIECES; m++) {
                    right[m] = 0;
                }
                int n_fit = 0, n_inliers = 0, n_informative = 0;
                REAL inliers = 0, squares = 0, residuals = 0, objective = 0;
#pragma unroll 1
                for (int tile = team.warp * 32; tile < count; tile += team.warps * 32) {
                    // A lane's observation is number `member` of those that its SPAN lanes read one after the other.
                    const int t = tile + member * AT_A_TIME + group;
                    const REAL given = t >= count ? REAL(0) : weight ? weight[first + t] : REAL(1);
                    const bool taken = given > 0;
                    if (__ballot_sync(EVERY_LANE, taken) == 0) {
                        continue;
                    }
                    const int at = t < count ? index[first + t] : index[first];
                    REAL y = 0;
                    if (taken) {
                        y = (single ? REAL(static_cast<const float*>(value)[first + t])
                                    : REAL(static_cast<const double*>(value)[first + t])) -
                            shift[at];
                    }
                    int rows[SPAN];
#pragma unroll
                    for (int j = 0; j < SPAN; j++) {
                        rows[j] = __shfl_sync(EVERY_LANE, at, j, SPAN);
                    }
                    const REAL doubt =
                        max(products<PACKED, true>(second, now.of_second, covariance, now.of_covariance, rows, lane), REAL(0));
                    const REAL fitted = products<RANK, false>(x, now.mean, nullptr, nullptr, rows, lane);
                    const REAL r = y - fitted, size = fitted + shift[at];
                    const REAL local = taken ? own * scale[at] / given * (constant + growth * size * size) : REAL(1);
                    const REAL square = (r * r + doubt) / local;
                    const REAL bent = 1 + square / (tail * heat);
                    REAL rare = odds * sqrt(heat * local * bent);  // times an odd power of a root
                    REAL factor = bent;
#pragma unroll 1
                    for (int power = half_tail; power > 0; power >>= 1) {
                        rare *= power & 1 ? factor : REAL(1);
                        factor *= factor;
                    }
                    if (tabled && taken) {
                        const REAL inlier = 1 / (1 + rare);
                        n_fit++;
                        inliers += inlier;
                        squares += inlier * square * ((tail + 1) / (tail + square));
                        residuals += inlier * r * r;
                        n_inliers += inlier > REAL(0.5);
                        n_informative += inlier > REAL(0.5) && y * y > 4 * local;
                        if (last) {
                            const REAL likely = log_in + top - REAL(0.5) * log(local) - REAL(0.5) * (tail + 1) * log1p(square / tail);
                            objective += max(likely, log_out) + log1p(exp(-fabs(likely - log_out)));
                        }
                    }
                    if (last) {
                        continue;
                    }
                    const REAL w = taken ? (tail + 1) / (tail * (1 + rare) * bent * local) : REAL(0);
                    const REAL wy = w * y;
                    const int turns = (min(count - tile, 32) + AT_A_TIME - 1) / AT_A_TIME;
#pragma unroll 1
                    for (int j = 0; j < turns; j++) {
                        const REAL its = __shfl_sync(EVERY_LANE, w, j, SPAN), its_y = __shfl_sync(EVERY_LANE, wy, j, SPAN);
                        const int64 row = __shfl_sync(EVERY_LANE, at, j, SPAN);
#pragma unroll
                        for (int m = 0; m < PIECES; m++) {
                            const int c = m * SPAN + member;
                            sums[m] += its * second[row * PACKED + (c < PACKED ? c : PACKED - 1)];
                        }
#pragma unroll
                        for (int m = 0; m < SHORT_PIECES; m++) {
                            const int c = m * SPAN + member;
                            const int64 place = row * RANK + (c < RANK ? c : RANK - 1);
                            right[m] += its_y * x[place];
                            if (offsets) {
                                right[m] -= its * cross[place];
                            }
                        }
                    }
                }

                if (tabled) {
                    n_fit = team.sum(n_fit);
                    n_inliers = team.sum(n_inliers);
                    n_informative = team.sum(n_informative);
                    inliers = team.sum(inliers);
                    squares = team.sum(squares);
                    residuals = team.sum(residuals);
                    objective = last ? team.sum(objective) : REAL(0);
                    if (team.warp == 0 && lane == 0) {
                        if (last) {
                            for (int q = 0; q < RANK; q++) {
                                objective -= REAL(0.5) * now.mean[q] * now.mean[q] * precision[q];
                            }
                        }
                        REAL* const out = table + k * N_COLUMNS;
                        out[N_FIT] = REAL(n_fit);
                        out[INLIERS] = inliers;
                        out[SQUARES] = squares;
                        out[N_INLIERS] = REAL(n_inliers);
                        out[RESIDUALS] = residuals;
                        out[OBJECTIVE] = objective;
                        out[N_INFORMATIVE] = REAL(n_informative);
                    }
                }
                if (last) {
                    continue;
                }
                // Groups of lanes add their sums; then warps do.
                REAL* const system = nows[warp].system;
                __syncwarp();
#pragma unroll
                for (int m = 0; m < PIECES; m++) {
                    const REAL total = group_sum<AT_A_TIME, SPAN>(sums[m], group);
                    if (group == 0 && m * SPAN + member < PACKED) {
                        system[m * SPAN + member] = total;
                    }
                }
#pragma unroll
                for (int m = 0; m < SHORT_PIECES; m++) {
                    const REAL total = group_sum<AT_A_TIME, SPAN>(right[m], group);
                    if (group == 0 && m * SPAN + member < RANK) {
                        system[PACKED + m * SPAN + member] = total;
                    }
                }
                team.sync();
                if (team.warp == 0) {
                    for (int e = lane; e < (team.warps > 1 ? SYSTEM : 0); e += 32) {
                        for (int w = 1; w < team.warps; w++) {
                            now.system[e] += nows[w].system[e];
                        }
                    }
                    __syncwarp();
                    solve(now, precision, lane);
                    spread_out(now, offsets != 0, lane);
                }
                team.sync();
            }

            if (team.warp == 0) {
                for (int e = lane; e < PACKED; e += 32) {
                    covariances[k * PACKED + e] = now.system[e];
                }
                for (int q = lane; q < RANK; q += 32) {
                    means[k * RANK + q] = now.mean[q];
                }
                __syncwarp();
            }
        }
    }
}
