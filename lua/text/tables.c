/* The tables of a tokenizer: vocabularies, pairs that merge, tries. All are
 * hash tables with open addressing that only grow. */
#include "text.h"

#include <stdlib.h>

void *fll_text_grow(lua_State *L, void *p, uint32_t *room, size_t need,
                    size_t size) {
  if (need <= *room)
    return p;
  size_t wanted = *room ? *room : 64;
  while (wanted < need)
    wanted *= 2;
  void *grown = wanted > UINT32_MAX ? NULL : realloc(p, wanted * size);
  if (!grown)
    luaL_error(L, "out of memory: %d MB", (int)(wanted * size >> 20));
  *room = (uint32_t)wanted;
  return grown;
}

static uint64_t load_word(const char *p, size_t n) {
  uint64_t w = 0;
  memcpy(&w, p, n < 8 ? n : 8);
  return w;
}

static uint64_t mix_words(uint64_t a, uint64_t b) {
  __uint128_t product = (__uint128_t)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t fll_text_hash(const char *p, size_t n) {
  const uint64_t odd = 0x9e3779b97f4a7c15ull;
  uint64_t h = n * odd;
  while (n > 8) {
    h = mix_words(h ^ load_word(p, 8), odd);
    p += 8;
    n -= 8;
  }
  return mix_words(h ^ load_word(p, n), odd ^ 0xd1b54a32d192ed03ull);
}

/* --- vocabularies --- */

static bool same_text(const text_vocab *v, int32_t id, const char *p,
                      size_t n) {
  return v->length[id] == n && memcmp(v->bytes + v->start[id], p, n) == 0;
}

int32_t fll_text_vocab_find(const text_vocab *v, const char *p, size_t n) {
  if (!v->slots)
    return TEXT_NONE;
  for (uint32_t i = (uint32_t)fll_text_hash(p, n) & v->mask;;
       i = (i + 1) & v->mask)
    if (v->slots[i] == TEXT_NONE || same_text(v, v->slots[i], p, n))
      return v->slots[i];
}

const char *fll_text_vocab_get(const text_vocab *v, int32_t id, size_t *n) {
  if (id < 0 || (uint32_t)id >= v->n_ids || v->length[id] == UINT32_MAX)
    return NULL;
  *n = v->length[id];
  return v->bytes + v->start[id];
}

static void place_id(text_vocab *v, int32_t id) {
  uint32_t i = (uint32_t)fll_text_hash(v->bytes + v->start[id], v->length[id]);
  for (i &= v->mask; v->slots[i] != TEXT_NONE; i = (i + 1) & v->mask)
    ;
  v->slots[i] = id;
}

static void vocab_rehash(lua_State *L, text_vocab *v) {
  uint32_t size = v->slots ? (v->mask + 1) * 2 : 1024;
  int32_t *slots = malloc(size * sizeof *slots);
  if (!slots)
    luaL_error(L, "out of memory: a vocabulary");
  memset(slots, 0xff, size * sizeof *slots);
  int32_t *old = v->slots;
  uint32_t n = old ? v->mask + 1 : 0;
  v->slots = slots;
  v->mask = size - 1;
  for (uint32_t i = 0; i < n; i++)
    if (old[i] != TEXT_NONE)
      place_id(v, old[i]);
  free(old);
}

/* A text that is there keeps its first id for look-ups. */
void fll_text_vocab_add(lua_State *L, text_vocab *v, const char *p, size_t n,
                        int32_t id) {
  if (id < 0 || id > TEXT_MAX_ID)
    fll_error(L, "an id of a token is %d: it must be from 0 to %d", (int)id,
              TEXT_MAX_ID);
  if (n > TEXT_MAX_BYTES || v->n_bytes + n > UINT32_MAX / 2)
    fll_error(L, "the vocabulary is longer than 2 GiB");
  uint32_t room = v->id_room;
  v->start =
      fll_text_grow(L, v->start, &room, (size_t)id + 1, sizeof *v->start);
  v->length = fll_text_grow(L, v->length, &v->id_room, (size_t)id + 1,
                            sizeof *v->length);
  v->bytes = fll_text_grow(L, v->bytes, &v->room, v->n_bytes + n + 8, 1);
  for (; v->n_ids <= (uint32_t)id; v->n_ids++)
    v->length[v->n_ids] = UINT32_MAX;
  if (2 * (v->count + 1) > v->mask)
    vocab_rehash(L, v);
  bool known = fll_text_vocab_find(v, p, n) != TEXT_NONE;
  bool fresh = v->length[id] == UINT32_MAX;
  if (!fresh)
    return;
  v->start[id] = v->n_bytes;
  v->length[id] = (uint32_t)n;
  memcpy(v->bytes + v->n_bytes, p, n);
  v->n_bytes += (uint32_t)n;
  if (!known) {
    place_id(v, id);
    v->count++;
  }
}

void fll_text_vocab_free(text_vocab *v) {
  free(v->bytes);
  free(v->start);
  free(v->length);
  free(v->slots);
}

/* --- merges --- */

static uint32_t merge_slot(int32_t left, int32_t right) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32);
}

