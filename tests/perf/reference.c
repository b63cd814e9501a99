/* C reference for `make perf`: the tables of loops, a pinned OpenMP team with the clock inside, and cold arrays.
 *
 * A window: every thread pins itself, runs FMA chains for `warm` seconds so that its clock is up, meets the others at a
 * spinning barrier, and reads the clock right before and after its own slice; the window lasts from the first start to
 * the last end. Slices are contiguous and belong to the thread that touched them first. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels.h"

#define STREAMS_OF(OP)                                                                              \
  STREAM(OP, ordinary, 1, 4, 0, )                                                                   \
  STREAM(OP, ordinary, 1, 8, 0, )                                                                   \
  STREAM(OP, ordinary, 2, 4, 0, )                                                                   \
  STREAM(OP, ordinary, 3, 4, 0, )                                                                   \
  STREAM(OP, nontemporal, 1, 2, 0, )                                                                \
  STREAM(OP, nontemporal, 1, 4, 0, )                                                                \
  STREAM(OP, nontemporal, 1, 8, 0, )                                                                \
  STREAM(OP, nontemporal, 2, 4, 0, )                                                                \
  STREAM(OP, nontemporal, 2, 8, 0, )
STREAMS_OF(write)
STREAMS_OF(copy)
STREAMS_OF(scale)
STREAMS_OF(add)
STREAMS_OF(triad)
STREAM(update, ordinary, 1, 8, 0, )
STREAM(update, ordinary, 2, 4, 0, )
STREAM(update, ordinary, 3, 4, 0, )
STREAM(update, ordinary, 6, 2, 0, )
STREAM(update, ordinary, 3, 4, AHEAD, _prefetch)
READING(1, 8, 0, )
READING(1, 12, 0, )
READING(2, 4, 0, )
READING(2, 6, 0, )
READING(3, 4, 0, )
READING(6, 2, 0, )
READING(6, 4, 0, )
READING(3, 4, AHEAD, _prefetch)

typedef struct {
  const char *kernel, *store, *variant;
  Stream run;
  int64_t skew; /* doubles by which b, and twice by which c, start later than a */
} StreamEntry;

