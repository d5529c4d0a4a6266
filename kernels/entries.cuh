// The entries of one unit, spread over the lanes of a warp, or of several.
//
// A lane has the same entries throughout, every 32nd of its warp's. The first of them are staged in shared memory, with their
// residuals, as far as there is room: these are read from global memory once. The others are read again in each pass, and their
// residuals computed again, to the same bits. A lane stages for itself alone, so this needs no synchronisation.
#pragma once

// The residual of a staged entry that does not take part: beyond all thresholds.
#define BEYOND REAL(__int_as_float(0x7f800000))

// An entry's code is its index if it takes part in the fit, else ~index.
struct Entries {
    const int* index;
    const REAL* value;
    const REAL* basis;
    const REAL* usable;
    HeldOut held;
    bool holds;  // whether any entry of the unit is held out
    int64 name;
    int count;  // of a unit, whose entries are at different positions: 32 bits are enough
    int warp, warps, lane, tiles, staged;
    int* codes;
    REAL* values;
    REAL* residuals;

    __device__ __forceinline__ int place(int i) const {
        return (i * warps + warp) * 32 + lane;
    }
    __device__ __forceinline__ int fetch(int t) const {
        bool is_held = false;
        return fetch(t, is_held);
    }
    __device__ __forceinline__ int fetch(int t, bool& is_held) const {
        if (t >= count) {
            return -1;
        }
        const int at = index[t];
        is_held = holds && held.at(name, at);
        return usable[at] != 0 && !is_held ? at : ~at;
    }
    __device__ __forceinline__ int code(int i) const {
        return i < staged ? codes[i * 32 + lane] : fetch(place(i));
    }
    __device__ __forceinline__ REAL y(int i) const {
        if (i < staged) {
            return values[i * 32 + lane];
        }
        const int t = place(i);
        return t < count ? value[t] : REAL(0);
    }
    __device__ __forceinline__ const REAL* row(int code) const {
        return basis + int64(code >= 0 ? code : ~code) * RANK;
    }
    __device__ __forceinline__ REAL residual_of(int i, int code, const REAL* a) const {
        return residual<RANK>(y(i), row(code), a);
    }
    // Read everything; returns how many of this lane's entries take part in the fit, and which of its staged ones are held out.
    __device__ __forceinline__ int load(unsigned& held_bits) const {
        int n = 0;
        held_bits = 0;
#pragma unroll 1
        for (int i = 0; i < tiles; i++) {
            const int t = place(i);
            bool is_held = false;
            const int found = fetch(t, is_held);
            n += found >= 0;
            if (i < staged) {
                const REAL y = t < count ? value[t] : REAL(0);
                codes[i * 32 + lane] = found;
                values[i * 32 + lane] = y;
                residuals[i * 32 + lane] = found >= 0 ? y : BEYOND;  // of a solution of 0
                held_bits |= unsigned(is_held) << i;
            }
        }
        return n;
    }
    // The residual of a staged entry.
    __device__ __forceinline__ REAL& kept(int i) const {
        return residuals[i * 32 + lane];
    }
    // The residual that `a` left, from where it was kept if it was.
    __device__ __forceinline__ REAL kept_residual(int i, int code, const REAL* a) const {
        return i < staged ? kept(i) : residual_of(i, code, a);
    }
};
