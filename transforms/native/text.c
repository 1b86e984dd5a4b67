/* Text as CSV files hold it: where records end, what kind of value a cell is, and integers out of digits.
 *
 * Quotes are read as Arrow's CSV parser reads them: a quote is special only as the first character of a cell, two
 * quotes inside a quoted cell stand for one, and what follows the closing quote is plain. What follows an escape, in a
 * quoted cell or not, is plain too. A line that begins with the comment character is no record. */
#include "kernels.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { RECORD_START, CELL_START, PLAIN, QUOTED, AFTER_QUOTE, ESCAPED, ESCAPED_IN_QUOTES, COMMENT };

typedef struct {
  uint8_t delimiter, quote, escape, comment; /* the last three: 0 when there is none */
} dialect_t;

static inline int is_end(uint8_t c) { return c == '\n' || c == '\r'; }

static inline int next_state(int state, uint8_t c, dialect_t d) {
  if (state == ESCAPED) return PLAIN;
  if (state == ESCAPED_IN_QUOTES) return QUOTED;
  if (state == COMMENT) return is_end(c) ? RECORD_START : COMMENT;
  if (d.comment && c == d.comment && state == RECORD_START) return COMMENT;
  if (d.escape && c == d.escape) return state == QUOTED ? ESCAPED_IN_QUOTES : ESCAPED;
  int is_quote = d.quote && c == d.quote;
  if (state == QUOTED) return is_quote ? AFTER_QUOTE : QUOTED;
  if (is_quote && state != PLAIN) return QUOTED; /* opens a cell, or is the second of two */
  if (c == d.delimiter) return CELL_START;
  return is_end(c) ? RECORD_START : PLAIN;
}

/* One bit for each of 64 bytes that equals `c`, the first byte lowest. */
static inline uint64_t equal_mask(const uint8_t *p, uint8_t c) {
  uint64_t mask = 0;
#ifdef __SSE2__
  const __m128i wanted = _mm_set1_epi8((char)c);
  for (int i = 0; i < 4; i++) {
    __m128i found = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), wanted);
    mask |= (uint64_t)(uint16_t)_mm_movemask_epi8(found) << (16 * i);
  }
#else
  for (int i = 0; i < 64; i++) mask |= (uint64_t)(p[i] == c) << i;
#endif
  return mask;
}

/* Each bit becomes the parity of itself and the lower ones: set from an opening quote to before the closing one. */
static inline uint64_t parity(uint64_t bits) {
  for (int shift = 1; shift < 64; shift <<= 1) bits ^= bits << shift;
  return bits;
}

typedef struct {
  uint64_t boundaries; /* line ends outside quotes */
  uint64_t ends;       /* those that end a record, not a blank line */
  int state;           /* after the 64 bytes */
} block_t;

/* Reads 64 bytes at once, or returns 0 where a quote does not stand at the edge of a cell, or there is an escape or a
 * comment. */
static inline int read_block(const uint8_t *p, dialect_t d, int state, block_t *out) {
  if (state >= AFTER_QUOTE) return 0;
  uint64_t lines = equal_mask(p, '\n') | equal_mask(p, '\r');
  uint64_t delimiters = equal_mask(p, d.delimiter);
  uint64_t quotes = d.quote ? equal_mask(p, d.quote) : 0;
  if (d.escape && equal_mask(p, d.escape)) return 0;
  if (d.comment && (equal_mask(p, d.comment) & (lines << 1 | (state == RECORD_START)))) return 0;
  uint64_t inside = parity(quotes) ^ (state == QUOTED ? ~0ULL : 0);
  uint64_t opening = quotes & inside, closing = quotes & ~inside;
  lines &= ~inside;
  delimiters &= ~inside;
  uint64_t edges = lines | delimiters;
  if (opening & ~(edges << 1 | closing << 1 | (state <= CELL_START))) return 0;
  if ((closing << 1) & ~(edges | opening)) return 0;
  out->boundaries = lines;
  out->ends = lines & ~(lines << 1 | (state == RECORD_START));
  if (inside >> 63)
    out->state = QUOTED;
  else if (closing >> 63)
    out->state = AFTER_QUOTE;
  else
    out->state = lines >> 63 ? RECORD_START : delimiters >> 63 ? CELL_START : PLAIN;
  return 1;
}

