// The paper's recursion for units outside of the core, through K of the core's iterations (passes.advance).
//
// A warp takes a unit from the first iteration to the last, then the next unit. Its part of the sums over all units is kept for
// each iteration in global memory, and the last block adds the parts in a fixed order.
//
// REAL and RANK are given with -D.
constexpr int WIDTH = RANK;
#include "entry.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "entries.cuh"

constexpr int WARPS = 4;  // of a block, as in cuda/calls.py: four stages of observations fit in its shared memory

extern "C" __global__ void __launch_bounds__(128, 1)
    advance(const int64* __restrict__ units, int64 n_units, const int64* __restrict__ indptr, const int* __restrict__ index,
            const REAL* __restrict__ value, const REAL* __restrict__ usable, const int64* __restrict__ unit_names,
            const int64* __restrict__ index_names, int transposed, uint64 held_key, uint64 held_below, int64 length,
            const REAL* __restrict__ bases, const REAL* __restrict__ turns, const REAL* __restrict__ zetas, int steps,
            REAL step_size, const REAL* __restrict__ start, int staged_tiles, REAL* __restrict__ coefficients, double* partial,
            unsigned* arrived, REAL* __restrict__ sums) {
    __shared__ Stage stages[WARPS];
    __shared__ REAL vectors[WARPS * 2 * RANK];
    extern __shared__ double memory[];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int staged_entries = staged_tiles * 32;
    REAL* const stage_values = reinterpret_cast<REAL*>(memory) + warp * 2 * staged_entries;
    int* const stage_codes =
        reinterpret_cast<int*>(reinterpret_cast<REAL*>(memory) + WARPS * 2 * staged_entries) + warp * staged_entries;
    Stage& stage = stages[warp];
    REAL* a = vectors + warp * 2 * RANK;
    REAL* next = a + RANK;
    const int64 worker = int64(blockIdx.x) * WARPS + warp, workers = int64(gridDim.x) * WARPS;
    double* const mine = partial + worker * 2 * steps;
    for (int e = lane; e < 2 * steps; e += 32) {
        mine[e] = 0;
    }
    __syncwarp();

    for (int64 k = worker; k < n_units; k += workers) {
        const int64 unit = units[k];
        const int64 first = indptr[unit];
        const int count = int(indptr[unit + 1] - first), tiles = (count - 1) / 32 + (count > 0);
        const bool holds = held_below > 0 && count >= LEAST_HELD * RANK;
        Entries entries = {index + first, value + first, bases, usable, {held_key, held_below, index_names, transposed != 0},
                           holds, unit_names[unit], count, 0, 1, lane, tiles, min(tiles, staged_tiles), stage_codes, stage_values,
                           stage_values + staged_entries};
        if (lane < RANK) {
            a[lane] = start[k * RANK + lane];
        }
        __syncwarp();
        unsigned held_bits;
        entries.load(held_bits);
        for (int i = 0; i < entries.staged; i++) {
            const int code = entries.code(i);
            if (code >= 0) {
                entries.residuals[i * 32 + lane] = entries.residual_of(i, code, a);
            }
        }

        for (int step = 0; step < steps; step++) {
            const REAL zeta = zetas[step];
            const REAL* const new_basis = bases + int64(step + 1) * length * RANK;
            RowSum gradient(lane);
#pragma unroll 1
            for (int i = 0; i < tiles; i++) {
                const int code = entries.code(i);
                const REAL E = code >= 0 ? entries.kept_residual(i, code, a) : REAL(0);
                gradient.add(stage, inlies(E, zeta) ? step_size * E : REAL(0), code >= 0 ? code : 0, new_basis);
            }
            gradient.write(next, nullptr);
            __syncwarp();
            if (lane < RANK) {
                REAL turned = next[lane];
                for (int p = 0; p < RANK; p++) {
                    turned += a[p] * turns[(int64(step) * RANK + p) * RANK + lane];
                }
                next[lane] = turned;
            }
            __syncwarp();

            REAL square = 0;
            int outliers = 0;
#pragma unroll 1
            for (int i = 0; i < tiles; i++) {
                const int code = entries.code(i);
                if (code < 0) {
                    continue;
                }
                const REAL E = entries.kept_residual(i, code, a);
                const bool keep = inlies(E, zeta);
                const REAL r = residual<RANK>(entries.y(i), new_basis + int64(code) * RANK, next);
                if (i < entries.staged) {
                    entries.residuals[i * 32 + lane] = r;
                }
                const REAL rest = keep ? r : r - E;
                square += rest * rest;
                outliers += !keep;
            }
            square = warp_sum(square);
            outliers = warp_sum(outliers);
            if (lane == 0) {
                mine[2 * step] += double(square);
                mine[2 * step + 1] += double(outliers);
            }
            REAL* const swapped = a;
            a = next;
            next = swapped;
            entries.basis = new_basis;
            __syncwarp();
        }
        if (lane < RANK) {
            coefficients[k * RANK + lane] = a[lane];
        }
        __syncwarp();
    }

    if (last_block(arrived, gridDim.x)) {
        for (int e = warp; e < 2 * steps; e += WARPS) {
            double total = 0;
            for (int64 w = lane; w < workers; w += 32) {
                total += __ldcg(partial + w * 2 * steps + e);
            }
            total = warp_sum(total);
            if (lane == 0) {
                sums[e] = REAL(total);
            }
        }
    }
}
