// Weighted sums of rows of a matrix with WIDTH columns, by one warp.
//
// Each lane has an entry, that is a weight and the number of a row. The lanes then share the columns, so that a row is read in
// one piece; with few columns several groups of lanes take turns at the entries.
#pragma once

constexpr int COLUMNS = WIDTH < 32 ? WIDTH : 32;
constexpr int GROUPS = 32 / COLUMNS;
constexpr int PER_LANE = (WIDTH + 31) / 32;

// Column q of a row times a WIDTH x WIDTH matrix; null stands for the unit matrix.
__device__ __forceinline__ REAL turned_row(const REAL* __restrict__ row, const REAL* __restrict__ turn, int q) {
    if (!turn) {
        return row[q];
    }
    REAL sum = 0;
#pragma unroll 4
    for (int p = 0; p < WIDTH; p++) {
        sum += row[p] * turn[p * WIDTH + q];
    }
    return sum;
}

// Of a warp: entries on their way from the lanes that have them to those that use them, and the row of left.
struct Stage {
    REAL weight[32];
    REAL row[WIDTH];
    int place[32];
};

// sum_t weight_t X[place_t, :], spread over the lanes.
struct RowSum {
    REAL sum[PER_LANE];
    int group, column, lane;

    __device__ __forceinline__ RowSum(int lane) : group(lane / COLUMNS), column(lane % COLUMNS), lane(lane) {
#pragma unroll
        for (int p = 0; p < PER_LANE; p++) {
            sum[p] = 0;
        }
    }

    // One entry from each lane; those of weight 0 are left out. The steps are from one row of X to the next, and from one column
    // to the next.
    __device__ __forceinline__ void add(Stage& stage, REAL weight, int place, const REAL* __restrict__ X, int64 row_step = WIDTH,
                                        int64 column_step = 1) {
        const unsigned mask = __ballot_sync(EVERY_LANE, weight != 0);
        if (mask == 0) {
            return;
        }
        __syncwarp();
        if (weight != 0) {
            const int at = __popc(mask & ((1u << lane) - 1));
            stage.weight[at] = weight;
            stage.place[at] = place;
        }
        __syncwarp();
        const int n = __popc(mask);
        if (group < GROUPS) {
#pragma unroll 4  // four rows on their way from memory at a time
            for (int e = group; e < n; e += GROUPS) {
                const REAL factor = stage.weight[e];
                const REAL* row = X + stage.place[e] * row_step;
#pragma unroll
                for (int p = 0; p < PER_LANE; p++) {
                    if (p * 32 + column < WIDTH) {
                        sum[p] += factor * row[(p * 32 + column) * column_step];
                    }
                }
            }
        }
    }

    // The sum, and a row `base` times `turn`, if they are there.
    __device__ __forceinline__ void write(REAL* out, const REAL* base, const REAL* turn = nullptr) {
        __syncwarp();
#pragma unroll
        for (int p = 0; p < PER_LANE; p++) {
            const REAL total = group_sum<GROUPS, COLUMNS>(sum[p], group);
            const int at = p * 32 + column;
            if (group == 0 && at < WIDTH) {
                out[at] = base ? turned_row(base, turn, at) + total : total;
            }
        }
    }
};
