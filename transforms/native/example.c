/* tf.train.Example and tf.train.SequenceExample wire bytes, framed as TFRecords, from Arrow buffers.
 *
 * Rows are written one after the other at a cursor that may run ahead of itself: short copies are done in whole words,
 * and the next value overwrites what they wrote too much. `example_bound` says how much room a batch needs, slack
 * included. The messages are those of
 * https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/{example,feature}.proto; the wire format
 * is https://protobuf.dev/programming-guides/encoding. */
#include "crc32c.h"
#include "kernels.h"

enum { SLACK = 64, WORD = 16, PREFETCH = 4096 };
enum { RECORD_HEADER = 12, RECORD_FOOTER = 4 };
enum { TAG_1 = 0x0a, TAG_2 = 0x12, TAG_3 = 0x1a }; /* fields 1, 2 and 3 with a length before them */
enum { BYTES_LIST = TAG_1, FLOAT_LIST = TAG_2, INT64_LIST = TAG_3 }; /* fields of Feature */
enum kind { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, FLOAT, BINARY32, BINARY64 };

/* The largest message that protobuf reads: 2^31 - 1 bytes. */
#define MESSAGE_LIMIT 0x7fffffff

/* A feature's column; example.py fills it. */
typedef struct {
  const uint8_t *entry;   /* a map entry whose lengths are one byte each, up to the value: see `put_short` */
  int64_t entry_size;     /* without the padding of one WORD */
  const uint8_t *valid;   /* bitmap of the rows, or NULL */
  int64_t first;          /* of the rows in the bitmap */
  const int64_t *steps;   /* a row's lists, for features of a SequenceExample that have them, else NULL */
  const int64_t *lists;   /* a list's values, or NULL: one value each */
  const uint8_t *values;  /* numbers; what `starts` points into */
  const void *starts;     /* offsets of the values, for binary */
  int64_t values_size;    /* bytes that may be read from values */
  int64_t kind;
} column;

static inline uint8_t *put_word(uint8_t *p, const uint8_t *from) {
  memcpy(p, from, WORD);
  return p + WORD;
}

static inline int64_t varint_size(uint64_t v) { return ((63 - __builtin_clzll(v | 1)) * 9 + 73) >> 6; }

/* Writes up to 10 bytes, of which those after the varint mean nothing. Seven bits a byte, spread without a loop. */
static inline uint8_t *put_varint_of_size(uint8_t *p, uint64_t v, int64_t size) {
  uint64_t x = (v & 0xfffffffull) | ((v & 0xfffffff0000000ull) << 4);
  x = (x & 0x3fff00003fffull) | ((x & 0xfffc0000fffc000ull) << 2);
  x = (x & 0x7f007f007f007full) | ((x & 0x3f803f803f803f80ull) << 1);
  x |= 0x8080808080808080ull & (((uint64_t)1 << ((8 * size - 8) & 63)) - 1);
  if (size > 8) {
    x |= 0x8080808080808080ull;
    p[8] = (uint8_t)(((v >> 56) & 0x7f) | (size > 9 ? 0x80 : 0));
    p[9] = (uint8_t)(v >> 63);
  }
  memcpy(p, &x, 8);
  return p + size;
}

static inline uint8_t *put_varint(uint8_t *p, uint64_t v) {
  if (v < 0x80) {
    *p = (uint8_t)v;
    return p + 1;
  }
  return put_varint_of_size(p, v, varint_size(v));
}

static inline uint8_t *put_field(uint8_t *p, uint8_t tag, int64_t size) {
  *p = tag;
  return put_varint(p + 1, (uint64_t)size);
}

static inline int64_t field_size(int64_t size) { return 1 + varint_size((uint64_t)size) + size; }

static inline int64_t binary_start(const column *c, int64_t i) {
  if (c->kind == BINARY64) {
    int64_t at;
    memcpy(&at, (const uint8_t *)c->starts + 8 * i, 8);
    return at;
  }
  return (int32_t)load32((const uint8_t *)c->starts + 4 * i);
}

static inline uint8_t tag_of(const column *c) {
  return c->kind >= BINARY32 ? BYTES_LIST : c->kind == FLOAT ? FLOAT_LIST : INT64_LIST;
}