static inline dialect_t unpack(uint32_t dialect) {
  dialect_t d = {(uint8_t)dialect, (uint8_t)(dialect >> 8), (uint8_t)(dialect >> 16), (uint8_t)(dialect >> 24)};
  return d;
}

/* Reads lines until one ends at or after `stop_at`, or `max_rows` records have ended, or the bytes have.
 *
 * `dialect`: delimiter, quote, escape and comment, the first in the lowest byte, 0 for none.
 *
 * Returns where the last whole record or blank line ends, 0 if none does; at or after `stop_at` only if the scan
 * stopped there. `*rows` grows by the number of records; blank lines are none. `*state` is that of the parser, 0 at the
 * start of a record; it is that after all `n` bytes unless the scan stopped. */
EXPORT int64_t csv_scan(const uint8_t *data, int64_t n, uint32_t dialect, int64_t stop_at, int64_t max_rows,
                        int64_t *state, int64_t *rows) {
  const dialect_t d = unpack(dialect);
  int64_t end = 0, count = 0, i = 0;
  int s = (int)*state;
  while (i < n) {
    block_t block;
    if (n - i >= 64 && i + 64 < stop_at && read_block(data + i, d, s, &block)) {
      int64_t more = __builtin_popcountll(block.ends);
      if (count + more < max_rows) {
        count += more;
        if (block.boundaries) end = i + 64 - __builtin_clzll(block.boundaries);
        s = block.state;
        i += 64;
        continue;
      }
    }
    for (int64_t edge = i + 64 < n ? i + 64 : n; i < edge; i++) {
      int before = s;
      s = next_state(s, data[i], d);
      if (s != RECORD_START) continue;
      end = i + 1;
      count += before != RECORD_START && before != COMMENT;
      if (end < stop_at && count < max_rows) continue;
      if (data[i] == '\r' && end < n && data[end] == '\n') end++;
      *state = RECORD_START;
      *rows += count;
      return end;
    }
  }
  *state = s;
  *rows += count;
  return end;
}

/* Copies whole records but the comments to `out`, which has room for all; returns how many bytes that are. */
EXPORT int64_t csv_without_comments(const uint8_t *data, int64_t n, uint32_t dialect, uint8_t *out) {
  const dialect_t d = unpack(dialect);
  int state = RECORD_START;
  int64_t size = 0;
  for (int64_t i = 0; i < n; i++) {
    state = next_state(state, data[i], d);
    if (state != COMMENT) out[size++] = data[i];
  }
  return size;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static inline int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }

/* Eight characters at once, little-endian.
 * Source: https://kholdstare.github.io/technical/2020/05/26/faster-integer-parsing.html */
static inline int are_digits(uint64_t v) {
  const uint64_t high = 0xF0F0F0F0F0F0F0F0ULL;
  return ((v & high) | (((v + 0x0606060606060606ULL) & high) >> 4)) == 0x3333333333333333ULL;
}

static inline uint64_t value_of_digits(uint64_t v) {
  v = ((v & 0x0F0F0F0F0F0F0F0FULL) * 2561) >> 8;
  v = ((v & 0x00FF00FF00FF00FFULL) * 6553601) >> 16;
  return ((v & 0x0000FFFF0000FFFFULL) * 42949672960001ULL) >> 32;
}

static inline const uint8_t *skip_digits(const uint8_t *p, const uint8_t *end) {
  while (end - p >= 8 && are_digits(load64(p))) p += 8;
  while (p < end && is_digit(*p)) p++;
  return p;
}

/* An optional '-' and digits that fit int64; leading zeros are allowed. */
static int parse_int64(const uint8_t *p, int64_t n, int64_t *out) {
  int negative = n > 0 && *p == '-';
  const uint8_t *end = p + n;
  p += negative;
  if (p == end) return 0;
  while (end - p > 1 && *p == '0') p++;
  if (end - p > 19) return 0;
  uint64_t value = 0;
  for (; end - p >= 8; p += 8) {
    if (!are_digits(load64(p))) return 0;
    value = value * 100000000 + value_of_digits(load64(p));
  }
  for (; p < end; p++) {
    if (!is_digit(*p)) return 0;
    value = value * 10 + (uint64_t)(*p - '0');
  }
  if (value > (uint64_t)INT64_MAX + (uint64_t)negative) return 0;
  *out = (int64_t)(negative ? 0 - value : value);
  return 1;
}

