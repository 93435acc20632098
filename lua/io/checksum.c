/* Checksums of strings and tensors: CRC-32C (Castagnoli, reflected 0x82f63b78;
 * what iSCSI and many file formats use) and XXH64, by their specifications. */
#include "file.h"

#include <stdio.h>

/* --- CRC-32C --- */

static uint32_t crc_bytes(uint32_t crc, const unsigned char *p, size_t n) {
  uint32_t table[16]; /* by halves of a byte */
  for (uint32_t i = 0; i < 16; i++) {
    uint32_t c = i;
    for (int k = 0; k < 4; k++)
      c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    table[i] = c;
  }
  for (; n; n--, p++) {
    crc ^= *p;
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc_fast(uint32_t crc, const unsigned char *p, size_t n) {
  uint64_t c = crc, v;
  for (; n >= 8; n -= 8, p += 8) {
    memcpy(&v, p, 8);
    c = __builtin_ia32_crc32di(c, v);
  }
  for (; n; n--, p++)
    c = __builtin_ia32_crc32qi((uint32_t)c, *p);
  return (uint32_t)c;
}
#endif

static uint32_t crc32c(uint32_t seed, const void *p, size_t n) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2"))
    return ~crc_fast(~seed, p, n);
#endif
  return ~crc_bytes(~seed, p, n);
}

/* crc32c(data, before): an integer; `before` is that of what came before. */
int fll_crc32c(lua_State *L) {
  fl_lua *st = fll_enter(L);
  uint32_t seed = (uint32_t)luaL_optinteger(L, 2, 0);
  size_t n;
  const char *p = fll_piece(L, st, 1, &n, "crc32c");
  lua_pushinteger(L, crc32c(seed, p, n));
  return 1;
}

/* --- XXH64 --- */

#define P1 0x9e3779b185ebca87u
#define P2 0xc2b2ae3d27d4eb4fu
#define P3 0x165667b19e3779f9u
#define P4 0x85ebca77c2b2ae63u
#define P5 0x27d4eb2f165667c5u

static uint64_t checksum_left(uint64_t v, int n) {
  return v << n | v >> (64 - n);
}

static uint64_t word64(const unsigned char *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

static uint64_t round64(uint64_t sum, uint64_t v) {
  return checksum_left(sum + v * P2, 31) * P1;
}

static uint64_t merge64(uint64_t h, uint64_t sum) {
  return (h ^ round64(0, sum)) * P1 + P4;
}

static uint64_t xxh64(const void *data, size_t n, uint64_t seed) {
  const unsigned char *p = data, *end = p + n;
  uint64_t h = seed + P5;
  if (n >= 32) {
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
    for (; end - p >= 32; p += 32) {
      a = round64(a, word64(p));
      b = round64(b, word64(p + 8));
      c = round64(c, word64(p + 16));
      d = round64(d, word64(p + 24));
    }
    h = checksum_left(a, 1) + checksum_left(b, 7) + checksum_left(c, 12) +
        checksum_left(d, 18);
    h = merge64(merge64(merge64(merge64(h, a), b), c), d);
  }
  h += n;
  for (; end - p >= 8; p += 8)
    h = checksum_left(h ^ round64(0, word64(p)), 27) * P1 + P4;
  if (end - p >= 4) {
    h = checksum_left(h ^ fll_word(p) * P1, 23) * P2 + P3;
    p += 4;
  }
  for (; p < end; p++)
    h = checksum_left(h ^ *p * P5, 11) * P1;
  h = (h ^ h >> 33) * P2;
  h = (h ^ h >> 29) * P3;
  return h ^ h >> 32;
}

/* xxh64(data, seed): 16 hexadecimal digits. */
int fll_xxh64(lua_State *L) {
  fl_lua *st = fll_enter(L);
  uint64_t seed = (uint64_t)luaL_optinteger(L, 2, 0);
  size_t n;
  char text[20];
  const char *p = fll_piece(L, st, 1, &n, "xxh64");
  snprintf(text, sizeof text, "%016llx", (unsigned long long)xxh64(p, n, seed));
  lua_pushstring(L, text);
  return 1;
}
