/* The caching allocator over a backend that counts: blocks never overlap,
 * memory is used again and given back, and the figures are right. */
#include "check.h"

#include "../../runtime/memory/memory.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static size_t taken, calls;

static fl_status take(fl_backend *b, int device, size_t bytes, void **memory) {
  (void)b, (void)device;
  if (posix_memalign(memory, FL_ALIGN, bytes))
    return fli_fail(FL_ENOMEM, "no memory");
  taken += bytes;
  calls++;
  return FL_OK;
}

static void release(fl_backend *b, int device, void *memory, size_t bytes) {
  (void)b, (void)device;
  taken -= bytes;
  free(memory);
}

static fl_backend backend = {.struct_size = sizeof backend,
                             .name = "cpu",
                             .flags = FL_BACKEND_HOST,
                             .alloc = take,
                             .release = release};

static void drain_nothing(fl_runtime *rt) {
  (void)rt;
}

static void no_kernels(fl_runtime *rt, int k) {
  (void)rt, (void)k;
}

static const fli_upcalls upcalls = {.drain = drain_nothing,
                                    .kernels = no_kernels};

static void open_runtime(fl_runtime *rt) {
  memset(rt, 0, sizeof *rt);
  rt->up = &upcalls;
  rt->backends[0] = rt->cpu = &backend;
  rt->n_backends = rt->n_devices[0] = 1;
  rt->owner = fli_self();
  CHECK(fli_sites_open(rt) == FL_OK);
  CHECK(fli_alloc_open(rt) == FL_OK);
  fli_alloc_device(rt, 0);
}

static void close_runtime(fl_runtime *rt) {
  fli_alloc_close(rt);
  fli_sites_close(rt);
  CHECK(taken == 0, "%zu bytes not given back", taken);
}

static fl_memory_stats stats(fl_runtime *rt) {
  fl_memory_stats s;
  fl_memory_get(rt, 0, &s);
  return s;
}

static uint64_t state = 1;

static uint64_t random_bits(void) { /* xorshift64* */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 2685821657736338717u;
}

static size_t random_size(void) {
  int bits = (int)(random_bits() % 23);
  return random_bits() & (((size_t)1 << bits) - 1);
}

typedef struct held {
  fli_block *block;
  unsigned char *memory;
  size_t bytes;
  unsigned char mark;
} held;

static bool marked(const held *h) {
  for (size_t i = 0; i < h->bytes; i += 1 + h->bytes / 64)
    if (h->memory[i] != h->mark)
      return false;
  return !h->bytes || h->memory[h->bytes - 1] == h->mark;
}

/* Random sizes come and go; every block keeps what was written into it. */
static void test_random(void) {
  enum { ROOM = 800 };
  static fl_runtime rt;
  static held all[ROOM];
  size_t live = 0, peak = 0, blocks = 0;
  open_runtime(&rt);
  memset(all, 0, sizeof all);
  for (int i = 0; i < 60000; i++) {
    held *h = &all[random_bits() % ROOM];
    if (h->block) {
      CHECK(marked(h), "a block of %zu bytes was written to", h->bytes);
      fli_free(&rt, h->block);
      live -= h->bytes;
      blocks--;
      h->block = NULL;
      continue;
    }
    void *memory;
    h->bytes = random_size();
    CHECK(fli_alloc(&rt, 0, h->bytes, 0, &h->block, &memory) == FL_OK);
    CHECK((uintptr_t)memory % FL_ALIGN == 0);
    h->memory = memory;
    h->mark = (unsigned char)random_bits();
    memset(memory, h->mark, h->bytes);
    live += h->bytes;
    peak = live > peak ? live : peak;
    blocks++;
  }
  fl_memory_stats s = stats(&rt);
  CHECK(s.live == live && s.peak_live == peak && s.blocks == blocks);
  CHECK(s.reserved == taken && s.segments == calls);
  CHECK(s.reserved <= peak + peak / 2 + 34 * MIB, "%zu of %zu", s.reserved,
        peak);
  for (int i = 0; i < ROOM; i++)
    if (all[i].block) {
      CHECK(marked(&all[i]));
      fli_free(&rt, all[i].block);
    }
  CHECK(stats(&rt).live == 0 && stats(&rt).blocks == 0);
  fl_memory_reset_peak(&rt, 0);
  CHECK(stats(&rt).peak_live == 0);
  fl_memory_flush(&rt, 0);
  CHECK(stats(&rt).reserved == 0 && taken == 0);
  close_runtime(&rt);
}

