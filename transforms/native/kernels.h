/* What every kernel file includes. Kernels take plain pointers and lengths, allocate nothing that outlives the call,
 * and never touch Python. */
#ifndef RECORDMILL_KERNELS_H
#define RECORDMILL_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static inline uint64_t load64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

static inline uint32_t load32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

/* Arrow validity bitmap: NULL means that all are valid. */
static inline int is_valid(const uint8_t *bitmap, int64_t i) {
  return bitmap == NULL || ((bitmap[i >> 3] >> (i & 7)) & 1);
}

#endif
