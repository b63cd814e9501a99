// Lets g++ compile CUDA C++ that needs no barrier and no PTX, and runs it one thread after another.
//
// With -DCOUNTING the numbers count: each addition and multiplication (a fused one: two) of Counted, of
// packed halves and of __dp4a, and each byte that is copied out of or into the arrays of the launch. Copies
// between registers are free. Loads and stores are told apart by address, so the code needs no marks.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace shim {

struct Tally { double flops, loaded, stored; };
static Tally tally;

struct Array { const char *first, *last; };
static Array arrays[3];

inline bool in_memory(const void* p) {
    const char* address = static_cast<const char*>(p);
    for (const Array& a : arrays)
        if (a.first <= address && address < a.last) return true;
    return false;
}

inline void copied(const void* to, const void* from, size_t bytes) {
#ifdef COUNTING
    if (in_memory(from)) tally.loaded += bytes;
    if (in_memory(to)) tally.stored += bytes;
#endif
}

inline void worked(double flops) { tally.flops += flops; }

// A number whose copies and arithmetic are counted.
template <class T> struct Counted {
    T value;
    Counted() = default;
    template <class U> Counted(U x) : value(static_cast<T>(x)) {}
    Counted(const Counted& x) : value(x.value) { copied(this, &x, sizeof(T)); }
    Counted& operator=(const Counted& x) { value = x.value; copied(this, &x, sizeof(T)); return *this; }
    friend Counted operator+(const Counted& x, const Counted& y) { worked(1); return Counted(x.value + y.value); }
    friend Counted operator-(const Counted& x, const Counted& y) { worked(1); return Counted(x.value - y.value); }
    friend Counted operator*(const Counted& x, const Counted& y) { worked(1); return Counted(x.value * y.value); }
    friend Counted multiply_added(const Counted& x, const Counted& y, const Counted& z) {
        worked(2);
        return Counted(std::fma(x.value, y.value, z.value));
    }
};

// The nearest number (ties to even) with BITS significant bits and no exponent (of frexp) below LEAST.
template <int BITS, int LEAST> inline double rounded(double x) {
    if (x == 0 || !std::isfinite(x)) return x;
    int exponent;
    std::frexp(x, &exponent);
    const double ulp = std::ldexp(1.0, (exponent < LEAST ? LEAST : exponent) - BITS);
    return std::nearbyint(x / ulp) * ulp;
}

// A 16-bit float: BITS significant bits, one of them hidden, in IEEE layout.
template <int BITS> struct Short {
    static constexpr int MANTISSA = BITS - 1, BIAS = (1 << (14 - MANTISSA)) - 1, LEAST = 2 - BIAS;
    uint16_t bits;
    operator double() const {
        const int exponent = (bits & 0x7fff) >> MANTISSA, mantissa = bits & ((1 << MANTISSA) - 1);
        const double size = exponent == 2 * BIAS + 1 ? (mantissa ? NAN : INFINITY)
            : exponent ? std::ldexp(mantissa + (1 << MANTISSA), exponent - BIAS - MANTISSA)
                       : std::ldexp(mantissa, 1 - BIAS - MANTISSA);
        return bits & 0x8000 ? -size : size;
    }
    static Short from(double x) {
        const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
        x = std::fabs(rounded<BITS, LEAST>(x));
        if (std::isnan(x)) return {0x7fff};
        int exponent;
        const double part = std::frexp(x, &exponent);
        if (std::isinf(x) || exponent > BIAS + 1) return {uint16_t(sign | (2 * BIAS + 1) << MANTISSA)};
        if (x == 0 || exponent < LEAST) return {uint16_t(sign | int(std::ldexp(x, BIAS + MANTISSA - 1)))};
        return {uint16_t(sign | ((exponent + BIAS - 2) << MANTISSA) + int(std::ldexp(part, BITS)))};
    }
};

// Two of them, worked on together.
template <int BITS> struct alignas(4) Pair {
    Short<BITS> x, y;
    Pair() = default;
    Pair(Short<BITS> x, Short<BITS> y) : x(x), y(y) {}
    Pair(const Pair& p) : x(p.x), y(p.y) { copied(this, &p, sizeof(Pair)); }
    Pair& operator=(const Pair& p) { x = p.x; y = p.y; copied(this, &p, sizeof(Pair)); return *this; }
    static Pair from(double x, double y) { return {Short<BITS>::from(x), Short<BITS>::from(y)}; }
    friend Pair operator+(const Pair& p, const Pair& q) { worked(2); return from(p.x + double(q.x), p.y + double(q.y)); }
};

}  // namespace shim

using __half = shim::Short<11>;
using __half2 = shim::Pair<11>;
using __nv_bfloat16 = shim::Short<8>;
using __nv_bfloat162 = shim::Pair<8>;

template <int B> shim::Pair<B> __hadd2(const shim::Pair<B>& p, const shim::Pair<B>& q) { return p + q; }
template <int B> shim::Pair<B> __hfma2(const shim::Pair<B>& p, const shim::Pair<B>& q, const shim::Pair<B>& r) {
    shim::worked(4);
    return shim::Pair<B>::from(std::fma(p.x, q.x, r.x), std::fma(p.y, q.y, r.y));
}
inline __half2 __float2half2_rn(float x) { return __half2::from(x, x); }

inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline shim::Counted<double> __fma_rn(shim::Counted<double> x, shim::Counted<double> y, shim::Counted<double> z) {
    return multiply_added(x, y, z);
}
inline shim::Counted<float> __fmaf_rn(shim::Counted<float> x, shim::Counted<float> y, shim::Counted<float> z) {
    return multiply_added(x, y, z);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __dp4a(int x, int y, int sum) {
    shim::worked(8);
    for (int i = 0; i < 32; i += 8) sum = int(unsigned(sum) + unsigned(int8_t(x >> i) * int8_t(y >> i)));
    return sum;
}

struct alignas(16) int4 {
    int x, y, z, w;
    int4() = default;
    int4(const int4& v) { *this = v; }
    int4& operator=(const int4& v) {
        std::memcpy(static_cast<void*>(this), &v, sizeof v);
        shim::copied(this, &v, sizeof v);
        return *this;
    }
};
template <class V> V __ldcs(const V* p) { return *p; }
template <class V> void __stcs(V* p, const V& v) { *p = v; }

extern "C" {

// One launch, thread by thread; the tally of what it did, bytes of the three arrays given.
void shim_launch(void* entry, unsigned grid, unsigned block, void* a, void* b, void* c, void* s, long long n,
                 int count, const long long* bytes, double* tally) {
    void* array[3] = {a, b, c};
    for (int i = 0; i < 3; ++i)
        shim::arrays[i] = {static_cast<char*>(array[i]), static_cast<char*>(array[i]) + bytes[i]};
    shim::tally = {};
    gridDim = {grid, 1, 1};
    blockDim = {block, 1, 1};
    for (unsigned i = 0; i < grid; ++i)
        for (unsigned j = 0; j < block; ++j) {
            blockIdx = {i, 0, 0};
            threadIdx = {j, 0, 0};
            reinterpret_cast<void (*)(void*, void*, void*, void*, long long, int)>(entry)(a, b, c, s, n, count);
        }
    std::memcpy(tally, &shim::tally, sizeof shim::tally);
}

}

#ifdef COUNTING
#define float shim::Counted<float>
#define double shim::Counted<double>
#endif
