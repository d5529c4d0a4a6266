// The entries of one unit, spread over the lanes of a warp, or of several.
//
// A lane has the same entries throughout, every 32nd of its warp's. The first of them are staged in shared memory, with their
// residuals, as far as there is room: these are read from global memory once. The others are read again in each pass, and their
// residuals computed again, to the same bits. A lane stages for itself alone, so this needs no synchronisation.
#pragma once

// An entry's code is its index if it takes part in the fit, else ~index.
struct Entries {
    const int* index;
    const REAL* value;
    const REAL* basis;
    const REAL* usable;
    HeldOut held;
    bool holds;  // whether any entry of the unit is held out
    int64 name;
    int64 count;
    int warp, warps, lane, tiles, staged;
    int* codes;
    REAL* values;
    REAL* residuals;

    __device__ __forceinline__ int64 place(int i) const {
        return (int64(i) * warps + warp) * 32 + lane;
    }
    __device__ __forceinline__ int fetch(int64 t) const {
        if (t >= count) {
            return -1;
        }
        const int at = index[t];
        return usable[at] != 0 && !(holds && held.at(name, at)) ? at : ~at;
    }
    __device__ __forceinline__ int code(int i) const {
        return i < staged ? codes[i * 32 + lane] : fetch(place(i));
    }
    __device__ __forceinline__ REAL y(int i) const {
        if (i < staged) {
            return values[i * 32 + lane];
        }
        const int64 t = place(i);
        return t < count ? value[t] : REAL(0);
    }
    __device__ __forceinline__ const REAL* row(int code) const {
        return basis + int64(code >= 0 ? code : ~code) * RANK;
    }
    __device__ __forceinline__ REAL residual_of(int i, int code, const REAL* a) const {
        return residual<RANK>(y(i), row(code), a);
    }
    // Read everything; returns how many of this lane's entries take part in the fit.
    __device__ __forceinline__ int load() const {
        int n = 0;
#pragma unroll 1
        for (int i = 0; i < tiles; i++) {
            const int64 t = place(i);
            const int found = fetch(t);
            n += found >= 0;
            if (i < staged) {
                const REAL y = t < count ? value[t] : REAL(0);
                codes[i * 32 + lane] = found;
                values[i * 32 + lane] = y;
                residuals[i * 32 + lane] = y;  // of a solution of 0
            }
        }
        return n;
    }
    // The residual that `a` left, from where it was kept if it was.
    __device__ __forceinline__ REAL kept_residual(int i, int code, const REAL* a) const {
        return i < staged ? residuals[i * 32 + lane] : residual_of(i, code, a);
    }
};