#define ROW(OP, STORE, STREAMS, VECTORS) \
  {#OP, #STORE, "s" #STREAMS "u" #VECTORS, OP##_##STORE##_s##STREAMS##u##VECTORS, 0}
#define SKEWED(OP, STORE) {#OP, #STORE, "s1u8 skewed", OP##_##STORE##_s1u8, SKEW}
#define ROWS_OF(OP)                                                                                 \
  {#OP, "ordinary", "plain", OP##_plain, 0}, ROW(OP, ordinary, 1, 4), ROW(OP, ordinary, 1, 8),      \
      ROW(OP, ordinary, 2, 4), ROW(OP, ordinary, 3, 4), SKEWED(OP, ordinary),                       \
      ROW(OP, nontemporal, 1, 2), ROW(OP, nontemporal, 1, 4), ROW(OP, nontemporal, 1, 8),           \
      ROW(OP, nontemporal, 2, 4), ROW(OP, nontemporal, 2, 8), SKEWED(OP, nontemporal)

static const StreamEntry streams[] = {
    ROWS_OF(write), ROWS_OF(copy), ROWS_OF(scale), ROWS_OF(add), ROWS_OF(triad),
    {"update", "ordinary", "plain", update_plain, 0},
    ROW(update, ordinary, 1, 8), ROW(update, ordinary, 2, 4), ROW(update, ordinary, 3, 4), ROW(update, ordinary, 6, 2),
    {"update", "ordinary", "s3u4 prefetch", update_ordinary_s3u4_prefetch, 0},
    ROW(read, none, 1, 8), ROW(read, none, 1, 12), ROW(read, none, 2, 4), ROW(read, none, 2, 6), ROW(read, none, 3, 4),
    ROW(read, none, 6, 2), ROW(read, none, 6, 4),
    {"read", "none", "s3u4 prefetch", read_none_s3u4_prefetch, 0},
};

typedef struct {
  const char *precision;
  Peak run;
  int chains;
} PeakEntry;

#define PEAK_ROWS(CHAINS) {"fp64", dpeak##CHAINS, CHAINS}, {"fp32", speak##CHAINS, CHAINS}
static const PeakEntry peaks[] = {
    PEAK_ROWS(8), PEAK_ROWS(10), PEAK_ROWS(12), PEAK_ROWS(14), PEAK_ROWS(16),
#if REGISTERS > 16
    PEAK_ROWS(20), PEAK_ROWS(24),
#endif
};

const char *reference_isa(void) { return ISA; }
int reference_vector_bytes(void) { return VECTOR_BYTES; }
int reference_granule(void) { return GRANULE * DLANES; }
int reference_stream_count(void) { return sizeof streams / sizeof *streams; }
int reference_peak_count(void) { return sizeof peaks / sizeof *peaks; }
const StreamEntry *reference_stream_entry(int i) { return &streams[i]; }
const PeakEntry *reference_peak_entry(int i) { return &peaks[i]; }

/* ---- the team */
typedef struct {
  int threads;
  const int *cpus;
  double warm;
} Team;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pin(int cpu) {
  cpu_set_t *set = CPU_ALLOC(cpu + 1);
  if (!set) return;
  CPU_ZERO_S(CPU_ALLOC_SIZE(cpu + 1), set);
  CPU_SET_S(cpu, CPU_ALLOC_SIZE(cpu + 1), set);
  sched_setaffinity(0, CPU_ALLOC_SIZE(cpu + 1), set);
  CPU_FREE(set);
}

static void meet(atomic_int *arrived, int threads) {
  atomic_fetch_add(arrived, 1);
  for (int64_t spins = 1; atomic_load(arrived) < threads; spins++) {
    relax();
    if (spins % 2000 == 0) sched_yield(); /* an oversubscribed machine must not hang here */
  }
}

/* Runs BODY, an expression of the thread's number t, on the pinned team; seconds, or -1 without enough threads.
 * READY is evaluated untimed right before. The caller's affinity is put back: threads that it starts later must not
 * inherit one CPU. */
#define RUN_TEAM(BODY) RUN_TEAM_AFTER((void)0, BODY)
#define RUN_TEAM_AFTER(READY, BODY)                                                                 \
  do {                                                                                              \
    cpu_set_t before[64]; /* room for 65536 CPUs */                                                 \
    const int kept = sched_getaffinity(0, sizeof before, before) == 0;                              \
    atomic_int arrived = 0;                                                                         \
    int missing = 0;                                                                                \
    double first = 1e300, last = 0, total = 0;                                                      \
    _Pragma("omp parallel num_threads(team.threads)") {                                             \
      const int t = omp_get_thread_num(), present = omp_get_num_threads() == team.threads;          \
      double start, end, sum = 0, chains = 0;                                                       \
      if (present) {                                                                                \
        pin(team.cpus[t]);                                                                          \
        for (const double until = now() + team.warm; now() < until;) chains += dpeak12(2000, 1e-12); \
        __asm__ volatile("" ::"r"(&chains) : "memory");                                             \
        READY;                                                                                      \
        meet(&arrived, team.threads);                                                               \
      }                                                                                             \
      start = now();                                                                                \
      if (present) sum = BODY;                                                                      \
      end = now();                                                                                  \
      _Pragma("omp critical") {                                                                     \
        if (start < first) first = start;                                                           \
        if (end > last) last = end;                                                                 \
        total += sum;                                                                               \
        missing += !present;                                                                        \
      }                                                                                             \
    }                                                                                               \
    if (kept) sched_setaffinity(0, sizeof before, before);                                          \
    if (result) *result = total;                                                                    \
    return missing ? -1.0 : last - first;                                                           \
  } while (0)

double reference_peak(int entry, Team team, int64_t iterations, double m, double *result) {
  RUN_TEAM(peaks[entry].run(iterations, m));
}

/* Thread t works on doubles [t * pitch + offset, + count) of each array. */
double reference_stream(int entry, Team team, double *a, double *b, double *c, int64_t pitch, int64_t offset,
                        int64_t count, int64_t repeats, double s, double *result) {
  const int64_t skew = streams[entry].skew;
  RUN_TEAM(streams[entry].run(a + t * pitch + offset, b + t * pitch + offset + skew,
                              c + t * pitch + offset + 2 * skew, s, count, repeats));
}

/* ---- memory: 2 MiB aligned, huge pages asked for, touched first by the thread that will use it */
#define HUGE_PAGE ((size_t)2 << 20)

static size_t mapped(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

double *reference_allocate(size_t bytes) {
  const size_t size = mapped(bytes);
  char *raw = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  const size_t head = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
  if (head) munmap(raw, head);
  if (HUGE_PAGE - head) munmap(raw + head + size, HUGE_PAGE - head);
  madvise(raw + head, size, MADV_HUGEPAGE); /* advice: without huge pages it only is slower */
  return (double *)(raw + head);
}

void reference_release(double *array, size_t bytes) { munmap(array, mapped(bytes)); }

static double touch(double *a, int64_t count, int seed) {
  uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(seed + 1);
  for (int64_t i = 0; i < count; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    a[i] = 0.5 + (double)(x >> 11) * 0x1p-53; /* random in [0.5, 1.5) */
  }
  return 0;
}

double reference_touch(Team team, double *a, int64_t pitch, int64_t tail, int seed, double *result) {
  RUN_TEAM(touch(a + t * pitch, pitch + (t == team.threads - 1 ? tail : 0), seed * team.threads + t));
}

/* ---- pointer chase: Sattolo's random cycle over all lines of a set, walked by one chain of dependent loads */
static uint64_t drawn(uint64_t *x, uint64_t below) {
  *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
  return (uint64_t)(((unsigned __int128)*x * below) >> 64);
}

/* 0, or -1 without memory for the order. Pointers are written in the order of the cycle: what stays in the caches is
 * its end, which a chase that starts at the first line reaches last. */
int reference_cycle(char *set, int64_t lines, int64_t seed) {
  int64_t *next = malloc((size_t)lines * sizeof *next);
  if (!next) return -1;
  uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(seed + 1);
  for (int64_t i = 0; i < lines; i++) next[i] = i;
  for (int64_t i = lines - 1; i > 0; i--) {
    const int64_t j = (int64_t)drawn(&state, (uint64_t)i), kept = next[i];
    next[i] = next[j];
    next[j] = kept;
  }
  for (int64_t i = 0, n = 0; n < lines; n++, i = next[i]) *(void **)(set + i * LINE_BYTES) = set + next[i] * LINE_BYTES;
  free(next);
  return 0;
}

static double pass(const char *set, int64_t lines) { /* brings a set that fits into the caches */
  for (int64_t r = 0; r < 8; r++)
    for (int64_t i = 0; i < lines; i++) __asm__ volatile("" ::"r"(*(void *const *)(set + i * LINE_BYTES)));
  return 0;
}

static double chase(void **place, int64_t steps) {
  void *p = *place;
  AS_WRITTEN for (int64_t i = 0; i < steps; i += 16) UNROLLED for (int u = 0; u < 16; u++) p = *(void **)p;
  *place = p;
  return 0;
}

/* From *place on, and back to where it ends; `lines` lines of `set` are passed before, untimed (0: none). */
double reference_chase(Team team, char *set, int64_t lines, void **place, int64_t steps, double *result) {
  RUN_TEAM_AFTER(pass(set, lines), chase(place, steps));
}
