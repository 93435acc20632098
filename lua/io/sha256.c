/* What proves to a job's processes that they belong together: SHA-256 (FIPS
 * 180-4), HMAC (RFC 2104), comparison in constant time, random bytes. */
#include "../fll.h"

#include <errno.h>
#include <sys/random.h>

typedef struct sha256 {
  uint32_t h[8];
  uint64_t bytes;
  unsigned char block[64];
} sha256;

static uint32_t sha256_turn(uint32_t x, int n) {
  return x >> n | x << (32 - n);
}

static void sha256_mix(sha256 *s, const unsigned char *p) {
  static const uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
      0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
      0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
      0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
      0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
      0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
      0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
      0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
           (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (sha256_turn(a, 7) ^ sha256_turn(a, 18) ^ a >> 3) +
           w[i - 7] + (sha256_turn(b, 17) ^ sha256_turn(b, 19) ^ b >> 10);
  }
  memcpy(v, s->h, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t e = v[4], a = v[0];
    uint32_t t = v[7] +
                 (sha256_turn(e, 6) ^ sha256_turn(e, 11) ^ sha256_turn(e, 25)) +
                 ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
    uint32_t u = (sha256_turn(a, 2) ^ sha256_turn(a, 13) ^ sha256_turn(a, 22)) +
                 ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t;
    v[0] = t + u;
  }
  for (int i = 0; i < 8; i++)
    s->h[i] += v[i];
}

static void sha256_begin(sha256 *s) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                    0xa54ff53a, 0x510e527f, 0x9b05688c,
                                    0x1f83d9ab, 0x5be0cd19};
  memcpy(s->h, start, sizeof start);
  s->bytes = 0;
}

static void sha256_add(sha256 *s, const void *data, size_t n) {
  const unsigned char *p = data;
  for (size_t i = 0; i < n; i++) {
    s->block[s->bytes++ % 64] = p[i];
    if (s->bytes % 64 == 0)
      sha256_mix(s, s->block);
  }
}

static void sha256_finish(sha256 *s, unsigned char *out) {
  static const unsigned char one = 0x80, zero = 0;
  uint64_t bits = s->bytes * 8;
  unsigned char length[8];
  sha256_add(s, &one, 1);
  while (s->bytes % 64 != 56)
    sha256_add(s, &zero, 1);
  for (int i = 0; i < 8; i++)
    length[i] = (unsigned char)(bits >> (56 - 8 * i));
  sha256_add(s, length, 8);
  for (int i = 0; i < 32; i++)
    out[i] = (unsigned char)(s->h[i / 4] >> (24 - i % 4 * 8));
}

/* sha256(text) -> 32 bytes */
static int hash(lua_State *L) {
  sha256 s;
  size_t n;
  unsigned char out[32];
  const char *text = luaL_checklstring(L, 1, &n);
  sha256_begin(&s);
  sha256_add(&s, text, n);
  sha256_finish(&s, out);
  lua_pushlstring(L, (const char *)out, sizeof out);
  return 1;
}

/* hmac(key, text) -> 32 bytes */
static int hmac(lua_State *L) {
  sha256 s;
  size_t n_key, n;
  const char *key = luaL_checklstring(L, 1, &n_key);
  const char *text = luaL_checklstring(L, 2, &n);
  unsigned char block[64] = {0}, out[32];
  if (n_key > sizeof block) {
    sha256_begin(&s);
    sha256_add(&s, key, n_key);
    sha256_finish(&s, block);
  } else
    memcpy(block, key, n_key);
  for (int i = 0; i < 64; i++)
    block[i] ^= 0x36;
  sha256_begin(&s);
  sha256_add(&s, block, sizeof block);
  sha256_add(&s, text, n);
  sha256_finish(&s, out);
  for (int i = 0; i < 64; i++)
    block[i] ^= 0x36 ^ 0x5c;
  sha256_begin(&s);
  sha256_add(&s, block, sizeof block);
  sha256_add(&s, out, sizeof out);
  sha256_finish(&s, out);
  lua_pushlstring(L, (const char *)out, sizeof out);
  return 1;
}

/* same(a, b): in a time that does not tell where they differ */
static int sha256_same(lua_State *L) {
  size_t n, m;
  const char *a = luaL_checklstring(L, 1, &n);
  const char *b = luaL_checklstring(L, 2, &m);
  unsigned char differ = n != m;
  for (size_t i = 0; i < n && i < m; i++)
    differ |= (unsigned char)(a[i] ^ b[i]);
  lua_pushboolean(L, !differ);
  return 1;
}

/* random(n) -> n bytes of the system's cryptographic generator */
static int random_bytes(lua_State *L) {
  char bytes[256];
  size_t n = (size_t)luaL_checkinteger(L, 1), at = 0;
  luaL_argcheck(L, n <= sizeof bytes, 1, "too many");
  while (at < n) {
    ssize_t got = getrandom(bytes + at, n - at, 0);
    if (got < 0 && errno != EINTR)
      return fll_failed(L, "random numbers: %s", strerror(errno));
    at += got > 0 ? (size_t)got : 0;
  }
  lua_pushlstring(L, bytes, n);
  return 1;
}

void fll_secret_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"sha256", hash},
                                       {"hmac", hmac},
                                       {"same", sha256_same},
                                       {"random", random_bytes},
                                       {NULL, NULL}};
  lua_newtable(L);
  fll_register(L, functions);
  lua_setfield(L, -2, "secret");
}