enum { INTEGER, DECIMAL, NOT_FINITE, TEXT };

static int is_not_finite(const uint8_t *p, int64_t n) {
  static const char *const names[] = {"NaN", "nan", "inf", "Inf", "Infinity"};
  if (n > 0 && *p == '-') p++, n--;
  for (int i = 0; i < 5; i++)
    if (n == (int64_t)strlen(names[i]) && memcmp(p, names[i], (size_t)n) == 0) return 1;
  return 0;
}

/* The kind of a value as number printers write it: text that parsing would change in its meaning is TEXT. */
static int kind_of(const uint8_t *p, int64_t n) {
  const uint8_t *begin = p, *end = p + n;
  int64_t ignored;
  if (n == 0) return TEXT;
  if (*p == '-') p++;
  const uint8_t *whole = p;
  p = skip_digits(p, end);
  int64_t digits = p - whole;
  if (digits > 1 && *whole == '0') return TEXT;
  if (p == end && digits) {
    if (*begin == '-' && *whole == '0') return DECIMAL; /* an integer has no negative zero */
    return digits < 19 || parse_int64(begin, n, &ignored) ? INTEGER : TEXT;
  }
  int point = p < end && *p == '.';
  if (point) {
    const uint8_t *fraction = ++p;
    p = skip_digits(p, end);
    digits += p - fraction;
  }
  if (digits == 0) return is_not_finite(begin, n) ? NOT_FINITE : TEXT;
  if (p == end) return DECIMAL;
  if ((*p | 0x20) != 'e') return TEXT;
  p++;
  int sign = p < end && (*p == '-' || *p == '+');
  p += sign;
  if (p == end || !(point || sign)) return TEXT; /* bare 1e5 is more often a code than a number */
  while (p < end && is_digit(*p)) p++;
  return p == end ? DECIMAL : TEXT;
}

/* Which value is the first of each kind (-1: none).  Nulls have no kind.  Stops at the first TEXT: it decides. */
EXPORT void text_kinds(const int32_t *offsets, const uint8_t *data, const uint8_t *valid, int64_t offset, int64_t n,
                       int64_t *first) {
  for (int k = 0; k < 4; k++) first[k] = -1;
  for (int64_t i = 0; i < n; i++) {
    if (!is_valid(valid, offset + i)) continue;
    const int32_t *at = offsets + offset + i;
    int kind = kind_of(data + at[0], at[1] - at[0]);
    if (first[kind] < 0) first[kind] = i;
    if (kind == TEXT) return;
  }
}

/* Integers out of text; `bad[i]` is 1 where a value is none that fits.  Returns how many are bad. */
EXPORT int64_t text_to_int64(const int32_t *offsets, const uint8_t *data, const uint8_t *valid, int64_t offset,
                             int64_t n, int64_t *out, uint8_t *bad) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; i++) {
    out[i] = 0;
    bad[i] = 0;
    if (!is_valid(valid, offset + i)) continue;
    const int32_t *at = offsets + offset + i;
    bad[i] = !parse_int64(data + at[0], at[1] - at[0], out + i);
    found += bad[i];
  }
  return found;
}

/* Copies JSON text with each number between quotes, so that a parser keeps it as it is written.  `out` has room for
 * three times `n`.  Returns the length of the copy. */
EXPORT int64_t json_quote_numbers(const uint8_t *in, int64_t n, uint8_t *out) {
  uint8_t *p = out;
  int64_t i = 0;
  while (i < n) {
    if (in[i] == '"') {
      do {
        int escape = in[i] == '\\' && i + 1 < n;
        *p++ = in[i++];
        if (escape) *p++ = in[i++];
      } while (i < n && in[i] != '"');
      if (i < n) *p++ = in[i++];
    } else if (in[i] == '-' || is_digit(in[i])) {
      *p++ = '"';
      while (i < n && (is_digit(in[i]) || in[i] == '-' || in[i] == '+' || in[i] == '.' || (in[i] | 0x20) == 'e'))
        *p++ = in[i++];
      *p++ = '"';
    } else {
      *p++ = in[i++];
    }
  }
  return p - out;
}