/* How many bytes have their highest bit set: eight counters in a word, joined before their sum may exceed a byte. */
static int64_t high_bytes(const uint8_t *p, int64_t n) {
  const uint64_t ones = 0x0101010101010101ull;
  int64_t high = 0;
  while (n >= 8) {
    uint64_t counters = 0;
    for (int words = 0; words < 31 && n >= 8; words++, p += 8, n -= 8) counters += (load64(p) >> 7) & ones;
    high += (int64_t)((counters * ones) >> 56);
  }
  for (; n > 0; n--) high += *p++ >> 7;
  return high;
}

/* Integers of each width: what they take as varints, and the varints. Negative ones take 10 bytes, as sign-extended. */
#define INTEGERS(NAME, TYPE)                                                                           \
  static inline uint64_t load_##NAME(const uint8_t *values, int64_t i) {                               \
    TYPE v;                                                                                            \
    memcpy(&v, values + (int64_t)sizeof v * i, sizeof v);                                              \
    return (uint64_t)(int64_t)v;                                                                       \
  }                                                                                                    \
  static int64_t sizes_##NAME(const uint8_t *values, int64_t lo, int64_t hi) {                         \
    if (sizeof(TYPE) == 1) return hi - lo + ((TYPE)-1 < 0 ? 9 : 1) * high_bytes(values + lo, hi - lo); \
    int64_t size = 0;                                                                                  \
    for (int64_t i = lo; i < hi; i++) size += varint_size(load_##NAME(values, i));                     \
    return size;                                                                                       \
  }                                                                                                    \
  static uint8_t *put_##NAME(uint8_t *p, const uint8_t *values, int64_t lo, int64_t hi) {              \
    for (int64_t i = lo; i < hi; i++) {                                                                \
      /* Eight small values of one byte are their own varints. */                                      \
      if (sizeof(TYPE) == 1)                                                                           \
        for (; hi - i > 8 && !(load64(values + i) & 0x8080808080808080ull); i += 8, p += 8)            \
          memcpy(p, values + i, 8);                                                                    \
      p = put_varint(p, load_##NAME(values, i));                                                       \
    }                                                                                                  \
    return p;                                                                                          \
  }

INTEGERS(int8, int8_t)
INTEGERS(uint8, uint8_t)
INTEGERS(int16, int16_t)
INTEGERS(uint16, uint16_t)
INTEGERS(int32, int32_t)
INTEGERS(uint32, uint32_t)
INTEGERS(int64, int64_t)

static inline uint64_t load_integer(const column *c, int64_t i) {
  switch (c->kind) {
    case INT8: return load_int8(c->values, i);
    case UINT8: return load_uint8(c->values, i);
    case INT16: return load_int16(c->values, i);
    case UINT16: return load_uint16(c->values, i);
    case INT32: return load_int32(c->values, i);
    case UINT32: return load_uint32(c->values, i);
    default: return load_int64(c->values, i);
  }
}

/* The bytes of the values lo to hi: of the packed numbers, or of all fields of a BytesList. */
static int64_t content_size(const column *c, int64_t lo, int64_t hi) {
  switch (c->kind) {
    case INT8: return sizes_int8(c->values, lo, hi);
    case UINT8: return sizes_uint8(c->values, lo, hi);
    case INT16: return sizes_int16(c->values, lo, hi);
    case UINT16: return sizes_uint16(c->values, lo, hi);
    case INT32: return sizes_int32(c->values, lo, hi);
    case UINT32: return sizes_uint32(c->values, lo, hi);
    case INT64: return sizes_int64(c->values, lo, hi);
    case FLOAT: return 4 * (hi - lo);
  }
  int64_t size = 0;
  for (int64_t i = lo; i < hi; i++) size += field_size(binary_start(c, i + 1) - binary_start(c, i));
  return size;
}

/* Asks for what the next row will copy, most likely, while this one is written and summed. */
static inline uint8_t *put_long(uint8_t *p, const uint8_t *from, int64_t size) {
  for (int64_t at = size; at < 2 * size && at < size + PREFETCH; at += 64) __builtin_prefetch(from + at);
  memcpy(p, from, (size_t)size);
  return p + size;
}

static inline uint8_t *put_binary(uint8_t *p, const column *c, int64_t start, int64_t size) {
  if (size > 128 || start + ((size + WORD - 1) & -WORD) > c->values_size) {
    return put_long(p, c->values + start, size);
  } else {
    for (int64_t at = 0; at < size; at += WORD) put_word(p + at, c->values + start + at);
  }
  return p + size;
}

