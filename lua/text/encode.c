/* From a text to ids: tokens that were added are cut out of the text as it is
 * and of what is normalized; the sections between them go through normalizers,
 * splitters and the model. */
#include "text.h"

#include <stdlib.h>

#define CACHED (1 << 14) /* pieces; a power of two */

void fll_text_emit(lua_State *L, text_tokenizer *t, int32_t id, uint32_t from,
                   uint32_t to) {
  if (t->ids.n == t->ids.room)
    t->ids.v = fll_text_grow(L, t->ids.v, &t->ids.room, (size_t)t->ids.n + 1,
                             sizeof *t->ids.v);
  t->ids.v[t->ids.n++] = id;
  fll_text_add_span(L, &t->result, from, to);
}

/* --- pieces --- */

static void run_model(lua_State *L, text_tokenizer *t, text_span piece) {
  switch (t->model) {
  case TEXT_BPE:
    fll_text_bpe(L, t, piece.from, piece.to);
    break;
  case TEXT_UNIGRAM:
    fll_text_unigram(L, t, piece.from, piece.to);
    break;
  default:
    fll_text_wordpiece(L, t, piece.from, piece.to);
  }
}

static void keep_piece(text_tokenizer *t, text_cached *c, text_span piece,
                       uint32_t first) {
  uint32_t n = t->ids.n - first;
  if (n > sizeof c->from)
    return;
  c->n_key = (uint8_t)(piece.to - piece.from);
  c->n_ids = (uint8_t)n;
  memcpy(c->key, t->text.p + piece.from, c->n_key);
  for (uint32_t i = 0; i < n; i++) {
    c->ids[i] = t->ids.v[first + i];
    c->from[i] = (uint8_t)(t->result.v[first + i].from - piece.from);
    c->to[i] = (uint8_t)(t->result.v[first + i].to - piece.from);
  }
}

/* Short pieces come again and again: the last one of each hash is kept. */
static void encode_piece(lua_State *L, text_tokenizer *t, text_span piece) {
  const char *p = t->text.p + piece.from;
  uint32_t n = piece.to - piece.from, first = t->ids.n;
  if (!t->cache || n > sizeof t->cache->key) {
    run_model(L, t, piece);
    return;
  }
  text_cached *c = t->cache + (fll_text_hash(p, n) & (CACHED - 1));
  if (c->n_key != n || memcmp(c->key, p, n) != 0) {
    run_model(L, t, piece);
    keep_piece(t, c, piece, first);
    return;
  }
  for (uint32_t i = 0; i < c->n_ids; i++)
    fll_text_emit(L, t, c->ids[i], piece.from + c->from[i],
                  piece.from + c->to[i]);
}

/* --- added tokens --- */

static bool word_before(const text_buffer *b, uint32_t at) {
  uint32_t k;
  if (at == 0)
    return false;
  do
    at--;
  while (at > 0 && (b->p[at] & 0xc0) == 0x80);
  return fll_text_is_word(text_get(b->p + at, &k));
}

static uint32_t spaces_before(const text_buffer *b, uint32_t at) {
  while (at > 0) {
    uint32_t before = at - 1, k;
    while (before > 0 && (b->p[before] & 0xc0) == 0x80)
      before--;
    if (!fll_text_is_space(text_get(b->p + before, &k)))
      break;
    at = before;
  }
  return at;
}

static uint32_t spaces_after(const text_buffer *b, uint32_t at) {
  for (uint32_t k; at < b->n && fll_text_is_space(text_get(b->p + at, &k));
       at += k)
    ;
  return at;
}

/* The next added token in b at or after *at, the leftmost and of these the
 * longest. `done`: the text before is taken. */
