/* CRC-32C (Castagnoli), and its masked form in TFRecord files. */
#ifndef RECORDMILL_CRC32C_H
#define RECORDMILL_CRC32C_H

#include <stdint.h>

uint32_t crc32c(const uint8_t *data, int64_t size);

/* https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/hash/crc32c.h: Mask */
static inline uint32_t masked_crc32c(const uint8_t *data, int64_t size) {
  uint32_t crc = crc32c(data, size);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