/* No call to the backend in steady state, and little memory for temporaries. */
static void test_steady(void) {
  static fl_runtime rt;
  fli_block *b[300];
  void *memory;
  open_runtime(&rt);
  for (int size = 1; size <= 4 << 20; size *= 4) {
    size_t before = 0;
    for (int i = 0; i < 200; i++) {
      if (i == 1)
        before = calls;
      for (int k = 0; k < 8; k++)
        CHECK(fli_alloc(&rt, 0, (size_t)size, 0, &b[k], &memory) == FL_OK);
      for (int k = 0; k < 8; k++)
        fli_free(&rt, b[k]);
    }
    CHECK(calls == before, "%d bytes: %zu calls", size, calls - before);
  }
  fl_memory_flush(&rt, 0);
  for (int i = 0; i < 3000; i++) {
    for (int k = 0; k < 300; k++)
      fli_alloc(&rt, 0, 1000, 0, &b[k], &memory);
    for (int k = 0; k < 300; k++)
      fli_free(&rt, b[k]);
  }
  CHECK(stats(&rt).reserved <= 4 * MIB, "%zu", stats(&rt).reserved);
  CHECK(stats(&rt).allocations > 900000);
  close_runtime(&rt);
}

/* What was just freed comes first: it is in the cache. */
static void test_order(void) {
  static fl_runtime rt;
  fli_block *a, *b;
  void *p, *q;
  open_runtime(&rt);
  fli_alloc(&rt, 0, 1024, 0, &a, &p);
  fli_free(&rt, a);
  fli_alloc(&rt, 0, 1000, 0, &b, &q);
  CHECK(p == q);
  fli_free(&rt, b);
  close_runtime(&rt);
}

/* Large memory: found again at any fitting size, and what was not used lately
 * does not stay for good. */
static void test_large(void) {
  static fl_runtime rt;
  fli_block *b[8];
  void *memory;
  open_runtime(&rt);
  size_t most = 0;
  for (int i = 0; i < 400; i++) { /* one at a time, all sizes different */
    size_t bytes = 20 * MIB + (size_t)i * MIB / 4 + 1000;
    CHECK(fli_alloc(&rt, 0, bytes, 0, b, &memory) == FL_OK);
    most = taken > most ? taken : most;
    fli_free(&rt, b[0]);
  }
  CHECK(most <= 120 * MIB * 5 / 4 + 34 * MIB, "%zu", most);
  for (int k = 0; k < 8; k++)
    CHECK(fli_alloc(&rt, 0, 100 * MIB, 0, &b[k], &memory) == FL_OK);
  for (int k = 0; k < 8; k++)
    fli_free(&rt, b[k]);
  size_t kept = calls;
  for (int k = 0; k < 8; k++) /* a training step finds its memory again */
    CHECK(fli_alloc(&rt, 0, 100 * MIB, 0, &b[k], &memory) == FL_OK);
  CHECK(calls == kept);
  for (int k = 0; k < 8; k++)
    fli_free(&rt, b[k]);
  for (int i = 0; i < 40000; i++) { /* later work is smaller */
    CHECK(fli_alloc(&rt, 0, MIB, 0, b, &memory) == FL_OK);
    fli_free(&rt, b[0]);
  }
  CHECK(taken <= 64 * MIB, "%zu", taken);
  close_runtime(&rt);
}

