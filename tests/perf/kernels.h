/* The reference loops: FMA chains and streams, each in several forms of which the harness takes the fastest.
 *
 * Sub-streams: one array is cut into `streams` equal parts that are walked side by side, `vectors` vectors of each per
 * turn, which keeps more misses in flight. Every count of vectors divides GRANULE, so no loop has a remainder. */
#pragma once
#include "vector.h"

#define GRANULE 48      /* vectors; every streams x vectors below divides it */
#define AHEAD (1024 / 8) /* doubles: how far the prefetching forms look ahead */
#define SKEW (17 * LINE_BYTES / 8) /* doubles between the arrays' starts in the skewed forms: an odd number of lines */

/* FMA peak: x = x * m + x, `chains` at once, the closed form is x (1 + m)^iterations. The addend is x itself because
 * NEON can only add into the addend's register; a tiny m keeps every value finite and normal. */
typedef double (*Peak)(int64_t iterations, double m);

#define PEAK(TYPE, P, CHAINS)                                                                       \
  static double P##peak##CHAINS(int64_t iterations, double factor) {                                \
    P##type m = P##set((TYPE)factor), x[CHAINS];                                                    \
    UNROLLED for (int j = 0; j < CHAINS; j++) x[j] = P##set((TYPE)(1.0 + 0.01 * j));                \
    AS_WRITTEN for (int64_t i = 0; i < iterations; i++) {                                           \
      UNROLLED for (int j = 0; j < CHAINS; j++) x[j] = P##multiply_add(x[j], m, x[j]);              \
      __asm__ volatile(""); /* keeps the loop as written: no merging of turns */                    \
    }                                                                                               \
    UNROLLED for (int j = 1; j < CHAINS; j++) x[0] = P##add(x[0], x[j]);                            \
    TYPE lanes[VECTOR_BYTES / sizeof(TYPE)] __attribute__((aligned(VECTOR_BYTES)));                 \
    double sum = 0;                                                                                 \
    P##store(lanes, x[0]);                                                                          \
    for (unsigned l = 0; l < VECTOR_BYTES / sizeof(TYPE); l++) sum += lanes[l];                     \
    return sum;                                                                                     \
  }
#define dtype Dvector
#define stype Svector
#define PEAKS(CHAINS) PEAK(double, d, CHAINS) PEAK(float, s, CHAINS)
PEAKS(8)
PEAKS(10)
PEAKS(12)
PEAKS(14)
PEAKS(16)
#if REGISTERS > 16
PEAKS(20)
PEAKS(24)
#endif

/* Streams over n doubles, `repeats` times; a is the written or only array, b and c are read. Returns a sum for read. */
typedef double (*Stream)(double *a, const double *b, const double *c, double s, int64_t n, int64_t repeats);
enum Operation { write, update, copy, scale, add, triad };
enum Store { ordinary, nontemporal };

INLINE Dvector element(enum Operation op, const double *a, const double *b, const double *c, Dvector s) {
  switch (op) {
    case write: return s;
    case update: return dmultiply(s, dload(a));
    case copy: return dload(b);
    case scale: return dmultiply(s, dload(b));
    case add: return dadd(dload(b), dload(c));
    default: return dmultiply_add(s, dload(c), dload(b)); /* triad */
  }
}

INLINE double stream(enum Operation op, enum Store store, int streams, int vectors, int ahead, double *a,
                     const double *b, const double *c, double factor, int64_t n, int64_t repeats) {
  const Dvector s = dset(factor);
  const int64_t part = n / streams;
  for (int64_t r = 0; r < repeats; r++) {
    AS_WRITTEN for (int64_t i = 0; i < part; i += vectors * DLANES) {
      UNROLLED for (int j = 0; j < streams; j++) {
        const int64_t at = i + j * part;
        Dvector v[16];
        if (ahead) UNROLLED for (int u = 0; u < vectors * VECTOR_BYTES; u += LINE_BYTES)
          __builtin_prefetch((op == update ? a : b) + at + ahead + u / 8, op == update);
        UNROLLED for (int u = 0; u < vectors; u++) {
          const int64_t k = at + u * DLANES;
          v[u] = element(op, a + k, b + k, c + k, s);
        }
        if (store == nontemporal) dstream(a + at, v, vectors);
        else UNROLLED for (int u = 0; u < vectors; u++) dstore(a + at + u * DLANES, v[u]);
      }
    }
    if (store == nontemporal) drain();
    __asm__ volatile("" ::: "memory");
  }
  return 0;
}

/* One accumulator per vector of a turn, carried over the repeats. */
INLINE double reading(int streams, int vectors, int ahead, const double *a, int64_t n, int64_t repeats) {
  const int64_t part = n / streams;
  Dvector sums[24];
  UNROLLED for (int k = 0; k < streams * vectors; k++) sums[k] = dset(0);
  for (int64_t r = 0; r < repeats; r++) {
    AS_WRITTEN for (int64_t i = 0; i < part; i += vectors * DLANES) {
      UNROLLED for (int j = 0; j < streams; j++) {
        const double *p = a + i + j * part;
        if (ahead) UNROLLED for (int u = 0; u < vectors * VECTOR_BYTES; u += LINE_BYTES)
          __builtin_prefetch(p + ahead + u / 8);
        UNROLLED for (int u = 0; u < vectors; u++)
          sums[j * vectors + u] = dadd(sums[j * vectors + u], dload(p + u * DLANES));
      }
    }
    __asm__ volatile("" ::: "memory"); /* the next repeat must load again */
  }
  UNROLLED for (int k = 1; k < streams * vectors; k++) sums[0] = dadd(sums[0], sums[k]);
  double lanes[DLANES] __attribute__((aligned(VECTOR_BYTES))), sum = 0;
  dstore(lanes, sums[0]);
  for (int l = 0; l < DLANES; l++) sum += lanes[l];
  return sum;
}

#define STREAM_ARGUMENTS double *a, const double *b, const double *c, double s, int64_t n, int64_t repeats
#define UNUSED (void)a, (void)b, (void)c, (void)s

#define STREAM(OP, STORE, STREAMS, VECTORS, FAR, TAG)                                               \
  static double OP##_##STORE##_s##STREAMS##u##VECTORS##TAG(STREAM_ARGUMENTS) {                      \
    return stream(OP, STORE, STREAMS, VECTORS, FAR, a, b, c, s, n, repeats);                        \
  }
#define READING(STREAMS, VECTORS, FAR, TAG)                                                         \
  static double read_none_s##STREAMS##u##VECTORS##TAG(STREAM_ARGUMENTS) {                           \
    UNUSED;                                                                                         \
    return reading(STREAMS, VECTORS, FAR, a, n, repeats);                                           \
  }
/* The loop as anyone writes it; the compiler vectorises it. */
#define PLAIN(OP, EXPRESSION)                                                                       \
  static double OP##_plain(double *restrict a, const double *restrict b, const double *restrict c,  \
                           double s, int64_t n, int64_t repeats) {                                  \
    UNUSED;                                                                                         \
    for (int64_t r = 0; r < repeats; r++) {                                                         \
      for (int64_t i = 0; i < n; i++) a[i] = EXPRESSION;                                            \
      __asm__ volatile("" ::: "memory");                                                            \
    }                                                                                               \
    return 0;                                                                                       \
  }
PLAIN(write, s)
PLAIN(update, s * a[i])
PLAIN(copy, b[i])
PLAIN(scale, s * b[i])
PLAIN(add, b[i] + c[i])
PLAIN(triad, b[i] + s * c[i])