static const text_added *find_added(const text_tokenizer *t,
                                    const text_trie *trie, const text_buffer *b,
                                    uint32_t done, text_span *where) {
  if (trie->n == 0)
    return NULL;
  for (uint32_t i = done, k; i < b->n; i++) {
    size_t n = 0;
    if (!trie->first[(unsigned char)b->p[i]])
      continue;
    int32_t found = fll_text_trie_longest(trie, b->p + i, b->n - i, &n);
    if (found == TEXT_NONE)
      continue;
    const text_added *a = t->added + found;
    uint32_t from = i, to = i + (uint32_t)n;
    i = to - 1; /* a match that is refused is passed over whole */
    if (t->no_special && a->special)
      continue;
    if (a->single_word &&
        (word_before(b, from) ||
         (to < b->n && fll_text_is_word(text_get(b->p + to, &k)))))
      continue;
    if (a->left)
      from = spaces_before(b, from);
    if (a->right)
      to = spaces_after(b, to);
    *where = (text_span){from < done ? done : from, to};
    return a;
  }
  return NULL;
}

/* --- sections --- */

/* Makes spans of t->text, from the given one on, spans of the original. */
static void locate(text_tokenizer *t, uint32_t first) {
  if (t->spans)
    for (uint32_t i = first; i < t->result.n; i++)
      t->result.v[i] =
          fll_text_origin(&t->text, t->result.v[i].from, t->result.v[i].to);
}

static void encode_pieces(lua_State *L, text_tokenizer *t) {
  uint32_t first = t->ids.n;
  fll_text_split(L, t);
  for (uint32_t i = 0; i < t->pieces.n; i++)
    encode_piece(L, t, t->pieces.v[i]);
  locate(t, first);
}

static void add_section(lua_State *L, text_tokenizer *t,
                        const text_buffer *from, text_span s) {
  bool moved = from->moved || (t->modifies && (t->spans || t->needs_place));
  fll_text_clear(&t->text, from->base + s.from, moved);
  fll_text_copy(L, &t->text, from, s.from, s.to - s.from);
}

static void emit_added(lua_State *L, text_tokenizer *t, const text_added *a,
                       const text_buffer *b, text_span where) {
  text_span origin = fll_text_origin(b, where.from, where.to);
  fll_text_emit(L, t, a->id, origin.from, origin.to);
}

/* A section of the text as it is. */
static void encode_section(lua_State *L, text_tokenizer *t, text_span s) {
  const text_added *a;
  text_span where;
  uint32_t done = 0;
  if (s.from == s.to)
    return;
  add_section(L, t, &t->source, s);
  fll_text_normalize(L, t, &t->text);
  if (t->added_normalized.n == 0 ||
      !find_added(t, &t->added_normalized, &t->text, 0, &where)) {
    encode_pieces(L, t);
    return;
  }
  fll_text_swap(&t->text, &t->normal);
  while ((a = find_added(t, &t->added_normalized, &t->normal, done, &where))) {
    if (done < where.from) {
      add_section(L, t, &t->normal, (text_span){done, where.from});
      encode_pieces(L, t);
    }
    emit_added(L, t, a, &t->normal, where);
    done = where.to;
  }
  if (done < t->normal.n) {
    add_section(L, t, &t->normal, (text_span){done, t->normal.n});
    encode_pieces(L, t);
  }
}

/* The text with U+FFFD for what is not UTF-8. */
static void read_source(lua_State *L, text_tokenizer *t, const char *p,
                        size_t n) {
  const unsigned char *s = (const unsigned char *)p;
  text_buffer *b = &t->source;
  uint32_t from = 0, skip, k;
  size_t at = 0;
  if (n > TEXT_MAX_BYTES / 4)
    fll_error(L, "encode: the text is longer than 256 MiB: encode parts of it");
  for (; at < n; at += k)
    if (s[at] < 0x80)
      k = 1;
    else if ((k = fll_text_valid(s + at, n - at, &skip)) == 0)
      break;
  fll_text_clear(b, 0, at < n);
  if (at == n) {
    fll_text_append(L, b, p, (uint32_t)n, (text_span){0, 0});
    return;
  }
  for (; from < n; from += k) {
    k = fll_text_valid(s + from, n - from, &skip);
    if (k > 0) {
      fll_text_append(L, b, p + from, k, (text_span){from, from + k});
      continue;
    }
    k = t->bytes_per_error ? 1 : skip;
    fll_text_append(L, b, "\xef\xbf\xbd", 3, (text_span){from, from + k});
  }
}

