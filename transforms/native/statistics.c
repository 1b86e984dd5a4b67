/* Moments of numbers, in two passes over values that are in the cache: the sum first, then the squares of the distances
 * to the mean, which lose nothing where values are large and close together. NaN is counted and left out. */
#include <math.h>

#include "kernels.h"

typedef struct {
  double count, nan, zeros, mean, m2, min, max;
} moments_t;

#define MOMENTS(NAME, TYPE, IS_NAN)                          \
  EXPORT void NAME(const TYPE *p, int64_t n, moments_t *m) { \
    double sum = 0, m2 = 0, min = INFINITY, max = -INFINITY; \
    int64_t nan = 0, zeros = 0;                              \
    for (int64_t i = 0; i < n; i++) {                        \
      double v = (double)p[i];                               \
      int is_nan = IS_NAN;                                   \
      nan += is_nan;                                         \
      zeros += v == 0;                                       \
      sum += is_nan ? 0 : v;                                 \
      min = v < min ? v : min;                               \
      max = v > max ? v : max;                               \
    }                                                        \
    int64_t count = n - nan;                                 \
    double mean = count ? sum / (double)count : 0;           \
    for (int64_t i = 0; i < n; i++) {                        \
      double v = (double)p[i];                               \
      double d = (IS_NAN) ? 0 : v - mean;                    \
      m2 += d * d;                                           \
    }                                                        \
    *m = (moments_t){(double)count, (double)nan, (double)zeros, mean, m2, min, max}; \
  }

MOMENTS(moments_float, float, v != v)
MOMENTS(moments_int64, int64_t, 0)
