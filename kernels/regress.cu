// A fit pass over some units: a robust regression of each unit's observations on the rows of a basis (passes.regress).
//
// A warp takes a unit; a unit with more than LONG entries is taken by the whole block. Then the block's warps sum their Gram
// matrices, and the first of them solves. The phases of a fit pass share one loop, so that there is one place that builds a Gram
// matrix, one that solves and one that computes residuals: less code, fewer registers.
//
// REAL and RANK are given with -D.
#include "entry.cuh"
#include "reduce.cuh"
#include "normal.cuh"
#include "entries.cuh"
#include "team.cuh"

// Warps of a block, as in cuda/calls.py: at larger ranks four of their matrices and the observations do not fit in 48 KiB.
constexpr int WARPS = RANK > 16 ? 2 : 4;
// Blocks that a multiprocessor is to hold, by their registers: one more would make some architecture spill (bench.registers).
constexpr int RESIDENT = RANK > 16 ? 1 : sizeof(REAL) == 8 ? (RANK <= 8 ? 4 : 3) : RANK > 7 || RANK == 2 || RANK == 4 || APART ? 4 : 5;
constexpr REAL ILL = sizeof(REAL) == 8 ? REAL(67108864.0) : REAL(2896.3093757400986);  // 1 / sqrt(epsilon)

enum Begin { ZERO, GIVEN, PARTIAL, SUBSETS };
// What differs between passes over the same units that are made in one launch, as in cuda/calls.py.
struct Pass {
    uint64 draw_key;
    double gamma;
    int begin, number;
};
enum Phase { PLACE, FIT_PART, FIT_SUBSET, STEP, MEASURE };
// Columns of the table, in the order of passes.Column.
enum Column { N_FIT, N_INLIERS, SPREAD, ILL_CONDITIONED, STANDARD_ERROR, N_INFORMATIVE, N_HELD, N_CONSENSUS, N_COLUMNS };

