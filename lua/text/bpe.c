/* Byte-pair encoding. A piece becomes symbols, one for each byte or character,
 * and neighbours merge, the pair of lowest rank first, the leftmost of these
 * first. Few symbols are searched, many wait in a queue. */
#include "text.h"

#include <stdlib.h>

#define FEW 24 /* symbols */

static void add_symbol(lua_State *L, text_tokenizer *t, uint32_t *n, int32_t id,
                       uint32_t length) {
  if (*n >= t->symbol_room)
    t->symbols = fll_text_grow(L, t->symbols, &t->symbol_room, (size_t)*n + 1,
                               sizeof *t->symbols);
  t->symbols[*n] = (text_symbol){id, (int32_t)*n - 1, (int32_t)*n + 1, length};
  ++*n;
}

/* --- symbols of a piece --- */

typedef struct symbols {
  lua_State *L;
  text_tokenizer *t;
  uint32_t n, unknown; /* bytes of an unknown symbol that waits */
} symbols;

static void flush_unknown(symbols *s) {
  if (s->unknown)
    add_symbol(s->L, s->t, &s->n, s->t->unk, s->unknown);
  s->unknown = 0;
}

/* The id of a character, with the prefix or suffix that its place asks for. */
static int32_t char_id(symbols *s, const char *p, uint32_t n, bool first,
                       bool last) {
  const text_tokenizer *t = s->t;
  char text[4 + sizeof t->prefix + sizeof t->suffix];
  uint32_t before = first ? 0 : t->n_prefix, after = last ? t->n_suffix : 0;
  if (before + after == 0)
    return fll_text_vocab_find(&t->vocab, p, n);
  memcpy(text, t->prefix, before);
  memcpy(text + before, p, n);
  memcpy(text + before + n, t->suffix, after);
  return fll_text_vocab_find(&t->vocab, text, before + n + after);
}

static bool add_bytes(symbols *s, const char *p, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (s->t->byte_ids[(unsigned char)p[i]] == TEXT_NONE)
      return false;
  for (uint32_t i = 0; i < n; i++)
    add_symbol(s->L, s->t, &s->n, s->t->byte_ids[(unsigned char)p[i]], 1);
  return true;
}

static void add_chars(symbols *s, const char *p, uint32_t n) {
  for (uint32_t i = 0, k; i < n; i += k) {
    text_get(p + i, &k);
    int32_t id = char_id(s, p + i, k, i == 0, i + k == n);
    if (id != TEXT_NONE) {
      flush_unknown(s);
      add_symbol(s->L, s->t, &s->n, id, k);
    } else if (s->t->byte_fallback && add_bytes(s, p + i, k)) {
      continue;
    } else if (s->t->unk != TEXT_NONE) {
      if (!s->t->fuse_unk)
        flush_unknown(s);
      s->unknown += k;
    }
  }
  flush_unknown(s);
}

/* --- merging --- */

/* Takes the symbol after `at` into it. */
static void join_next(text_symbol *s, int32_t at, int32_t id) {
  text_symbol *next = s + s[at].next;
  s[at].id = id;
  s[at].length += next->length;
  s[at].next = next->next;
  next->length = 0;
  s[next->next].prev = at; /* there is always one more, at the end */
}

static uint32_t merge_few(const text_tokenizer *t, text_symbol *s, uint32_t n) {
  const text_merge *found[FEW];
  for (uint32_t i = 0; i + 1 < n; i++)
    found[i] = fll_text_merges_find(&t->merges, s[i].id, s[i + 1].id);
  for (;;) {
    const text_merge *best = NULL;
    uint32_t at = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
      if (found[i] && (!best || found[i]->rank < best->rank))
        best = found[i], at = i;
    if (!best)
      return n;
    s[at].id = best->id;
    s[at].length += s[at + 1].length;
    n--;
    for (uint32_t i = at + 1; i < n; i++) {
      s[i] = s[i + 1];
      found[i] = found[i + 1];
    }
    found[at] = at + 1 < n
                    ? fll_text_merges_find(&t->merges, s[at].id, s[at + 1].id)
                    : NULL;
    if (at > 0)
      found[at - 1] = fll_text_merges_find(&t->merges, s[at - 1].id, s[at].id);
  }
}

