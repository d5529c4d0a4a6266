// cuda_host.hpp - the device side of CUDA C++, compiled for the CPU (g++, C++17, Linux).
//
// A kernel module is one translation unit: this header, then the CUDA source, then one cuh::Kernel
// record per kernel (written by modules.py). The fibers that stand for the threads of a block, and
// the scheduler that runs them, are in cuda_host.cpp.
//
// modules.py runs the preprocessor first, with CUH_KEEP_MARKS defined: __global__, __shared__ and
// __launch_bounds__ then survive as plain identifiers, from which it learns which kernels there are
// and where shared memory is declared; it replaces them before the text is compiled.
#pragma once

// Half of what <math.h> brings in with C++17 are special functions that no kernel needs: as if they were read already.
#define _GLIBCXX_BITS_SPECFUN_H 1

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define HOSTGPU 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))

#ifndef CUH_KEEP_MARKS
#define __global__
#define __launch_bounds__(...)
#define __shared__ static thread_local
#endif

// ----------------------------------------------------------------------------------- vector types

#define CUH_VECTOR_TYPE(name, type)                                        \
    struct alignas(2 * sizeof(type)) name##2 {                             \
        type x, y;                                                         \
    };                                                                     \
    struct name##3 {                                                       \
        type x, y, z;                                                      \
    };                                                                     \
    struct alignas(sizeof(type) >= 4 ? 16 : 4 * sizeof(type)) name##4 {    \
        type x, y, z, w;                                                   \
    };                                                                     \
    inline name##2 make_##name##2(type x, type y) {                        \
        return {x, y};                                                     \
    }                                                                      \
    inline name##3 make_##name##3(type x, type y, type z) {                \
        return {x, y, z};                                                  \
    }                                                                      \
    inline name##4 make_##name##4(type x, type y, type z, type w) {        \
        return {x, y, z, w};                                               \
    }

CUH_VECTOR_TYPE(char, signed char)
CUH_VECTOR_TYPE(uchar, unsigned char)
CUH_VECTOR_TYPE(short, short)
CUH_VECTOR_TYPE(ushort, unsigned short)
CUH_VECTOR_TYPE(int, int)
CUH_VECTOR_TYPE(uint, unsigned int)
CUH_VECTOR_TYPE(longlong, long long)
CUH_VECTOR_TYPE(ulonglong, unsigned long long)
CUH_VECTOR_TYPE(float, float)
CUH_VECTOR_TYPE(double, double)
#undef CUH_VECTOR_TYPE

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

// -------------------------------------------------------------------- the runtime (cuda_host.cpp)

namespace cuh {

// Set by the scheduler each time it resumes the fiber of a thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// The dynamic shared memory of the running block.
extern void *dynamic_pointer;

enum class Op : int { shuffle, ballot, sync };
enum class Vote : int { none, count, all, any };

int sync_block(int line, Vote vote, int predicate);
uint64_t warp_op(Op op, unsigned mask, uint64_t in, int source, const char *what, int line);
int lane();
void fence();
[[noreturn]] void fail(const char *message, int line);

// Runs every thread of every block. Returns null, or what went wrong.
const char *launch(const void *code, void (*call)(void *), void *argument, dim3 grid, dim3 block,
                   size_t shared_bytes);

// What modules.py writes for each kernel, and driver.c looks up. Keep the two in step.
struct Kernel {
    const char *name;
    const char *(*launch)(const unsigned *geometry, size_t shared_bytes, void **arguments);
    const char *(*signature)();
    int max_threads;
};

template <class T>
struct identity {
    using type = T;
};
template <class T>
using identity_t = typename identity<T>::type;

// ------------------------------------------------------------------------------- calling a kernel

template <class... A>
struct PackedCall {
    void (*kernel)(A...);
    void **arguments;

