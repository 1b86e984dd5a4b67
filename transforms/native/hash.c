/* Hashes of values for the assignment of rows to splits (split.py says what they promise).
 *
 * XXH64 as specified in https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Changing anything here moves
 * rows between the splits of every dataset. */
#include "kernels.h"

#define P1 0x9E3779B185EBCA87ULL
#define P2 0xC2B2AE3D27D4EB4FULL
#define P3 0x165667B19E3779F9ULL
#define P4 0x85EBCA77C2B2AE63ULL
#define P5 0x27D4EB2F165667C5ULL

static inline uint64_t rotl(uint64_t x, int r) { return (x << r) | (x >> (64 - r)); }

static inline uint64_t round64(uint64_t acc, uint64_t lane) { return rotl(acc + lane * P2, 31) * P1; }

static inline uint64_t avalanche(uint64_t h) {
  h = (h ^ (h >> 33)) * P2;
  h = (h ^ (h >> 29)) * P3;
  return h ^ (h >> 32);
}

static uint64_t xxh64(const uint8_t *p, size_t n, uint64_t seed) {
  const uint8_t *end = p + n;
  uint64_t h;
  if (n >= 32) {
    uint64_t v[4] = {seed + P1 + P2, seed + P2, seed, seed - P1};
    for (; p + 32 <= end; p += 32)
      for (int i = 0; i < 4; i++) v[i] = round64(v[i], load64(p + 8 * i));
    h = rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18);
    for (int i = 0; i < 4; i++) h = (h ^ round64(0, v[i])) * P1 + P4;
  } else {
    h = seed + P5;
  }
  h += n;
  for (; p + 8 <= end; p += 8) h = rotl(h ^ round64(0, load64(p)), 27) * P1 + P4;
  if (p + 4 <= end) {
    h = rotl(h ^ (load32(p) * P1), 23) * P2 + P3;
    p += 4;
  }
  for (; p < end; p++) h = rotl(h ^ (*p * P5), 11) * P1;
  return avalanche(h);
}

/* The hash of an integer is that of its decimal text, so that a column may turn from numbers to text. */
static uint64_t hash_decimal(int64_t value, uint64_t seed) {
  uint8_t text[20];
  uint8_t *p = text + sizeof text;
  uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do {
    *--p = (uint8_t)('0' + magnitude % 10);
    magnitude /= 10;
  } while (magnitude);
  if (value < 0) *--p = '-';
  return xxh64(p, (size_t)(text + sizeof text - p), seed);
}

/* Each kernel adds the hash of value i to rows[i]; a null adds nothing. `first` is the array's offset. */

EXPORT void hash_add_binary32(const int32_t *offsets, const uint8_t *data, const uint8_t *valid, int64_t first,
                              int64_t n, uint64_t seed, uint64_t *rows) {
  for (int64_t i = 0; i < n; i++)
    if (is_valid(valid, first + i)) {
      int32_t at = offsets[first + i];
      rows[i] += xxh64(data + at, (size_t)(offsets[first + i + 1] - at), seed);
    }
}

EXPORT void hash_add_binary64(const int64_t *offsets, const uint8_t *data, const uint8_t *valid, int64_t first,
                              int64_t n, uint64_t seed, uint64_t *rows) {
  for (int64_t i = 0; i < n; i++)
    if (is_valid(valid, first + i)) {
      int64_t at = offsets[first + i];
      rows[i] += xxh64(data + at, (size_t)(offsets[first + i + 1] - at), seed);
    }
}

EXPORT void hash_add_int64(const int64_t *values, const uint8_t *valid, int64_t first, int64_t n, uint64_t seed,
                           uint64_t *rows) {
  for (int64_t i = 0; i < n; i++)
    if (is_valid(valid, first + i)) rows[i] += hash_decimal(values[first + i], seed);
}

/* A float that is a whole number hashes as that integer; any other by its 8 bytes, and every NaN alike. */
EXPORT void hash_add_float64(const double *values, const uint8_t *valid, int64_t first, int64_t n, uint64_t seed,
                             uint64_t *rows) {
  const double limit = 9223372036854775808.0; /* 2^63 */
  for (int64_t i = 0; i < n; i++) {
    if (!is_valid(valid, first + i)) continue;
    double v = values[first + i];
    if (v >= -limit && v < limit && v == (double)(int64_t)v) {
      rows[i] += hash_decimal((int64_t)v, seed);
    } else {
      uint64_t bits = 0x7ff8000000000000ULL;
      if (v == v) memcpy(&bits, &v, 8);
      rows[i] += xxh64((const uint8_t *)&bits, 8, seed);
    }
  }
}

/* The hash of a list is that of its elements' hashes in order. `offsets` are those of the n lists, counted from the
 * first element hash. */
EXPORT void hash_add_lists(const int64_t *offsets, const uint64_t *elements, const uint8_t *valid, int64_t first,
                           int64_t n, uint64_t seed, uint64_t *rows) {
  for (int64_t i = 0; i < n; i++)
    if (is_valid(valid, first + i))
      rows[i] += xxh64((const uint8_t *)(elements + offsets[i]), (size_t)(offsets[i + 1] - offsets[i]) * 8, seed);
}

EXPORT void hash_finish(uint64_t *rows, int64_t n) {
  for (int64_t i = 0; i < n; i++) rows[i] = avalanche(rows[i]);
}

EXPORT uint64_t hash_xxh64(const uint8_t *data, int64_t n, uint64_t seed) { return xxh64(data, (size_t)n, seed); }