void fll_text_encode(lua_State *L, text_tokenizer *t, const char *p, size_t n) {
  const text_added *a;
  text_span where;
  uint32_t done = 0;
  t->ids.n = t->result.n = 0;
  read_source(L, t, p, n);
  if (!t->cache) {
    t->cache = calloc(CACHED, sizeof *t->cache);
  }
  while ((a = find_added(t, &t->added_raw, &t->source, done, &where))) {
    encode_section(L, t, (text_span){done, where.from});
    emit_added(L, t, a, &t->source, where);
    done = where.to;
  }
  encode_section(L, t, (text_span){done, t->source.n});
}

/* --- reading --- */

static bool read_flag(lua_State *L, int i, const char *name) {
  lua_getfield(L, i, name);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

/* A description: {content =, id =, normalized =, special =, single_word =,
 * lstrip =, rstrip =, kept = not to be normalized, but found in what is}.
 * Normalizers are there already. */
void fll_text_added_read(lua_State *L, text_tokenizer *t, int i) {
  size_t n;
  lua_getfield(L, i, "content");
  const char *p = lua_tolstring(L, -1, &n);
  lua_getfield(L, i, "id");
  int ok;
  lua_Integer id = lua_tointegerx(L, -1, &ok);
  if (!p || n == 0 || !ok || id < 0 || id > TEXT_MAX_ID)
    fll_error(L, "an added token needs a content and an id");
  t->added = fll_text_grow(L, t->added, &t->added_room, (size_t)t->n_added + 1,
                           sizeof *t->added);
  t->added[t->n_added] =
      (text_added){.id = (int32_t)id,
                   .single_word = read_flag(L, i, "single_word"),
                   .left = read_flag(L, i, "lstrip"),
                   .right = read_flag(L, i, "rstrip"),
                   .normalized = read_flag(L, i, "normalized"),
                   .special = read_flag(L, i, "special")};
  const text_added *a = t->added + t->n_added++;
  int32_t place = (int32_t)t->n_added - 1;
  if (read_flag(L, i, "kept")) {
    fll_text_trie_add(L, &t->added_normalized, p, n, place);
  } else if (a->normalized) {
    fll_text_clear(&t->text, 0, false);
    fll_text_append(L, &t->text, p, (uint32_t)n, (text_span){0, 0});
    fll_text_normalize(L, t, &t->text);
    fll_text_trie_add(L, &t->added_normalized, t->text.p, t->text.n, place);
  } else {
    fll_text_trie_add(L, &t->added_raw, p, n, place);
  }
  lua_pop(L, 2);
}

void fll_text_free(text_tokenizer *t) {
  text_buffer *buffers[] = {&t->source, &t->text, &t->other, &t->normal};
  text_spans *spans[] = {&t->pieces, &t->more, &t->events, &t->result};
  void *rest[] = {t->merges.slots, t->scores,  t->cache, t->added,
                  t->ids.v,        t->symbols, t->heap,  t->scratch};
  for (int i = 0; i < t->n_normalizers; i++)
    fll_text_normalizer_free(t->normalizers + i);
  for (int i = 0; i < t->n_splitters; i++)
    fll_text_splitter_free(t->splitters + i);
  fll_text_vocab_free(&t->vocab);
  fll_text_vocab_free(&t->raw);
  fll_text_trie_free(&t->trie);
  fll_text_trie_free(&t->added_raw);
  fll_text_trie_free(&t->added_normalized);
  fll_text_trie_free(&t->kept);
  for (int i = 0; i < 4; i++) {
    free(buffers[i]->p);
    free(buffers[i]->at);
    free(spans[i]->v);
  }
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
    free(rest[i]);
}
