// ptx_machine - what the C++ that ptx_to_cpp.py makes of PTX stands on: registers, memory,
// arithmetic, and the table of kernels by which LAUNCH finds them (cuda_runtime.h, CUDA_CPU_PTX).
//
// What a GPU would refuse ends the program: an address that is not a multiple of what is read
// there, a shuffle or barrier of part of a warp, more threads than a kernel is compiled for.
#ifndef PTX_MACHINE_H
#define PTX_MACHINE_H

#include <cuda_runtime.h>

#include <cmath>
#include <stdio.h>
#include <type_traits>

// One kernel, registered before main. threads_max: of .maxntid; 0: none is given, and then a GPU
// with 64 K registers promises to run 256, if each takes the most that there are.
struct ptx_kernel {
    ptx_kernel(const char *mangled, void (*run)(void **arguments), unsigned threads_max);
    const char *mangled;
    void (*run)(void **arguments);
    unsigned threads_max;
    ptx_kernel *next;
};

namespace
{

[[noreturn]] inline void refuse(const char *what, const char *kernel)
{
    fprintf(stderr, "PTX: %s: %s\n", kernel, what);
    abort();
}

// ---- registers ---------------------------------------------------------------------------------

template <class T, class S> inline constexpr bool same_bits()
{
    return sizeof(T) == sizeof(S) && !std::is_same_v<T, bool> && !std::is_same_v<S, bool>;
}

// The bits of one type taken as another of its size; else the value is converted, as PTX does where
// a register is wider than an instruction.
template <class T, class S> inline T bits(S from)
{
    if constexpr (same_bits<T, S>()) {
        T to;
        memcpy(&to, &from, sizeof to);
        return to;
    } else {
        return (T)from;
    }
}

// The same into a register, sign and all where the value has one.
template <class T, class R> inline void put(R &target, T value)
{
    target = bits<R>(value);
}

// ---- memory ------------------------------------------------------------------------------------

inline char *aligned(char *at, unsigned size, const char *kernel)
{
    if ((uintptr_t)at % size)
        refuse("a misaligned address", kernel);
    return at;
}

template <class T> inline T load(const char *at)
{
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

template <class T> inline void store(char *at, T value)
{
    memcpy(at, &value, sizeof value);
}

template <class T> inline T atomic_add(char *at, T value)
{
    return __atomic_fetch_add((T *)(void *)at, value, __ATOMIC_RELAXED);
}

template <class T> inline T atomic_min(char *at, T value)
{
    return atomicMin((T *)(void *)at, value);
}

template <class T> inline T atomic_max(char *at, T value)
{
    return atomicMax((T *)(void *)at, value);
}

// ---- arithmetic --------------------------------------------------------------------------------

template <class T> inline bool is_ordered(T a, T b)
{
    return a == a && b == b;
}

// Of a number and what is none: the number.
template <class T> inline T least(T a, T b)
{
    if constexpr (std::is_floating_point_v<T>)
        return std::fmin(a, b);
    else
        return b < a ? b : a;
}

template <class T> inline T most(T a, T b)
{
    if constexpr (std::is_floating_point_v<T>)
        return std::fmax(a, b);
    else
        return a < b ? b : a;
}

template <class T> inline T reciprocal(T value)
{
    return 1 / value;
}

// What the division by subroutine starts from: the upper half of a reciprocal.
inline double reciprocal_seed(double value)
{
    return bits<double>(bits<uint64_t>(1 / value) & 0xffffffff00000000u);
}

// Shifts by the size and more are those by the size.
template <class T> inline T shift_shl(T value, uint32_t by)
{
    return by >= 8 * sizeof(T) ? (T)0 : (T)(value << by);
}

template <class T> inline T shift_shr(T value, uint32_t by)
{
    if (by >= 8 * sizeof(T))
        return std::is_signed_v<T> ? (T)(value >> (8 * sizeof(T) - 1)) : (T)0;
    return (T)(value >> by);
}

// Saturates, and takes what is no number for 0.
template <class T, class S> inline T towards_zero(S value)
{
    if (value != value)
        return 0;
    S whole = std::trunc(value), end = std::ldexp((S)1, 8 * (int)sizeof(T) - std::is_signed_v<T>);
    if (whole >= end)
        return std::is_signed_v<T> ? (T)(~(std::make_unsigned_t<T>)0 >> 1) : (T) ~(T)0;
    if (whole < (std::is_signed_v<T> ? -end : 0))
        return std::is_signed_v<T> ? (T)((std::make_unsigned_t<T>)1 << (8 * sizeof(T) - 1)) : (T)0;
    return (T)whole;
}

// ---- lanes -------------------------------------------------------------------------------------

inline void warp_barrier(uint32_t mask)
{
    if (mask != CUDA_CPU_FULL)
        refuse("a barrier of part of a warp", "bar.warp.sync");
    __syncwarp();
}

inline uint32_t shuffle(uint32_t value, uint32_t source, uint32_t clamp, uint32_t want_clamp,
                        uint32_t mask)
{
    if (clamp != want_clamp)
        refuse("a shuffle of part of a warp", "shfl.sync");
    return cuda_cpu_shuffle(mask, value, source, __FILE__, __LINE__);
}

inline uint32_t shuffle_bfly(uint32_t value, uint32_t with, uint32_t clamp, uint32_t mask,
                             bool *there)
{
    *there = true;
    return shuffle(value, cuda_cpu_lane() ^ (with & 31), clamp, 31, mask);
}

inline uint32_t shuffle_idx(uint32_t value, uint32_t lane, uint32_t clamp, uint32_t mask,
                            bool *there)
{
    *there = true;
    return shuffle(value, lane & 31, clamp, 31, mask);
}

// Below lane 0 a thread gets its own value.
inline uint32_t shuffle_up(uint32_t value, uint32_t by, uint32_t clamp, uint32_t mask, bool *there)
{
    uint32_t lane = cuda_cpu_lane();
    *there = lane >= by;
    return shuffle(value, *there ? lane - by : lane, clamp, 0, mask);
}

} // namespace

#endif