/* Temporaries, up to five alive beside one that stays, reserve little more than
 * what lives, of any size; what was before stays for a while, if they are large
 * enough to need spans. Nothing is asked of the backend as they come and go. */
static void test_temporaries(void) {
  static const size_t before[] = {0, 33 * MIB, 200 * MIB};
  for (int k = 0; k < 3; k++)
    for (size_t size = k < 2 ? 1000 : 100000; size < 40 * MIB;
         size = size * 7 / 2) {
      static fl_runtime rt;
      fli_block *stays, *other, *b[5] = {NULL};
      void *memory;
      size_t settled = 0;
      open_runtime(&rt);
      CHECK(fli_alloc(&rt, 0, size, 0, &stays, &memory) == FL_OK);
      CHECK(fli_alloc(&rt, 0, before[k], 0, &other, &memory) == FL_OK);
      fli_free(&rt, other);
      for (int i = 0; i < 70000; i++) {
        int at = (int)(random_bits() % 5);
        if (b[at])
          fli_free(&rt, b[at]);
        CHECK(fli_alloc(&rt, 0, size, 0, &b[at], &memory) == FL_OK);
        if (i == 35000) {
          settled = calls;
          fl_memory_reset_peak(&rt, 0);
        }
      }
      size_t live = stats(&rt).peak_live, reserved = stats(&rt).peak_reserved,
             extra = 4 * size > 64000000 ? 4 * size : 64000000;
      CHECK(calls == settled, "%zu bytes: %zu calls", size, calls - settled);
      CHECK(reserved <= live + live * 15 / 100 + extra, "%zu bytes: %zu of %zu",
            size, reserved, live);
      close_runtime(&rt);
    }
}

/* Neighbours that are free become one. */
static void test_join(void) {
  static fl_runtime rt;
  fli_block *b[64], *whole;
  void *memory;
  open_runtime(&rt);
  for (int order = 0; order < 4; order++) {
    for (int k = 0; k < 32; k++)
      CHECK(fli_alloc(&rt, 0, MIB - 64, 0, &b[k], &memory) == FL_OK);
    for (int k = 0; k < 32; k++) {
      static const int step[] = {1, 31, 5, 11};
      fli_free(&rt, b[k * step[order] % 32]);
    }
    size_t before = calls;
    CHECK(stats(&rt).largest_free >= 8 * MIB);
    CHECK(fli_alloc(&rt, 0, 8 * MIB - 64, 0, &whole, &memory) == FL_OK);
    CHECK(calls == before);
    fli_free(&rt, whole);
  }
  close_runtime(&rt);
}

static void test_holders(void) {
  static fl_runtime rt;
  fli_block *b[4];
  void *memory;
  open_runtime(&rt);
  fl_site one = fl_site_intern(&rt, "train.lua", 41);
  fl_site two = fl_site_intern(&rt, "model.lua", 7);
  CHECK(strcmp(fl_memory_holders(&rt, 0, 5), "") == 0);
  fli_alloc(&rt, 0, 8000000, one, &b[0], &memory);
  fli_alloc(&rt, 0, 512, two, &b[1], &memory);
  fli_alloc(&rt, 0, 4000000, one, &b[2], &memory);
  fli_alloc(&rt, 0, 1000, 0, &b[3], &memory);
  const char *text = fl_memory_holders(&rt, 0, 2);
  CHECK(strcmp(text, "12.0 MB train.lua:41\n1.00 KB ?") == 0, "%s", text);
  fli_free(&rt, b[0]);
  text = fl_memory_holders(&rt, 0, 9);
  CHECK(strcmp(text, "4.00 MB train.lua:41\n1.00 KB ?\n512 B model.lua:7") == 0,
        "%s", text);
  close_runtime(&rt); /* with three blocks alive */
}

int main(void) {
  test_random();
  test_steady();
  test_order();
  test_large();
  test_temporaries();
  test_join();
  test_holders();
  return check_done("alloc_blocks");
}