    template <size_t... I>
    void run(std::index_sequence<I...>) {
        kernel(*static_cast<std::remove_reference_t<A> *>(arguments[I])...);
    }
    static void enter(void *self) {
        static_cast<PackedCall *>(self)->run(std::index_sequence_for<A...>{});
    }
};

// Touched before a launch, so that the thread-local storage of the module exists by then.
static thread_local volatile char tls_anchor;

template <class... A>
const char *launch_packed(void (*kernel)(A...), const unsigned *g, size_t shared_bytes,
                          void **arguments) {
    tls_anchor = 0;
    PackedCall<A...> call{kernel, arguments};
    return launch(reinterpret_cast<const void *>(kernel), PackedCall<A...>::enter, &call,
                  dim3(g[0], g[1], g[2]), dim3(g[3], g[4], g[5]), shared_bytes);
}

// What each parameter is, such as "Pf4" for a pointer to 4-byte floats or "i8" for a long long, so
// that the caller's arguments can be checked.
template <class T>
char *describe(char *out) {
    if constexpr (std::is_pointer_v<T>) {
        *out++ = 'P';
        return describe<std::remove_cv_t<std::remove_pointer_t<T>>>(out);
    } else if constexpr (std::is_void_v<T>) {
        *out++ = 'v';
        return out;
    } else {
        char kind = 'V';
        if (std::is_same_v<T, bool>) {
            kind = 'b';
        } else if (std::is_floating_point_v<T>) {
            kind = 'f';
        } else if (std::is_integral_v<T>) {
            kind = std::is_signed_v<T> ? 'i' : 'u';
        }
        return out + sprintf(out, "%c%zu", kind, sizeof(T));
    }
}

template <class... A>
const char *signature(void (*)(A...)) {
    static char text[16 * (sizeof...(A) + 1)];
    char *out = text;
    ((out = describe<std::remove_cv_t<A>>(out), *out++ = ';'), ...);
    *out = 0;
    return text;
}

// -------------------------------------------------------------------------------- warp intrinsics

template <class T>
uint64_t pack(T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
T unpack(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
T shuffle(unsigned mask, T value, int source, const char *what, int line) {
    return unpack<T>(warp_op(Op::shuffle, mask, pack(value), source, what, line));
}

inline int segment(int width) {
    return lane() & ~(width - 1);
}

template <class T>
T shfl(int line, unsigned mask, T value, int index, int width = 32) {
    const int source = segment(width) + (index & (width - 1));
    return shuffle(mask, value, source, "__shfl_sync", line);
}

template <class T>
T shfl_up(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    const int source = lane() - int(delta);
    const bool inside = source >= segment(width);
    return shuffle(mask, value, inside ? source : lane(), "__shfl_up_sync", line);
}

template <class T>
T shfl_down(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    const int source = lane() + int(delta);
    const bool inside = source < segment(width) + width;
    return shuffle(mask, value, inside ? source : lane(), "__shfl_down_sync", line);
}

template <class T>
T shfl_xor(int line, unsigned mask, T value, int bits, int width = 32) {
    const int source = lane() ^ bits;
    const bool inside = source < segment(width) + width;
    return shuffle(mask, value, inside ? source : lane(), "__shfl_xor_sync", line);
}

inline unsigned ballot(int line, unsigned mask, bool predicate, const char *what) {
    return unsigned(warp_op(Op::ballot, mask, predicate, 0, what, line));
}

// An object, so that both __syncwarp() and __syncwarp(mask) can be macros.
struct WarpBarrier {
    int line;
    void operator()(unsigned mask = 0xffffffffu) const {
        warp_op(Op::sync, mask, 0, 0, "__syncwarp", line);
    }
};

// The value of every lane of the mask, folded; the same for all of them.
template <class T, class F>
T warp_fold(int line, unsigned mask, T value, F fold) {
    bool first = true;
    T result = value;
    for (int k = 0; k < 32; k++) {
        if (mask >> k & 1) {
            const T other = shuffle(mask, value, k, "__reduce_sync", line);
            result = first ? other : fold(result, other);
            first = false;
        }
    }
    return result;
}

template <class T>
unsigned match_any(int line, unsigned mask, T value) {
    unsigned same = 0;
    for (int k = 0; k < 32; k++) {
        if (mask >> k & 1) {
            const T other = shuffle(mask, value, k, "__match_any_sync", line);
            same |= unsigned(pack(other) == pack(value)) << k;
        }
    }
    return same;
}

// ---------------------------------------------------------------------------------------- atomics

// Replaces *p by update(*p), atomically; returns what was there before.
template <class T, class F>
T atomic_update(T *p, F update) {
    T old;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    T wanted = update(old);
    while (!__atomic_compare_exchange(p, &old, &wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        wanted = update(old);
    }
    return old;
}

template <class To, class From>
To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "bit_cast between sizes");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

}  // namespace cuh

using cuh::blockDim;
using cuh::blockIdx;
using cuh::gridDim;
using cuh::threadIdx;
inline constexpr int warpSize = 32;

#undef assert
#define assert(condition) ((condition) ? (void)0 : ::cuh::fail("assert(" #condition ")", __LINE__))
#define __trap() ::cuh::fail("__trap()", __LINE__)

#define __syncthreads() ((void)::cuh::sync_block(__LINE__, ::cuh::Vote::none, 0))
#define __syncthreads_count(p) (::cuh::sync_block(__LINE__, ::cuh::Vote::count, !!(p)))
#define __syncthreads_and(p) (::cuh::sync_block(__LINE__, ::cuh::Vote::all, !!(p)))
#define __syncthreads_or(p) (::cuh::sync_block(__LINE__, ::cuh::Vote::any, !!(p)))

#define __syncwarp ::cuh::WarpBarrier{__LINE__}
#define __ballot_sync(mask, p) ::cuh::ballot(__LINE__, (mask), !!(p), "__ballot_sync")
#define __any_sync(mask, p) (::cuh::ballot(__LINE__, (mask), !!(p), "__any_sync") != 0)
#define __all_sync(mask, p) (::cuh::ballot(__LINE__, (mask), !(p), "__all_sync") == 0)
#define __shfl_sync(...) ::cuh::shfl(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) ::cuh::shfl_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) ::cuh::shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) ::cuh::shfl_xor(__LINE__, __VA_ARGS__)
#define __match_any_sync(mask, v) ::cuh::match_any(__LINE__, (mask), (v))
#define CUH_FOLD(mask, v, expression) \
    ::cuh::warp_fold(__LINE__, (mask), (v), [](auto a, auto b) { return expression; })
#define __reduce_add_sync(mask, v) CUH_FOLD(mask, v, a + b)
#define __reduce_min_sync(mask, v) CUH_FOLD(mask, v, b < a ? b : a)
#define __reduce_max_sync(mask, v) CUH_FOLD(mask, v, a < b ? b : a)
#define __reduce_and_sync(mask, v) CUH_FOLD(mask, v, a & b)
#define __reduce_or_sync(mask, v) CUH_FOLD(mask, v, a | b)
#define __reduce_xor_sync(mask, v) CUH_FOLD(mask, v, a ^ b)

// A schedule in which every thread runs alone is a legal one.
inline unsigned __activemask() {
    return 1u << cuh::lane();
}

inline void __threadfence() {
    cuh::fence();
}
inline void __threadfence_block() {
    __threadfence();
}
inline void __threadfence_system() {
    __threadfence();
}
inline void __nanosleep(unsigned) {}

template <class T>
T atomicAdd(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T old) { return T(old + v); });
}
template <class T>
T atomicSub(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T old) { return T(old - v); });
}
template <class T>
T atomicMin(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T old) { return v < old ? v : old; });
}
template <class T>
T atomicMax(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T old) { return old < v ? v : old; });
}
template <class T>
T atomicAnd(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T old) { return T(old & v); });
}
template <class T>
T atomicOr(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T old) { return T(old | v); });
}
template <class T>
T atomicXor(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T old) { return T(old ^ v); });
}
template <class T>
T atomicExch(T *p, cuh::identity_t<T> v) {
    return cuh::atomic_update(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T *p, cuh::identity_t<T> expected, cuh::identity_t<T> v) {
    T old = expected;
    __atomic_compare_exchange(p, &old, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return old;
}
inline unsigned atomicInc(unsigned *p, unsigned limit) {
    return cuh::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}
inline unsigned atomicDec(unsigned *p, unsigned limit) {
    return cuh::atomic_update(
        p, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

// --------------------------------------------------------------------- loads, bits and arithmetic

template <class T>
T __ldg(const T *p) {
    return *p;
}
template <class T>
T __ldcg(const T *p) {
    return *p;
}
template <class T>
T __ldcs(const T *p) {
    return *p;
}
template <class T>
void __stcg(T *p, cuh::identity_t<T> v) {
    *p = v;
}
template <class T>
void __stcs(T *p, cuh::identity_t<T> v) {
    *p = v;
}

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(unsigned(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)(x)) : 64;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return unsigned((unsigned long long)(a)*b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)(a)*b >> 64);
}

inline int __float_as_int(float x) {
    return cuh::bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
    return cuh::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
    return cuh::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
    return cuh::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
    return cuh::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return cuh::bit_cast<double>(x);
}

inline int __float2int_rn(float x) {
    return int(nearbyintf(x));
}
inline int __float2int_rz(float x) {
    return int(x);
}
inline int __double2int_rn(double x) {
    return int(nearbyint(x));
}
inline int __double2int_rz(double x) {
    return int(x);
}
inline float __double2float_rn(double x) {
    return float(x);
}
inline float __int2float_rn(int x) {
    return float(x);
}
inline double __int2double_rn(int x) {
    return double(x);
}

#if !(defined(__GLIBC__) && __GLIBC__ == 2 && __GLIBC_MINOR__ >= 42)  // these have them
inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}
#endif
inline float rsqrt(float x) {
    return 1.0f / sqrtf(x);
}
inline float fdividef(float a, float b) {
    return a / b;
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __expf(float x) {
    return expf(x);
}
inline float __logf(float x) {
    return logf(x);
}
inline float __sinf(float x) {
    return sinf(x);
}
inline float __cosf(float x) {
    return cosf(x);
}
inline float __powf(float x, float y) {
    return powf(x, y);
}
inline float __frcp_rn(float x) {
    return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __fma_rn(double a, double b, double c) {
    return fma(a, b, c);
}

// As in CUDA, these take two arithmetic types, and return the number if one of the two is a NaN.
template <class A, class B,
          std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, int> = 0>
std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) {
        return fmin(T(a), T(b));
    } else {
        return T(b) < T(a) ? T(b) : T(a);
    }
}

template <class A, class B,
          std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, int> = 0>
std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) {
        return fmax(T(a), T(b));
    } else {
        return T(a) < T(b) ? T(b) : T(a);
    }
}
