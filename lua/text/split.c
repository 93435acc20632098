/* Splitters: what cuts a normalized section into pieces, t->pieces, which the
 * model sees one by one. Some change the text, too. */
#define _GNU_SOURCE
#include "text.h"

#include <stdlib.h>

enum {
  SPLIT,
  BYTE_LEVEL,
  METASPACE,
  WHITESPACE,
  WHITESPACE_SPLIT,
  PUNCTUATION,
  DIGITS,
  FIXED_LENGTH
};
static const char *const kinds[] = {
    "split",       "bytelevel", "metaspace",   "whitespace", "whitespacesplit",
    "punctuation", "digits",    "fixedlength", NULL};
static const char *const behaviors[] = {"isolated",       "removed",
                                        "contiguous",     "mergedwithprevious",
                                        "mergedwithnext", NULL};

static bool read_flag(lua_State *L, int i, const char *name) {
  lua_getfield(L, i, name);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

/* A description: {kind =, text =, regex =, behavior =, invert =, ...}. */
void fll_text_splitter_read(lua_State *L, text_tokenizer *t, int i) {
  size_t n = 0;
  if (t->n_splitters == TEXT_STAGES)
    fll_error(L, "there are more than %d pre-tokenizers", TEXT_STAGES);
  text_splitter *s = t->splitters + t->n_splitters++;
  lua_getfield(L, i, "kind");
  s->kind = luaL_checkoption(L, -1, NULL, kinds);
  lua_getfield(L, i, "behavior");
  s->behavior = (text_behavior)luaL_checkoption(L, -1, "isolated", behaviors);
  lua_getfield(L, i, "text");
  const char *text = lua_tolstring(L, -1, &n);
  s->text = malloc(n + 1);
  if (!s->text)
    luaL_error(L, "out of memory: a pre-tokenizer");
  if (text)
    memcpy(s->text, text, n);
  s->n_text = (uint32_t)n;
  lua_getfield(L, i, "length");
  if (s->kind == FIXED_LENGTH) {
    lua_Integer length = lua_tointeger(L, -1);
    if (length < 1 || length > INT32_MAX)
      fll_error(L, "FixedLength: length must be at least 1");
    s->n_text = (uint32_t)length;
  }
  lua_pop(L, 4);
  s->invert = read_flag(L, i, "invert");
  s->prefix = read_flag(L, i, "prefix");
  s->first = read_flag(L, i, "first");
  s->split = read_flag(L, i, "split");
  if (read_flag(L, i, "regex"))
    s->regex = fll_text_regex_new(L, s->text, s->n_text);
  t->needs_place |= s->first;
  t->modifies |= s->kind == METASPACE ||
                 (s->kind == BYTE_LEVEL && (s->prefix || !t->whole_bytes));
}

void fll_text_splitter_free(text_splitter *s) {
  free(s->text);
  if (s->regex)
    fll_text_regex_free(s->regex);
}

void fll_text_add_span(lua_State *L, text_spans *s, uint32_t from,
                       uint32_t to) {
  if (s->n == s->room)
    s->v = fll_text_grow(L, s->v, &s->room, (size_t)s->n + 1, sizeof *s->v);
  s->v[s->n++] = (text_span){from, to};
}

/* --- matches: spans of t->events that cover a piece, in turn outside of a
 * match and in one, any of them empty --- */

typedef struct matcher {
  lua_State *L;
  text_tokenizer *t;
  const text_splitter *s;
  uint32_t done; /* events cover the piece up to here */
} matcher;

static void add_match(matcher *m, uint32_t from, uint32_t to) {
  fll_text_add_span(m->L, &m->t->events, m->done, from);
  fll_text_add_span(m->L, &m->t->events, from, to);
  m->done = to;
}

static void match_regex(matcher *m, text_span piece) {
  const text_buffer *b = &m->t->text;
  uint32_t search = 0, n = piece.to - piece.from;
  const char *p = b->p + piece.from;
  int64_t last = -1;
  text_span found;
  while (search <= n &&
         fll_text_regex_find(m->L, m->s->regex, p, n, search, &found)) {
    if (found.from == found.to && found.to == last) {
      uint32_t k = 1;
      if (search < n)
        text_get(p + search, &k);
      search += k;
      continue;
    }
    add_match(m, piece.from + found.from, piece.from + found.to);
    search = found.to;
    last = found.to;
  }
}

static void match_text(matcher *m, text_span piece) {
  const char *p = m->t->text.p, *found;
  while (m->s->n_text && piece.from < piece.to &&
         (found = memmem(p + piece.from, piece.to - piece.from, m->s->text,
                         m->s->n_text))) {
    piece.from = (uint32_t)(found - p) + m->s->n_text;
    add_match(m, (uint32_t)(found - p), piece.from);
  }
}

static bool in_class(const text_splitter *s, text_char c) {
  switch (s->kind) {
  case WHITESPACE_SPLIT:
    return fll_text_is_space(c);
  case PUNCTUATION:
    return fll_text_is_punctuation(c);
  default:
    return fll_text_is_numeric(c);
  }
}

static void match_class(matcher *m, text_span piece) {
  const char *p = m->t->text.p;
  for (uint32_t i = piece.from, k; i < piece.to; i += k)
    if (in_class(m->s, text_get(p + i, &k)))
      add_match(m, i, i + k);
}

/* Runs of \w and runs of what is neither that nor white space. */
static void match_words(matcher *m, text_span piece) {
  const char *p = m->t->text.p;
  uint32_t i = piece.from, k;
  while (i < piece.to) {
    text_char c = text_get(p + i, &k);
    uint32_t first = i;
    bool word = fll_text_is_word(c);
    if (!word && fll_text_is_space(c)) {
      i += k;
      continue;
    }
    for (i += k; i < piece.to; i += k) {
      c = text_get(p + i, &k);
      if (fll_text_is_word(c) != word || (!word && fll_text_is_space(c)))
        break;
    }
    add_match(m, first, i);
  }
}

/* --- pieces from matches --- */

static void add_piece(matcher *m, uint32_t from, uint32_t to) {
  if (from < to)
    fll_text_add_span(m->L, &m->t->more, from, to);
}

static bool is_match(const matcher *m, uint32_t event) {
  return (event & 1) != m->s->invert;
}

static bool is_there(const matcher *m, uint32_t event) {
  const text_span *e = m->t->events.v + event;
  return e->from < e->to || event & 1; /* an empty match is one */
}

/* The events that follow one another in `step`, each joined to the one before
 * it where the behavior says so. */
static void join_events(matcher *m, bool backwards) {
  text_spans *e = &m->t->events, *out = &m->t->more;
  bool previous = false, any = false;
  uint32_t first = out->n;
  for (uint32_t i = 0; i < e->n; i++) {
    uint32_t k = backwards ? e->n - 1 - i : i;
    if (!is_there(m, k))
      continue;
    bool match = is_match(m, k);
    bool join = m->s->behavior == TEXT_CONTIGUOUS ? match == previous
                                                  : match && !previous;
    if (join && any && backwards)
      out->v[out->n - 1].from = e->v[k].from;
    else if (join && any)
      out->v[out->n - 1].to = e->v[k].to;
    else
      fll_text_add_span(m->L, out, e->v[k].from, e->v[k].to);
    any = true;
    previous = match;
  }
  for (uint32_t i = first, j = out->n; backwards && i + 1 < j; i++) {
    text_span swapped = out->v[i];
    out->v[i] = out->v[--j];
    out->v[j] = swapped;
  }
  uint32_t n = first; /* those that are empty go */
  for (uint32_t i = first; i < out->n; i++)
    if (out->v[i].from < out->v[i].to)
      out->v[n++] = out->v[i];
  out->n = n;
}

static void use_events(matcher *m, text_span piece) {
  text_spans *e = &m->t->events;
  fll_text_add_span(m->L, e, m->done, piece.to);
  switch (m->s->behavior) {
  case TEXT_ISOLATED:
    for (uint32_t i = 0; i < e->n; i++)
      add_piece(m, e->v[i].from, e->v[i].to);
    break;
  case TEXT_REMOVED:
    for (uint32_t i = 0; i < e->n; i++)
      if (!is_match(m, i))
        add_piece(m, e->v[i].from, e->v[i].to);
    break;
  default:
    join_events(m, m->s->behavior == TEXT_MERGED_WITH_NEXT);
  }
}

static void cut_pieces(matcher *m, void (*match)(matcher *, text_span)) {
  text_spans *pieces = &m->t->pieces, *more = &m->t->more;
  more->n = 0;
  for (uint32_t i = 0; i < pieces->n; i++) {
    m->t->events.n = 0;
    m->done = pieces->v[i].from;
    match(m, pieces->v[i]);
    use_events(m, pieces->v[i]);
  }
  text_spans swapped = *pieces;
  *pieces = *more;
  *more = swapped;
}

static void cut_lengths(matcher *m) {
  text_spans *pieces = &m->t->pieces, *more = &m->t->more;
  const char *p = m->t->text.p;
  more->n = 0;
  for (uint32_t i = 0; i < pieces->n; i++) {
    uint32_t at = pieces->v[i].from, from = at, n = 0, k;
    for (; at < pieces->v[i].to; at += k) {
      text_get(p + at, &k);
      if (n++ == m->s->n_text) {
        add_piece(m, from, at);
        from = at;
        n = 1;
      }
    }
    add_piece(m, from, at);
  }
  text_spans swapped = *pieces;
  *pieces = *more;
  *more = swapped;
}

/* --- pieces that change --- */

typedef void change_piece(matcher *m, text_span piece);

static void change_pieces(matcher *m, change_piece *change) {
  text_tokenizer *t = m->t;
  fll_text_clear(&t->other, t->text.base, t->text.moved);
  for (uint32_t i = 0; i < t->pieces.n; i++) {
    uint32_t from = t->other.n;
    change(m, t->pieces.v[i]);
    t->pieces.v[i] = (text_span){from, t->other.n};
  }
  fll_text_swap(&t->text, &t->other);
}

static void prefix_space(matcher *m, text_span piece) {
  const text_buffer *b = &m->t->text;
  if (b->p[piece.from] != ' ')
    fll_text_append(m->L, &m->t->other, " ", 1,
                    fll_text_origin(b, piece.from, piece.from + 1));
  fll_text_copy(m->L, &m->t->other, b, piece.from, piece.to - piece.from);
}

static void mark_spaces(matcher *m, text_span piece) {
  const text_splitter *s = m->s;
  const text_buffer *b = &m->t->text;
  text_buffer *to = &m->t->other;
  uint32_t n = piece.to - piece.from;
  bool marked =
      b->p[piece.from] == ' ' ||
      (n >= s->n_text && memcmp(b->p + piece.from, s->text, s->n_text) == 0);
  text_span first = fll_text_origin(b, piece.from, piece.from + 1);
  if (s->prefix && !marked && (!s->first || first.from == 0))
    fll_text_append(m->L, to, s->text, s->n_text, first);
  for (uint32_t i = piece.from, k; i < piece.to; i += k) {
    k = 1;
    if (b->p[i] == ' ') {
      fll_text_append(m->L, to, s->text, s->n_text,
                      fll_text_origin(b, i, i + 1));
      continue;
    }
    while (i + k < piece.to && b->p[i + k] != ' ')
      k++;
    fll_text_copy(m->L, to, b, i, k);
  }
}

static void map_piece(matcher *m, text_span piece) {
  char bytes[4];
  const text_buffer *b = &m->t->text;
  for (uint32_t i = piece.from; i < piece.to; i++) {
    uint32_t n =
        fll_text_put(bytes, fll_text_byte_char((unsigned char)b->p[i]));
    fll_text_append(m->L, &m->t->other, bytes, n, fll_text_origin(b, i, i + 1));
  }
}

static void split_by(matcher *m) {
  switch (m->s->kind) {
  case SPLIT:
    cut_pieces(m, m->s->regex ? match_regex : match_text);
    break;
  case BYTE_LEVEL:
    if (m->s->prefix)
      change_pieces(m, prefix_space);
    if (m->s->regex)
      cut_pieces(m, match_regex);
    if (!m->t->whole_bytes)
      change_pieces(m, map_piece);
    break;
  case METASPACE:
    change_pieces(m, mark_spaces);
    if (m->s->split)
      cut_pieces(m, match_text);
    break;
  case WHITESPACE:
    cut_pieces(m, match_words);
    break;
  case FIXED_LENGTH:
    cut_lengths(m);
    break;
  default:
    cut_pieces(m, match_class);
  }
}

void fll_text_split(lua_State *L, text_tokenizer *t) {
  t->pieces.n = 0;
  if (t->text.n)
    fll_text_add_span(L, &t->pieces, 0, t->text.n);
  for (int i = 0; i < t->n_splitters; i++) {
    matcher m = {L, t, t->splitters + i, 0};
    split_by(&m);
  }
}
