/* TFRecord framing (tfrecord.py gives the format), and the moving of framed records. */
#include "crc32c.h"
#include "kernels.h"

#define HEADER 12
#define FOOTER 4

enum fault { WHOLE, CUT_IN_HEADER, WRONG_LENGTH, CUT_IN_DATA, WRONG_DATA };

static inline void store64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }
static inline void store32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }

/* Frames n payloads into out, which holds their bytes and 16 more for each. */
EXPORT void tfrecord_frame(const uint8_t *data, const int64_t *payloads, int64_t n, uint8_t *out, int64_t *offsets) {
  uint8_t *p = out;
  offsets[0] = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t size = payloads[i + 1] - payloads[i];
    store64(p, (uint64_t)size);
    store32(p + 8, masked_crc32c(p, 8));
    memcpy(p + HEADER, data + payloads[i], (size_t)size);
    store32(p + HEADER + size, masked_crc32c(p + HEADER, size));
    p += HEADER + size + FOOTER;
    offsets[i + 1] = p - out;
  }
}

/* How many records there are at most, by their lengths alone. */
EXPORT int64_t tfrecord_count(const uint8_t *data, int64_t size) {
  int64_t n = 0;
  for (int64_t at = 0; size - at >= HEADER + FOOTER; n++) {
    uint64_t length = load64(data + at);
    if (length > (uint64_t)(size - at - HEADER - FOOTER)) break;
    at += HEADER + (int64_t)length + FOOTER;
  }
  return n;
}

/* Checks record after record, and puts where each ends behind the 0 in offsets. Returns the number of whole records;
 * *fault says what stopped it. */
EXPORT int64_t tfrecord_scan(const uint8_t *data, int64_t size, int64_t *offsets, int32_t *fault) {
  int64_t n = 0, at = 0;
  offsets[0] = 0;
  for (*fault = WHOLE; at < size; offsets[++n] = at) {
    const uint8_t *p = data + at;
    int64_t left = size - at - HEADER - FOOTER;
    if (size - at < HEADER) {
      *fault = CUT_IN_HEADER;
      break;
    }
    uint64_t length = load64(p);
    if (load32(p + 8) != masked_crc32c(p, 8)) {
      *fault = WRONG_LENGTH;
      break;
    }
    if (left < 0 || length > (uint64_t)left) {
      *fault = CUT_IN_DATA;
      break;
    }
    if (load32(p + HEADER + length) != masked_crc32c(p + HEADER, (int64_t)length)) {
      *fault = WRONG_DATA;
      break;
    }
    at += HEADER + (int64_t)length + FOOTER;
  }
  return n;
}

/* The bytes that n chosen records take together. */
EXPORT int64_t tfrecord_gathered_size(const int64_t *const *offsets, const int32_t *part, const int64_t *row,
                                      int64_t n) {
  int64_t size = 0;
  for (int64_t i = 0; i < n; i++) size += offsets[part[i]][row[i] + 1] - offsets[part[i]][row[i]];
  return size;
}

/* Copies n chosen records, one after the other; neighbours that stay neighbours are copied as one. */
EXPORT void tfrecord_gather(const uint8_t *const *data, const int64_t *const *offsets, const int32_t *part,
                            const int64_t *row, int64_t n, uint8_t *out) {
  const int64_t ahead = 6;
  for (int64_t i = 0, next; i < n; i = next) {
    if (i + ahead < n) {
      const uint8_t *later = data[part[i + ahead]] + offsets[part[i + ahead]][row[i + ahead]];
      for (int line = 0; line < 8; line++) __builtin_prefetch(later + 64 * line);
    }
    for (next = i + 1; next < n && part[next] == part[i] && row[next] == row[next - 1] + 1;) next++;
    const int64_t *ends = offsets[part[i]];
    int64_t start = ends[row[i]], size = ends[row[next - 1] + 1] - start;
    memcpy(out, data[part[i]] + start, (size_t)size);
    out += size;
  }
}