/* The queue holds rank << 32 | place, the least first. */
static void push_merge(lua_State *L, text_tokenizer *t, int32_t left,
                       int32_t right) {
  const text_merge *m = fll_text_merges_find(&t->merges, t->symbols[left].id,
                                             t->symbols[right].id);
  if (!m)
    return;
  t->heap = fll_text_grow(L, t->heap, &t->heap_room, (size_t)t->n_heap + 1,
                          sizeof *t->heap);
  int64_t key = (int64_t)m->rank << 32 | left;
  uint32_t i = t->n_heap++;
  for (; i > 0 && t->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
    t->heap[i] = t->heap[(i - 1) / 2];
  t->heap[i] = key;
}

static int64_t pop_merge(text_tokenizer *t) {
  int64_t top = t->heap[0], last = t->heap[--t->n_heap];
  uint32_t i = 0, child;
  while ((child = 2 * i + 1) < t->n_heap) {
    if (child + 1 < t->n_heap && t->heap[child + 1] < t->heap[child])
      child++;
    if (t->heap[child] >= last)
      break;
    t->heap[i] = t->heap[child];
    i = child;
  }
  t->heap[i] = last;
  return top;
}

static void merge_many(lua_State *L, text_tokenizer *t, int32_t n) {
  t->n_heap = 0;
  for (int32_t i = 0; i + 1 < n; i++)
    push_merge(L, t, i, i + 1);
  while (t->n_heap) {
    int64_t top = pop_merge(t);
    int32_t at = (int32_t)top;
    text_symbol *s = t->symbols;
    if (s[at].length == 0 || s[at].next >= n)
      continue;
    /* what has changed since has another rank, or none */
    const text_merge *m =
        fll_text_merges_find(&t->merges, s[at].id, s[s[at].next].id);
    if (!m || m->rank != top >> 32)
      continue;
    join_next(s, at, m->id);
    if (s[at].prev >= 0)
      push_merge(L, t, s[at].prev, at);
    if (t->symbols[at].next < n)
      push_merge(L, t, at, t->symbols[at].next);
  }
}

/* Appends the ids of bytes [from, to) of t->text. */
void fll_text_bpe(lua_State *L, text_tokenizer *t, uint32_t from, uint32_t to) {
  const char *p = t->text.p + from;
  uint32_t length = to - from;
  symbols s = {L, t, 0, 0};
  if (t->ignore_merges) {
    int32_t id =
        fll_text_vocab_find(t->whole_bytes ? &t->raw : &t->vocab, p, length);
    if (id != TEXT_NONE) {
      fll_text_emit(L, t, id, from, to);
      return;
    }
  }
  if (t->whole_bytes)
    add_bytes(&s, p, length);
  else
    add_chars(&s, p, length);
  add_symbol(L, t, &s.n, TEXT_NONE, 0); /* the end */
  uint32_t n = s.n - 1;
  if (n <= FEW)
    n = merge_few(t, t->symbols, n);
  else
    merge_many(L, t, (int32_t)n);
  for (uint32_t i = 0; i < n; i++)
    if (t->symbols[i].length) {
      fll_text_emit(L, t, t->symbols[i].id, from, from + t->symbols[i].length);
      from += t->symbols[i].length;
    }
}

/* --- reading --- */

static int32_t find_in(lua_State *L, const text_tokenizer *t, const char *p,
                       size_t n, int line) {
  int32_t id = fll_text_vocab_find(&t->vocab, p, n);
  if (id == TEXT_NONE)
    fll_error(L, "merge %d: \"%s\" is not in the vocabulary", line,
              lua_pushlstring(L, p, n < 100 ? n : 100));
  return id;
}

static void read_merge(lua_State *L, text_tokenizer *t, const char *a,
                       size_t n_a, const char *b, size_t n_b, int rank) {
  if (n_a == 0 || n_b < t->n_prefix)
    fll_error(L, "merge %d: two tokens are expected", rank + 1);
  int32_t left = find_in(L, t, a, n_a, rank + 1);
  int32_t right = find_in(L, t, b, n_b, rank + 1);
  size_t n = n_a + n_b - t->n_prefix;
  char *whole = fll_scratch(L, n + 1);
  memcpy(whole, a, n_a);
  memcpy(whole + n_a, b + t->n_prefix, n_b - t->n_prefix);
  int32_t id = find_in(L, t, whole, n, rank + 1);
  fll_text_merges_add(L, &t->merges, left, right, rank, id);
  lua_pop(L, 1);
}

/* A list of "left right" or of {left, right}. */
static void read_merges(lua_State *L, text_tokenizer *t, int i) {
  lua_Integer count = (lua_Integer)lua_rawlen(L, i);
  for (lua_Integer k = 1; k <= count; k++) {
    size_t n, m;
    int top = lua_gettop(L);
    if (lua_rawgeti(L, i, k) == LUA_TTABLE) {
      lua_rawgeti(L, -1, 1);
      lua_rawgeti(L, -2, 2);
      const char *a = lua_tolstring(L, -2, &n), *b = lua_tolstring(L, -1, &m);
      if (!a || !b)
        fll_error(L, "merge %d: two tokens are expected", (int)k);
      read_merge(L, t, a, n, b, m, (int)k - 1);
    } else {
      const char *a = lua_tolstring(L, -1, &n);
      const char *space = a ? memchr(a, ' ', n) : NULL;
      if (!space)
        fll_error(L, "merge %d: two tokens are expected", (int)k);
      size_t left = (size_t)(space - a);
      read_merge(L, t, a, left, space + 1, n - left - 1, (int)k - 1);
    }
    lua_settop(L, top);
  }
}

/* Without merges, any two tokens merge whose text together is a token, that of
 * least rank first: `ranks`, by id from 1, or the ids themselves. */
static void derive_merges(lua_State *L, text_tokenizer *t, int ranks) {
  const text_vocab *v = &t->vocab;
  for (int32_t id = 0; id < (int32_t)v->n_ids; id++) {
    size_t n;
    const char *p = fll_text_vocab_get(v, id, &n);
    if (!p || n > 4096 || fll_text_vocab_find(v, p, n) != id)
      continue;
    int32_t rank = id;
    if (ranks && lua_rawgeti(L, ranks, id + 1) != LUA_TNIL)
      rank = (int32_t)lua_tointeger(L, -1);
    else if (ranks)
      rank = TEXT_NONE;
    lua_settop(L, ranks ? ranks : lua_gettop(L));
    for (size_t k = 1; k < n && rank >= 0; k++) {
      int32_t left = fll_text_vocab_find(v, p, k);
      int32_t right =
          left == TEXT_NONE ? left : fll_text_vocab_find(v, p + k, n - k);
      if (right != TEXT_NONE)
        fll_text_merges_add(L, &t->merges, left, right, rank, id);
    }
  }
}

/* What the tokens of a byte-level vocabulary stand for; false: some byte has
 * no token. */
static bool read_bytes(lua_State *L, text_tokenizer *t, bool mapped) {
  for (int32_t id = 0; id < (int32_t)t->vocab.n_ids; id++) {
    size_t n, out = 0;
    const char *p = fll_text_vocab_get(&t->vocab, id, &n);
    if (!p)
      continue;
    char *bytes = fll_scratch(L, n + 1);
    bool fine = true;
    uint32_t k = 1;
    for (size_t i = 0; i < n && fine; i += k) {
      int byte = mapped ? fll_text_char_byte(text_get(p + i, &k))
                        : (unsigned char)p[i];
      fine = byte != TEXT_NONE;
      bytes[out++] = (char)byte;
    }
    if (fine)
      fll_text_vocab_add(L, &t->raw, bytes, out, id);
    lua_pop(L, 1);
  }
  bool all = true;
  for (int b = 0; b < 256; b++) {
    char byte = (char)b;
    t->byte_ids[b] = fll_text_vocab_find(&t->raw, &byte, 1);
    all = all && t->byte_ids[b] != TEXT_NONE;
  }
  return all;
}

static uint32_t read_affix(lua_State *L, int i, const char *name, char *to,
                           size_t room) {
  size_t n = 0;
  lua_getfield(L, i, name);
  const char *s = lua_tolstring(L, -1, &n);
  if (n >= room)
    fll_error(L, "%s has %d bytes, more than %d", name, (int)n, (int)room - 1);
  if (s)
    memcpy(to, s, n);
  lua_pop(L, 1);
  return (uint32_t)n;
}

/* The description of the model at i; the vocabulary is there. */
void fll_text_bpe_read(lua_State *L, text_tokenizer *t, int i) {
  t->n_prefix = read_affix(L, i, "prefix", t->prefix, sizeof t->prefix);
  t->n_suffix = read_affix(L, i, "suffix", t->suffix, sizeof t->suffix);
  lua_getfield(L, i, "bytes");
  const char *bytes = lua_tostring(L, -1);
  if (bytes && t->n_prefix + t->n_suffix == 0)
    t->whole_bytes = read_bytes(L, t, strcmp(bytes, "mapped") == 0);
  if (bytes && !t->whole_bytes && strcmp(bytes, "mapped") != 0)
    fll_error(L, "the ranks lack some of the 256 bytes");
  lua_getfield(L, i, "merges");
  if (lua_istable(L, -1)) {
    read_merges(L, t, lua_gettop(L));
  } else {
    lua_getfield(L, i, "ranks");
    derive_merges(L, t, lua_istable(L, -1) ? lua_gettop(L) : 0);
  }
}