const text_merge *fll_text_merges_find(const text_merges *m, int32_t left,
                                       int32_t right) {
  if (!m->slots)
    return NULL;
  for (uint32_t i = merge_slot(left, right) & m->mask;; i = (i + 1) & m->mask) {
    const text_merge *s = m->slots + i;
    if (s->left == (uint32_t)left && s->right == (uint32_t)right)
      return s;
    if (s->left == UINT32_MAX)
      return NULL;
  }
}

static void place_merge(text_merges *m, const text_merge *x) {
  uint32_t i = merge_slot((int32_t)x->left, (int32_t)x->right) & m->mask;
  while (m->slots[i].left != UINT32_MAX)
    i = (i + 1) & m->mask;
  m->slots[i] = *x;
}

/* A pair that is given twice has its last rank. */
void fll_text_merges_add(lua_State *L, text_merges *m, int32_t left,
                         int32_t right, int32_t rank, int32_t id) {
  text_merge *known =
      (text_merge *)(uintptr_t)fll_text_merges_find(m, left, right);
  if (known) {
    known->rank = rank;
    known->id = id;
    return;
  }
  if (5 * (m->count + 1) > 3 * m->mask) {
    uint32_t n = m->slots ? m->mask + 1 : 0, size = n ? 2 * n : 1024;
    text_merge *old = m->slots, *slots = malloc(size * sizeof *slots);
    if (!slots)
      luaL_error(L, "out of memory: merges");
    memset(slots, 0xff, size * sizeof *slots);
    m->slots = slots;
    m->mask = size - 1;
    for (uint32_t i = 0; i < n; i++)
      if (old[i].left != UINT32_MAX)
        place_merge(m, old + i);
    free(old);
  }
  text_merge x = {(uint32_t)left, (uint32_t)right, rank, id};
  place_merge(m, &x);
  m->count++;
}

/* --- tries --- */

static uint32_t trie_slot(uint32_t key) {
  return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32);
}

uint32_t fll_text_trie_next(const text_trie *t, uint32_t node,
                            unsigned char byte) {
  if (node == 0)
    return t->first[byte];
  uint32_t key = node << 8 | byte;
  for (uint32_t i = trie_slot(key) & t->mask; t->slots[i];
       i = (i + 1) & t->mask)
    if (t->slots[i] >> 32 == key)
      return (uint32_t)t->slots[i];
  return 0;
}

static void place_child(text_trie *t, uint64_t slot) {
  uint32_t i = trie_slot((uint32_t)(slot >> 32)) & t->mask;
  while (t->slots[i])
    i = (i + 1) & t->mask;
  t->slots[i] = slot;
}

static uint32_t trie_node(lua_State *L, text_trie *t) {
  t->value = fll_text_grow(L, t->value, &t->room, t->n + 1, sizeof *t->value);
  if (t->n >= 1 << 24)
    fll_error(L, "the tokens have more than 2^24 bytes together");
  if (!t->slots || 2 * (t->n + 1) > t->mask) {
    uint32_t n = t->slots ? t->mask + 1 : 0, size = n ? 2 * n : 1024;
    uint64_t *old = t->slots, *slots = calloc(size, sizeof *slots);
    if (!slots)
      luaL_error(L, "out of memory: a trie");
    t->slots = slots;
    t->mask = size - 1;
    for (uint32_t i = 0; i < n; i++)
      if (old[i])
        place_child(t, old[i]);
    free(old);
  }
  t->value[t->n] = TEXT_NONE;
  return t->n++;
}

void fll_text_trie_add(lua_State *L, text_trie *t, const char *p, size_t n,
                       int32_t value) {
  uint32_t node = 0;
  if (t->n == 0)
    trie_node(L, t);
  for (size_t i = 0; i < n; i++) {
    unsigned char byte = (unsigned char)p[i];
    uint32_t child = fll_text_trie_next(t, node, byte);
    if (!child) {
      child = trie_node(L, t);
      if (node == 0)
        t->first[byte] = child;
      else
        place_child(t, (uint64_t)(node << 8 | byte) << 32 | child);
    }
    node = child;
  }
  if (n > 0)
    t->value[node] = value;
}

int32_t fll_text_trie_longest(const text_trie *t, const char *p, size_t left,
                              size_t *n) {
  int32_t found = TEXT_NONE;
  uint32_t node = 0;
  if (t->n == 0)
    return TEXT_NONE;
  for (size_t i = 0; i < left; i++) {
    node = fll_text_trie_next(t, node, (unsigned char)p[i]);
    if (!node)
      break;
    if (t->value[node] != TEXT_NONE) {
      found = t->value[node];
      *n = i + 1;
    }
  }
  return found;
}

void fll_text_trie_free(text_trie *t) {
  free(t->value);
  free(t->slots);
}