static uint8_t *put_content(uint8_t *p, const column *c, int64_t lo, int64_t hi) {
  switch (c->kind) {
    case INT8: return put_int8(p, c->values, lo, hi);
    case UINT8: return put_uint8(p, c->values, lo, hi);
    case INT16: return put_int16(p, c->values, lo, hi);
    case UINT16: return put_uint16(p, c->values, lo, hi);
    case INT32: return put_int32(p, c->values, lo, hi);
    case UINT32: return put_uint32(p, c->values, lo, hi);
    case INT64: return put_int64(p, c->values, lo, hi);
    case FLOAT: return put_long(p, c->values + 4 * lo, 4 * (hi - lo));
  }
  for (int64_t i = lo; i < hi; i++) {
    int64_t start = binary_start(c, i), size = binary_start(c, i + 1) - start;
    p = put_binary(put_field(p, TAG_1, size), c, start, size);
  }
  return p;
}

/* The sizes of a Feature, inside out. Packed numbers are one field; no numbers are no field. */
typedef struct {
  int64_t content, list, feature;
} sizes;

static inline sizes sizes_of(const column *c, int64_t lo, int64_t hi) {
  sizes s;
  s.content = content_size(c, lo, hi);
  s.list = c->kind >= BINARY32 || lo == hi ? s.content : field_size(s.content);
  s.feature = field_size(s.list);
  return s;
}

static inline uint8_t *put_feature(uint8_t *p, const column *c, int64_t lo, int64_t hi, sizes s) {
  p = put_field(p, tag_of(c), s.list);
  if (s.list != s.content) p = put_field(p, TAG_1, s.content);
  return put_content(p, c, lo, hi);
}

/* What stands before a map entry's value: the entry's own field, the key, and the value's field. */
static inline uint8_t *put_key(uint8_t *p, const column *c, int64_t value_size) {
  int64_t key_size = c->entry_size - 8;
  p = put_field(p, TAG_1, key_size + field_size(value_size));
  memcpy(p, c->entry + 2, (size_t)key_size);
  return put_field(p + key_size, TAG_2, value_size);
}

/* One value of at most this size makes an entry whose lengths are one byte each. */
static inline int64_t short_limit(const column *c) { return 127 - (c->entry_size - 2); }

/* The entry up to its value, from the template: entry and its length, key, then Feature, list and value (or packed
 * values) with their lengths. */
static inline uint8_t *put_short(uint8_t *p, const column *c, int64_t size) {
  uint8_t *end = p + c->entry_size;
  uint8_t *q = p;
  for (const uint8_t *from = c->entry; q < end; from += WORD) q = put_word(q, from);
  p[1] = (uint8_t)(c->entry_size - 2 + size);
  end[-5] = (uint8_t)(size + 4);
  end[-3] = (uint8_t)(size + 2);
  end[-1] = (uint8_t)size;
  return end;
}

static inline uint8_t *put_scalar(uint8_t *p, const column *c, int64_t i, int64_t limit) {
  if (c->kind >= BINARY32) {
    int64_t start = binary_start(c, i), size = binary_start(c, i + 1) - start;
    if (size <= limit) return put_binary(put_short(p, c, size), c, start, size);
  } else if (c->kind == FLOAT) {
    if (limit >= 4) {
      p = put_short(p, c, 4);
      memcpy(p, c->values + 4 * i, 4);
      return p + 4;
    }
  } else if (limit >= 10) {
    uint64_t v = load_integer(c, i);
    int64_t size = varint_size(v);
    return put_varint_of_size(put_short(p, c, size), v, size);
  }
  return NULL;
}

static uint8_t *put_list(uint8_t *p, const column *c, int64_t lo, int64_t hi) {
  sizes s = sizes_of(c, lo, hi);
  if (s.feature > MESSAGE_LIMIT) return NULL;
  return put_feature(put_key(p, c, s.feature), c, lo, hi, s);
}

/* A FeatureList: one Feature for each list of the row. */
static uint8_t *put_steps(uint8_t *p, const column *c, int64_t first, int64_t last) {
  int64_t size = 0;
  for (int64_t i = first; i < last; i++) {
    int64_t lo = c->lists ? c->lists[i] : i, hi = c->lists ? c->lists[i + 1] : i + 1;
    size += field_size(sizes_of(c, lo, hi).feature);
  }
  if (size > MESSAGE_LIMIT) return NULL;
  p = put_key(p, c, size);
  for (int64_t i = first; i < last; i++) {
    int64_t lo = c->lists ? c->lists[i] : i, hi = c->lists ? c->lists[i + 1] : i + 1;
    sizes s = sizes_of(c, lo, hi);
    p = put_feature(put_field(p, TAG_1, s.feature), c, lo, hi, s);
  }
  return p;
}

