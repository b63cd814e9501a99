/* The host's widest vectors behind one set of names: AVX-512, AVX2 with FMA, AVX, SSE2 or NEON, chosen at compile time.
 *
 * D... is fp64, S... is fp32. MULTIPLY_ADD is one fused instruction where the host has it and a multiply and an add
 * where it has not (baseline x86-64); both count 2 FLOP per lane. */
#pragma once
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define LINE_BYTES 64

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#define AS_WRITTEN _Pragma("clang loop unroll(disable)")
#else
#define UNROLLED _Pragma("GCC unroll 64")
#define AS_WRITTEN _Pragma("GCC unroll 1")
#endif

#if defined(__AVX512F__)
#include <immintrin.h>
#define ISA "AVX-512"
#define VECTOR_BYTES 64
#define REGISTERS 32
typedef __m512d Dvector;
typedef __m512 Svector;
#define D(name) _mm512_##name##_pd
#define S(name) _mm512_##name##_ps
#elif defined(__AVX__)
#include <immintrin.h>
#if defined(__FMA__)
#define ISA "AVX2+FMA"
#else
#define ISA "AVX"
#endif
#define VECTOR_BYTES 32
#define REGISTERS 16
typedef __m256d Dvector;
typedef __m256 Svector;
#define D(name) _mm256_##name##_pd
#define S(name) _mm256_##name##_ps
#elif defined(__SSE2__)
#include <emmintrin.h>
#define ISA "SSE2"
#define VECTOR_BYTES 16
#define REGISTERS 16
typedef __m128d Dvector;
typedef __m128 Svector;
#define D(name) _mm_##name##_pd
#define S(name) _mm_##name##_ps
#elif defined(__aarch64__)
#include <arm_neon.h>
#define ISA "NEON"
#define VECTOR_BYTES 16
#define REGISTERS 32
typedef float64x2_t Dvector;
typedef float32x4_t Svector;
#else
#error "the C reference knows x86-64 (SSE2, AVX, AVX2, AVX-512) and AArch64 (NEON) only"
#endif

#define DLANES (VECTOR_BYTES / 8)
#define SLANES (VECTOR_BYTES / 4)

#if defined(__aarch64__)
INLINE Dvector dset(double x) { return vdupq_n_f64(x); }
INLINE Svector sset(float x) { return vdupq_n_f32(x); }
INLINE Dvector dload(const double *p) { return vld1q_f64(p); }
INLINE void dstore(double *p, Dvector v) { vst1q_f64(p, v); }
INLINE void sstore(float *p, Svector v) { vst1q_f32(p, v); }
INLINE Dvector dadd(Dvector x, Dvector y) { return vaddq_f64(x, y); }
INLINE Svector sadd(Svector x, Svector y) { return vaddq_f32(x, y); }
INLINE Dvector dmultiply(Dvector x, Dvector y) { return vmulq_f64(x, y); }
INLINE Dvector dmultiply_add(Dvector x, Dvector y, Dvector z) { return vfmaq_f64(z, x, y); }
INLINE Svector smultiply_add(Svector x, Svector y, Svector z) { return vfmaq_f32(z, x, y); }
INLINE void drain(void) { __asm__ volatile("dmb ishst" ::: "memory"); }
INLINE void relax(void) { __asm__ volatile("yield" ::: "memory"); }

/* Non-temporal stores exist only as pairs (STNP): two vectors at a time, the last odd one in halves. */
INLINE void dstream(double *p, const Dvector *v, int count) {
  UNROLLED for (int u = 0; u + 1 < count; u += 2)
    __asm__ volatile("stnp %q0, %q1, [%2]" ::"w"(v[u]), "w"(v[u + 1]), "r"(p + u * DLANES) : "memory");
  if (count % 2) {
    double low = vgetq_lane_f64(v[count - 1], 0), high = vgetq_lane_f64(v[count - 1], 1);
    __asm__ volatile("stnp %d0, %d1, [%2]" ::"w"(low), "w"(high), "r"(p + (count - 1) * DLANES) : "memory");
  }
}
#else
INLINE Dvector dset(double x) { return D(set1)(x); }
INLINE Svector sset(float x) { return S(set1)(x); }
INLINE Dvector dload(const double *p) { return D(load)(p); }
INLINE void dstore(double *p, Dvector v) { D(store)(p, v); }
INLINE void sstore(float *p, Svector v) { S(storeu)(p, v); }
INLINE Dvector dadd(Dvector x, Dvector y) { return D(add)(x, y); }
INLINE Svector sadd(Svector x, Svector y) { return S(add)(x, y); }
INLINE Dvector dmultiply(Dvector x, Dvector y) { return D(mul)(x, y); }
#if defined(__AVX512F__) || defined(__FMA__)
INLINE Dvector dmultiply_add(Dvector x, Dvector y, Dvector z) { return D(fmadd)(x, y, z); }
INLINE Svector smultiply_add(Svector x, Svector y, Svector z) { return S(fmadd)(x, y, z); }
#else
INLINE Dvector dmultiply_add(Dvector x, Dvector y, Dvector z) { return D(add)(D(mul)(x, y), z); }
INLINE Svector smultiply_add(Svector x, Svector y, Svector z) { return S(add)(S(mul)(x, y), z); }
#endif
INLINE void drain(void) { _mm_sfence(); }
INLINE void relax(void) { _mm_pause(); }
INLINE void dstream(double *p, const Dvector *v, int count) {
  UNROLLED for (int u = 0; u < count; u++) D(stream)(p + u * DLANES, v[u]);
}
#endif
