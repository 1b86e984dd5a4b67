/* CRC-32C at the speed of memory: three streams of the processor's CRC instruction, joined by polynomial
 * multiplication; eight tables where there is no such instruction.
 *
 * Polynomials over GF(2) are held reflected: bit 31 is x^0. The state between steps is not inverted. For the joining
 * see V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011. */
#include "crc32c.h"

#include "kernels.h"

#define POLYNOMIAL 0x82f63b78u
#define ONE 0x80000000u /* x^0 */
#define STREAM_WORDS 128 /* at most, of 8 bytes */

static uint32_t table[8][256];
static uint32_t word_shift[2 * STREAM_WORDS + 1]; /* what moves a state over that many words */
static uint32_t (*update)(uint32_t state, const uint8_t *p, int64_t n);

static uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int i = 0; i < 32; i++) {
    product ^= b & (0 - (a >> 31));
    a <<= 1;
    b = (b >> 1) ^ (POLYNOMIAL & (0 - (b & 1)));
  }
  return product;
}

static uint32_t power_of_x(uint64_t exponent) {
  uint32_t power = ONE, square = ONE >> 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) power = multiply(power, square);
    square = multiply(square, square);
  }
  return power;
}

static uint32_t update_by_table(uint32_t state, const uint8_t *p, int64_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t w = load64(p) ^ state;
    state = 0;
    for (int i = 0; i < 8; i++) state ^= table[7 - i][(w >> (8 * i)) & 0xff];
  }
  for (; n > 0; n--) state = (state >> 8) ^ table[0][(state ^ *p++) & 0xff];
  return state;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define HARDWARE __attribute__((target("sse4.2,crc32,pclmul")))
#define LEAST_WORDS 8       /* in a stream, for joining to pay */
#define PRODUCT_EXPONENT 33 /* what `join` multiplies by besides: x from the reflected product, x^32 from the CRC */

static inline HARDWARE uint32_t step8(uint32_t state, uint64_t word) { return (uint32_t)_mm_crc32_u64(state, word); }
static inline HARDWARE uint32_t step1(uint32_t state, uint8_t byte) { return _mm_crc32_u8(state, byte); }

static inline HARDWARE uint32_t join(uint32_t a, uint32_t a_shift, uint32_t b, uint32_t b_shift) {
  __m128i pa = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)a_shift), 0);
  __m128i pb = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)b), _mm_cvtsi32_si128((int)b_shift), 0);
  return step8(0, (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(pa, pb)));
}

static int has_hardware(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) && (c & bit_PCLMUL);
}

#elif defined(__aarch64__)
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__clang__)
#define HARDWARE __attribute__((target("crc")))
#else
#define HARDWARE __attribute__((target("+crc")))
#endif
#define LEAST_WORDS 64
#define PRODUCT_EXPONENT 0

static inline HARDWARE uint32_t step8(uint32_t state, uint64_t word) { return __crc32cd(state, word); }
static inline HARDWARE uint32_t step1(uint32_t state, uint8_t byte) { return __crc32cb(state, byte); }

static inline uint32_t join(uint32_t a, uint32_t a_shift, uint32_t b, uint32_t b_shift) {
  return multiply(a, a_shift) ^ multiply(b, b_shift);
}

static int has_hardware(void) {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) >> 7) & 1; /* HWCAP_CRC32 */
#else
  return 1;
#endif
}
#endif

#if defined(HARDWARE)
static HARDWARE uint32_t update_by_hardware(uint32_t state, const uint8_t *p, int64_t n) {
  while (n >= 3 * 8 * LEAST_WORDS) {
    int64_t words = n / 24 < STREAM_WORDS ? n / 24 : STREAM_WORDS;
    const uint8_t *end = p + 8 * words;
    uint32_t second = 0, third = 0;
    for (const uint8_t *q = p; q < end; q += 8) {
      state = step8(state, load64(q));
      second = step8(second, load64(q + 8 * words));
      third = step8(third, load64(q + 16 * words));
    }
    state = join(state, word_shift[2 * words], second, word_shift[words]) ^ third;
    p += 24 * words;
    n -= 24 * words;
  }
  for (; n >= 8; n -= 8, p += 8) state = step8(state, load64(p));
  for (; n > 0; n--) state = step1(state, *p++);
  return state;
}
#endif

/* The loader of the library runs this once, before any kernel. */
__attribute__((constructor)) static void prepare(void) {
  for (uint32_t i = 0; i < 256; i++) {
    table[0][i] = multiply(i, ONE >> 8);
  }
  for (int k = 1; k < 8; k++)
    for (int i = 0; i < 256; i++) table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xff];
  update = update_by_table;
#if defined(HARDWARE)
  for (uint64_t words = 1; words <= 2 * STREAM_WORDS; words++)
    word_shift[words] = power_of_x(64 * words - PRODUCT_EXPONENT);
  if (has_hardware()) update = update_by_hardware;
#endif
}

uint32_t crc32c(const uint8_t *data, int64_t size) { return ~update(~0u, data, size); }

EXPORT uint32_t crc32c_of(const uint8_t *data, int64_t size) { return crc32c(data, size); }

EXPORT uint32_t crc32c_by_table(const uint8_t *data, int64_t size) { return ~update_by_table(~0u, data, size); }

/* The CRC of A followed by B, from those of A and B and the size of B in bytes. */
EXPORT uint32_t crc32c_join(uint32_t a, uint32_t b, int64_t size_b) {
  return multiply(a, power_of_x(8 * (uint64_t)size_b)) ^ b;
}