static inline uint8_t *put_column(uint8_t *p, const column *c, int64_t row) {
  if (!is_valid(c->valid, c->first + row)) return p;
  if (c->steps) return put_steps(p, c, c->steps[row], c->steps[row + 1]);
  if (c->lists) return put_list(p, c, c->lists[row], c->lists[row + 1]);
  uint8_t *end = put_scalar(p, c, row, short_limit(c));
  return end ? end : put_list(p, c, row, row + 1);
}

/* Features, or FeatureLists, as a field. Its length stands before it and is known after it: `width` bytes are kept
 * free, as many as the last row's took, and the bytes are moved when that was wrong. */
static uint8_t *put_group(uint8_t *start, uint8_t tag, const column *columns, int64_t n, int64_t row, int64_t *width) {
  *start = tag;
  uint8_t *begin = start + 1 + *width, *p = begin;
  for (int64_t i = 0; i < n; i++) {
    p = put_column(p, &columns[i], row);
    if (p == NULL || p - begin > MESSAGE_LIMIT) return NULL;
  }
  uint64_t size = (uint64_t)(p - begin);
  int64_t needed = varint_size(size);
  if (needed != *width) {
    memmove(start + 1 + needed, begin, size);
    *width = needed;
  }
  uint8_t varint[16];
  put_varint(varint, size);
  memcpy(start + 1, varint, (size_t)needed);
  return start + 1 + needed + size;
}

/* Room that is enough for the rows as framed records. Entries need more than their template where a length takes more
 * than one byte; of short values there are few such, since each takes more than `limit` of the column's bytes. */
EXPORT int64_t example_bound(const column *columns, int64_t n, int64_t rows) {
  enum { FIELD = 6 }; /* a tag and a length, at most */
  int64_t bound = SLACK + rows * (RECORD_HEADER + RECORD_FOOTER + 2 * FIELD);
  for (const column *c = columns; c < columns + n; c++) {
    int64_t steps = c->steps ? c->steps[rows] - c->steps[0] : 0;
    int64_t limit = short_limit(c), entries = rows;
    int64_t lists = c->steps ? steps : rows;
    if (c->lists) {
      bound += content_size(c, c->lists[0], c->lists[lists]);
    } else if (c->kind >= BINARY32) {
      int64_t size = lists ? binary_start(c, lists) - binary_start(c, 0) : 0; /* no values may mean no offsets */
      bound += size + (c->steps ? FIELD * lists : 0);
      if (!c->steps && limit >= 0 && size / (limit + 1) < rows) entries = size / (limit + 1);
    } else {
      bound += (c->kind == FLOAT ? 4 : 10) * lists;
      if (!c->steps && limit >= 10) entries = 0;
    }
    bound += rows * c->entry_size + entries * 4 * (FIELD - 1) + steps * 3 * FIELD;
  }
  return bound;
}

/* Writes the rows as framed records; `columns` are the `context` ones, then those of the feature lists, which make
 * SequenceExamples if `is_sequence`. Returns the number of rows written: less than `rows` if the next is too large. */
EXPORT int64_t example_encode(const column *columns, int64_t context, int64_t n, int64_t is_sequence, int64_t rows,
                              uint8_t *out, int64_t *offsets) {
  uint8_t *p = out;
  int64_t width = 1, width_of_lists = 1;
  offsets[0] = 0;
  for (int64_t row = 0; row < rows; row++) {
    uint8_t *message = p + RECORD_HEADER;
    uint8_t *end = put_group(message, TAG_1, columns, context, row, &width);
    if (end && is_sequence) end = put_group(end, TAG_2, columns + context, n - context, row, &width_of_lists);
    if (end == NULL || end - message > MESSAGE_LIMIT) return row;
    uint64_t size = (uint64_t)(end - message);
    memcpy(p, &size, 8);
    uint32_t crc = masked_crc32c(p, 8);
    memcpy(p + 8, &crc, 4);
    crc = masked_crc32c(message, (int64_t)size);
    memcpy(end, &crc, 4);
    p = end + RECORD_FOOTER;
    offsets[row + 1] = p - out;
  }
  return rows;
}