// About the smallest number that a share of the residuals do not exceed; see regression.middle_residual.
__device__ __forceinline__ REAL middle_residual(const Entries& entries, const Team& team, const REAL* a, REAL largest, int n_fit) {
    REAL low = 0, high = largest;
#pragma unroll 1
    for (int k = 0; k < HALVINGS; k++) {
        const REAL middle = REAL(0.5) * (low + high);
        int n = 0;
#pragma unroll 1
        for (int i = 0; i < entries.staged; i++) {
            n += fabs(entries.kept(i)) <= middle;
        }
#pragma unroll 1
        for (int i = entries.staged; i < entries.tiles; i++) {
            const int code = entries.code(i);
            n += code >= 0 && fabs(entries.residual_of(i, code, a)) <= middle;
        }
        if (REAL(team.sum(n)) >= PART * REAL(n_fit)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

// y - row . a, as `residual` has it.
__device__ __forceinline__ REAL residual_at(REAL y, const REAL* row, const REAL (&a)[RANK]) {
    REAL its[RANK];
    fetch_row<RANK, ROWS_ALIGNED>(its, row);
    return residual<RANK>(y, its, a);
}

// `n_fits` is the number of units times that of passes: each unit has all its passes, one after the other.
extern "C" __global__ void __launch_bounds__(128, RESIDENT)
    regress(const int64* __restrict__ units, int64 n_fits, int per_block, const int64* __restrict__ indptr,
            const int* __restrict__ index, const REAL* __restrict__ value, const REAL* __restrict__ basis,
            const REAL* __restrict__ usable, const REAL* __restrict__ white, const int64* __restrict__ unit_names,
            const int64* __restrict__ index_names, int transposed, uint64 held_key, uint64 held_below, const Pass* __restrict__ passes,
            int n_passes, REAL zeta0, REAL floor_, REAL informative_size, int max_steps, const REAL* __restrict__ start,
            uint64 part_below, int staged_tiles, REAL* __restrict__ coefficients, REAL* __restrict__ table) {
    __shared__ alignas(16) REAL matrices[WARPS * TILE];
    __shared__ alignas(16) REAL vectors[WARPS * 3 * VECTOR];
    __shared__ double slots[WARPS];
    __shared__ Pass pass_of_warp[WARPS];
    extern __shared__ double stage[];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int staged_entries = staged_tiles * 32;
    REAL* const stage_values = reinterpret_cast<REAL*>(stage) + warp * 2 * staged_entries;
    int* const stage_codes =
        reinterpret_cast<int*>(reinterpret_cast<REAL*>(stage) + WARPS * 2 * staged_entries) + warp * staged_entries;

    for (int64 group = blockIdx.x; group * per_block < n_fits; group += gridDim.x) {
        // First each warp by itself, if its unit is short; then all together, unit by unit, those that are long.
        const int64 own = group * per_block + warp;
        const int rounds = long_rounds(units, n_fits, n_passes, indptr, own, warp < per_block, per_block);
#pragma unroll 1
        for (int round = 0; round <= rounds; round++) {
            const bool together = round > 0;
            if (together) {
                __syncthreads();
            }
            const int64 k = together ? group * per_block + round - 1 : own;
            if (k >= n_fits || (!together && warp >= per_block)) {
                continue;
            }
            const int64 place = k / n_passes, unit = units[place];
            Pass& pass = pass_of_warp[warp];  // in shared memory: registers are short
            __syncwarp();
            if (lane == 0) {
                pass = passes[k - place * n_passes];
            }
            __syncwarp();
            const int begin = pass.begin;
            const int64 first = indptr[unit];
            const int count = int(indptr[unit + 1] - first);
            if (together != (count > LONG)) {
                continue;
            }
            const Team team = {together ? warp : 0, together ? WARPS : 1, lane, slots};
            REAL* const matrix = matrices + warp * TILE;
            REAL* const a = vectors + (together ? 0 : warp) * 3 * VECTOR;
            REAL* const old = a + VECTOR;
            REAL* const best = old + VECTOR;
            const int all_tiles = (count - 1) / 32 + (count > 0);
            const int tiles = (all_tiles - team.warp + team.warps - 1) / team.warps;
            const bool holds = held_below > 0 && count >= LEAST_HELD * RANK;
            const Entries entries = {index + first, value + first, basis, usable, {held_key, held_below, index_names, transposed != 0},
                                     holds, unit_names[unit], count, team.warp, team.warps, lane, tiles, min(tiles, staged_tiles),
                                     stage_codes, stage_values, stage_values + staged_entries};

            const bool again = all_tiles > staged_tiles * team.warps;  // some residuals are computed again
            unsigned held_bits;
            const int n_fit = team.sum(entries.load(held_bits));
            if (team.warp == 0 && lane < RANK) {
                a[lane] = begin == GIVEN ? start[place * RANK + lane] : REAL(0);
                best[lane] = 0;
            }
            team.sync();

            const Phase ready = max_steps > 0 ? STEP : MEASURE;
            Phase phase = begin == PARTIAL ? FIT_PART : begin == SUBSETS && pass.number > 0 ? FIT_SUBSET : begin == ZERO ? ready : PLACE;
            REAL zeta = begin == SUBSETS ? 10 * floor_ : zeta0, old_zeta = 0, spread = 0, square = 0;
            unsigned last = 0;  // of the staged tiles, 32 at the most, whether this lane's entry was an inlier
            int step = 0, subset = 0, most = 0, n_in = 0, informative = 0;

#pragma unroll 1
            for (;;) {
                const REAL limit = phase == MEASURE ? floor_ : zeta;
                bool solves = phase != PLACE, changed = false;
                unsigned chosen = 0;  // of the staged tiles: what the normal equations are made of
                if (phase == FIT_PART) {
#pragma unroll 1
                    for (int i = 0; i < entries.staged; i++) {
                        chosen |= unsigned(bits_at(entries.name, entries.place(i), pass.draw_key) < part_below && entries.code(i) >= 0) << i;
                    }
                } else if (phase == STEP || phase == MEASURE) {
#pragma unroll 2
                    for (int i = 0; i < entries.staged; i++) {
                        chosen |= unsigned(inlies(entries.kept(i), limit)) << i;
                    }
                    changed = chosen != last;
#pragma unroll 1
                    for (int i = entries.staged; i < tiles; i++) {
                        const int code = entries.code(i);
                        const bool keep = code >= 0 && inlies(entries.residual_of(i, code, a), limit);
                        const bool was = code >= 0 && step > 0 && inlies(entries.residual_of(i, code, old), old_zeta);
                        changed |= keep != was;
                    }
                    last = chosen;
                    changed = team.any(changed);
                    solves = phase == MEASURE || changed || step == 0;  // the same inliers have the same solution
                }

                if (solves) {
                    Gram gram(lane);
                    int n = 0;
                    if (phase == FIT_SUBSET) {
                        if (team.warp == 0) {
                            const uint64 bits = bits_at(entries.name, int64(subset) * RANK + lane, pass.draw_key);
                            // without replacement, as in `plain.passes._subset`: a place that is taken becomes the last one
                            const int last_one = count > RANK - lane ? count - RANK + lane : 0;
                            int t = int(floor(uniform(bits) * (double(last_one) + 1)));
#pragma unroll 1
                            for (int q = 1; q < RANK; q++) {
                                const int drawn = __shfl_sync(EVERY_LANE, t, q);
                                const unsigned same = __ballot_sync(EVERY_LANE, lane < q && t == drawn);
                                t = lane == q && same != 0 ? last_one : t;
                            }
                            const int code = lane < RANK ? entries.fetch(t) : -1;
                            gram.add(matrix, lane, code >= 0, entries.row(code), code >= 0 ? entries.value[t] : REAL(0));
                        }
                    } else {
#pragma unroll 1
                        for (int i = 0; i < tiles; i++) {
                            const int code = entries.code(i);
                            bool taken = chosen >> (i & 31) & 1;
                            if (i >= entries.staged) {
                                taken = code >= 0 && (phase == FIT_PART
                                                          ? bits_at(entries.name, entries.place(i), pass.draw_key) < part_below
                                                          : inlies(entries.residual_of(i, code, a), limit));
                            }
                            n += gram.add(matrix, lane, taken, entries.row(code), entries.y(i));
                        }
                    }
                    gram.finish(matrix, lane);
                    team.sync();
                    n_in = team.across<false>(n);  // without a change they are as many as before
                    if (team.warps > 1 && team.warp == 0) {
                        for (int e = lane; e < AUGMENTED * STRIDE; e += 32) {
                            REAL total = matrix[e];
                            for (int w = 1; w < WARPS; w++) {
                                total += matrices[w * TILE + e];
                            }
                            matrix[e] = total;
                        }
                        __syncwarp();
                    }
                    if (phase == MEASURE) {
                        break;
                    }
                    if (team.warp == 0) {
                        if (lane < RANK && again) {
                            old[lane] = a[lane];
                        }
                        const REAL found = eliminate<false>(matrix, ridge_of(trace(matrix)), lane);
                        if (lane < RANK) {
                            a[lane] = found;
                        }
                    }
                    old_zeta = zeta;
                    team.sync();
                }

                REAL largest = 0;
                int agree = 0;
                square = 0;
                if (solves || phase == PLACE) {
                    REAL now[RANK];
                    fetch_row<RANK, true>(now, a);
#pragma unroll 1
                    for (int i = 0; i < entries.staged; i++) {
                        const int code = entries.code(i);
                        if (code >= 0) {
                            const REAL r = residual_at(entries.y(i), entries.row(code), now);
                            entries.kept(i) = r;
                            if (phase == STEP) {
                                square += chosen >> i & 1 ? r * r : REAL(0);
                            } else {
                                agree += inlies(r, 3 * floor_);
                                largest = max(largest, fabs(r));
                            }
                        }
                    }
#pragma unroll 1
                    for (int i = entries.staged; i < tiles; i++) {
                        const int code = entries.code(i);
                        if (code >= 0) {
                            const REAL r = entries.residual_of(i, code, a);
                            square += phase == STEP && inlies(entries.residual_of(i, code, old), old_zeta) ? r * r : REAL(0);
                            agree += inlies(r, 3 * floor_);
                            largest = max(largest, fabs(r));
                        }
                    }
                }

                if (phase == STEP) {
                    if (solves) {
                        spread = sqrt(team.sum(square) / REAL(max(n_in - RANK, 1)));
                    }
                    const bool trust = n_in >= 2 * RANK && 2 * int64(n_in) >= n_fit;
                    const bool done = zeta <= floor_ && !changed;
                    const REAL lower = REAL(pass.gamma) * zeta;
                    zeta = max(trust ? min(lower, TIGHT * spread) : lower, floor_);
                    step++;
                    phase = done || step == max_steps ? MEASURE : STEP;
                } else if (phase == FIT_SUBSET) {
                    agree = team.sum(agree);
                    subset++;
                    team.sync();  // all have read a
                    if (team.warp == 0 && lane < RANK) {
                        best[lane] = agree > most ? a[lane] : best[lane];
                        if (subset == pass.number) {
                            a[lane] = best[lane];
                        }
                    }
                    most = max(most, agree);
                    phase = subset == pass.number ? PLACE : FIT_SUBSET;
                    team.sync();
                } else {
                    if (phase == FIT_PART) {
                        zeta = max(middle_residual(entries, team, a, team.reduce<true>(largest), n_fit), floor_);
                    }
                    phase = ready;
                }
            }

            square = 0;
            int n_held = __popc(held_bits), n_agreeing = 0;
#pragma unroll 1
            for (int i = 0; i < tiles; i++) {
                bool keep = last >> (i & 31) & 1, held = held_bits >> (i & 31) & 1;
                int at = entries.code(i);
                if (i >= entries.staged) {
                    const int t = entries.place(i);
                    keep = at >= 0 && inlies(entries.residual_of(i, at, a), floor_);
                    held = holds && t < count && entries.held.at(entries.name, entries.index[t]);
                    n_held += held;
                }
                if (keep) {
                    const REAL r = entries.kept_residual(i, at, a);
                    square += r * r;
                    informative += fabs(entries.y(i)) > informative_size;
                }
                if (held) {
                    n_agreeing += inlies(entries.residual_of(i, at, a), floor_);
                }
            }
            n_held = team.sum(n_held);
            n_agreeing = team.sum(n_agreeing);
            informative = team.sum(informative);
            square = team.sum(square);
            if (team.warp == 0) {
                whiten(matrix, white, lane);
                REAL size = trace(matrix);
                const bool nothing = !(size > 0);  // entries at rows of the basis that are 0 say nothing
                const REAL ridge = ridge_of(size);
                size += RANK * ridge;
                const REAL inverse = warp_sum(eliminate<true>(matrix, ridge, lane));
                spread = sqrt(square / REAL(max(n_in - RANK, 1)));
                if (lane < RANK) {
                    coefficients[k * RANK + lane] = a[lane];
                }
                if (lane == 0) {
                    REAL* const out = table + k * N_COLUMNS;
                    out[N_FIT] = REAL(n_fit);
                    out[N_INLIERS] = REAL(n_in);
                    out[SPREAD] = spread;
                    out[ILL_CONDITIONED] = nothing || size * inverse >= RANK * ILL ? REAL(1) : REAL(0);
                    out[STANDARD_ERROR] = spread * sqrt(inverse);
                    out[N_INFORMATIVE] = REAL(informative);
                    out[N_HELD] = REAL(n_held);
                    out[N_CONSENSUS] = REAL(n_agreeing);
                }
            }
        }
    }
}
