/* Normalizers: what is done to a section of text before it is split. Each reads
 * t->text and leaves its result there. Which byte of the original a character
 * stands for follows the rules of the library that the files come from: a
 * character that is new stands for the one before it. */
#define _GNU_SOURCE
#include "text.h"

#include <stdlib.h>
#include <utf8proc.h>

enum {
  NFC,
  NFD,
  NFKC,
  NFKD,
  LOWERCASE,
  STRIP_ACCENTS,
  STRIP,
  REPLACE,
  PREPEND,
  NMT,
  PRECOMPILED,
  CLEAN,
  CHINESE,
  STRIP_NONSPACING,
  BYTE_LEVEL,
  SENTENCEPIECE
};
static const char *const kinds[] = {"nfc",         "nfd",
                                    "nfkc",        "nfkd",
                                    "lowercase",   "stripaccents",
                                    "strip",       "replace",
                                    "prepend",     "nmt",
                                    "precompiled", "clean",
                                    "chinese",     "strip_nonspacing",
                                    "bytelevel",   "sentencepiece",
                                    NULL};

/* flags of STRIP, and of SENTENCEPIECE */
enum { LEFT = 1, RIGHT = 2 };
enum { DUMMY = 1, EXTRA = 2, ESCAPE = 4, SUFFIX = 8 };

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 */

static char *read_bytes(lua_State *L, int i, const char *name, uint32_t *n) {
  size_t length = 0;
  lua_getfield(L, i, name);
  const char *s = lua_tolstring(L, -1, &length);
  char *copy = malloc(length + 1);
  if (!copy || length > TEXT_MAX_BYTES) {
    free(copy);
    luaL_error(L, "out of memory: a normalizer");
  }
  if (s)
    memcpy(copy, s, length);
  copy[length] = 0;
  *n = (uint32_t)length;
  lua_pop(L, 1);
  return copy;
}

static unsigned read_flag(lua_State *L, int i, const char *name, unsigned f) {
  lua_getfield(L, i, name);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on ? f : 0;
}

/* A description: {kind =, text =, content =, regex =, ...}. */
void fll_text_normalizer_read(lua_State *L, text_tokenizer *t, int i) {
  if (t->n_normalizers == TEXT_STAGES)
    fll_error(L, "there are more than %d normalizers", TEXT_STAGES);
  text_normalizer *n = t->normalizers + t->n_normalizers++;
  lua_getfield(L, i, "kind");
  n->kind = luaL_checkoption(L, -1, NULL, kinds);
  lua_pop(L, 1);
  n->text = read_bytes(L, i, "text", &n->n_text);
  n->content = read_bytes(L, i, "content", &n->n_content);
  n->flags = read_flag(L, i, "left", LEFT) | read_flag(L, i, "right", RIGHT);
  if (n->kind == SENTENCEPIECE)
    n->flags =
        read_flag(L, i, "dummy", DUMMY) | read_flag(L, i, "extra", EXTRA) |
        read_flag(L, i, "escape", ESCAPE) | read_flag(L, i, "suffix", SUFFIX);
  if (read_flag(L, i, "regex", 1))
    n->regex = fll_text_regex_new(L, n->text, n->n_text);
  t->modifies = true;
}

void fll_text_normalizer_free(text_normalizer *n) {
  free(n->text);
  free(n->content);
  if (n->regex)
    fll_text_regex_free(n->regex);
}

/* --- characters one by one --- */

static bool is_control(text_char c) {
  if (c == '\t' || c == '\n' || c == '\r')
    return false;
  utf8proc_category_t k = utf8proc_category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_CO || k == UTF8PROC_CATEGORY_CS;
}

static bool is_mark(text_char c) {
  utf8proc_category_t k = utf8proc_category(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

static bool is_chinese(text_char c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static text_char nmt_char(text_char c) {
  if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
      c == 0x8f || c == 0x9f)
    return 0;
  return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                 (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
                 c == 0x2581 || c == 0xfeff || c == 0xfffd
             ? ' '
             : c;
}

/* What becomes of a character: up to three, returned: how many. */
static int change_char(int kind, text_char c, text_char *to) {
  *to = c;
  switch (kind) {
  case LOWERCASE:
    *to = utf8proc_tolower(c);
    if (c == 0x130) /* the only one that becomes two */
      return to[0] = 'i', to[1] = 0x307, 2;
    return 1;
  case STRIP_ACCENTS:
    return !is_mark(c);
  case STRIP_NONSPACING:
    return utf8proc_category(c) != UTF8PROC_CATEGORY_MN;
  case NMT:
    *to = nmt_char(c);
    return *to != 0 || c == 0;
  case CLEAN:
    if (c == 0 || c == 0xfffd || is_control(c))
      return 0;
    if (fll_text_is_space(c))
      *to = ' ';
    return 1;
  case CHINESE:
    if (!is_chinese(c))
      return 1;
    to[0] = to[2] = ' ';
    to[1] = c;
    return 3;
  default:
    return 1;
  }
}

static void change_chars(lua_State *L, text_buffer *from, text_buffer *to,
                         int kind) {
  char bytes[16];
  text_char changed[3];
  for (uint32_t i = 0, k; i < from->n; i += k) {
    text_char c = text_get(from->p + i, &k);
    uint32_t n = 0;
    int count = change_char(kind, c, changed);
    for (int j = 0; j < count; j++)
      n += fll_text_put(bytes + n, changed[j]);
    fll_text_append(L, to, bytes, n, fll_text_origin(from, i, i + k));
  }
}

static void map_bytes(lua_State *L, text_buffer *from, text_buffer *to) {
  char bytes[4];
  for (uint32_t i = 0; i < from->n; i++) {
    uint32_t n =
        fll_text_put(bytes, fll_text_byte_char((unsigned char)from->p[i]));
    fll_text_append(L, to, bytes, n, fll_text_origin(from, i, i + 1));
  }
}

static void strip_spaces(lua_State *L, text_buffer *from, text_buffer *to,
                         unsigned flags) {
  uint32_t first = 0, last = from->n, k;
  while (flags & LEFT && first < last &&
         fll_text_is_space(text_get(from->p + first, &k)))
    first += k;
  while (flags & RIGHT && last > first) {
    uint32_t at = last - 1;
    while (at > first && (from->p[at] & 0xc0) == 0x80)
      at--;
    if (!fll_text_is_space(text_get(from->p + at, &k)))
      break;
    last = at;
  }
  fll_text_copy(L, to, from, first, last - first);
}

/* --- replacing --- */

static bool find_next(lua_State *L, const text_normalizer *n,
                      const text_buffer *b, uint32_t from, text_span *match) {
  if (n->regex)
    return fll_text_regex_find(L, n->regex, b->p, b->n, from, match);
  const char *found = n->n_text && from < b->n
                          ? memmem(b->p + from, b->n - from, n->text, n->n_text)
                          : NULL;
  if (!found)
    return false;
  match->from = (uint32_t)(found - b->p);
  match->to = match->from + n->n_text;
  return true;
}

static void replace_matches(lua_State *L, const text_normalizer *n,
                            text_buffer *from, text_buffer *to) {
  uint32_t done = 0, search = 0;
  int64_t last = -1; /* where a match ended: an empty one there is none */
  text_span m;
  while (search <= from->n && find_next(L, n, from, search, &m)) {
    if (m.from == m.to && m.to == last) {
      uint32_t k = 1;
      if (search < from->n)
        text_get(from->p + search, &k);
      search += k;
      continue;
    }
    fll_text_copy(L, to, from, done, m.from - done);
    text_span at = m.to > 0 ? fll_text_origin(from, m.to - 1, m.to)
                            : (text_span){from->base, from->base};
    fll_text_append(L, to, n->content, n->n_content, at);
    done = search = m.to;
    last = m.to;
  }
  fll_text_copy(L, to, from, done, from->n - done);
}

/* --- lists of changes: each character, and whether it is new (1), takes the
 * place of one (0) or of 1 - n of them (n) --- */

typedef struct change {
  text_char c;
  int32_t n;
  int32_t class;
} change;

typedef struct changes {
  lua_State *L;
  text_tokenizer *t;
  uint32_t n;
} changes;

static change *change_at(changes *x, uint32_t i) {
  return (change *)x->t->scratch + i;
}

static void add_change(changes *x, text_char c, int32_t n) {
  x->t->scratch = fll_text_grow(x->L, x->t->scratch, &x->t->scratch_room,
                                (x->n + 1) * sizeof(change), 1);
  *change_at(x, x->n++) = (change){c, n, 0};
}

static uint32_t skip_chars(const text_buffer *b, uint32_t at, int32_t n) {
  for (uint32_t k; n > 0 && at < b->n; n--, at += k)
    text_get(b->p + at, &k);
  return at;
}

/* Carries out changes from the character at *next on, which moves. */
static void apply_changes(changes *x, const text_buffer *from, text_buffer *to,
                          uint32_t *next) {
  char bytes[4];
  for (uint32_t i = 0; i < x->n; i++) {
    change *c = change_at(x, i);
    uint32_t at = *next;
    text_span where = {from->base, from->base};
    if (c->n > 0 && at > 0)
      where = fll_text_origin(from, at - 1, at);
    else if (c->n <= 0 && at < from->n)
      where = fll_text_origin(from, at, at + 1);
    if (c->n <= 0)
      *next = skip_chars(from, at, 1 - c->n);
    fll_text_append(x->L, to, bytes, fll_text_put(bytes, c->c), where);
  }
  x->n = 0;
}

/* --- Unicode's normal forms --- */

/* Characters that the form leaves alone, whatever is before them. */
static bool is_plain(text_char c, int kind) {
  if (c < 0x80)
    return true;
  if (c < 0x300 && kind == NFC)
    return true;
  if (c >= 0x1100 && c <= 0x11ff)
    return kind == NFD || kind == NFKD;
  if (c >= 0xac00 && c <= 0xd7a3)
    return false;
  const utf8proc_property_t *p = utf8proc_get_property(c);
  return p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX &&
         (p->comb_index == UINT16_MAX || kind == NFD || kind == NFKD);
}

static void decompose(changes *x, text_char c, int kind) {
  utf8proc_int32_t out[32];
  int boundary = 0;
  utf8proc_option_t how = UTF8PROC_DECOMPOSE;
  if (kind == NFKC || kind == NFKD)
    how |= UTF8PROC_COMPAT;
  utf8proc_ssize_t n = utf8proc_decompose_char(c, out, 32, how, &boundary);
  if (n < 1 || n > 32)
    n = 1, out[0] = c;
  for (int i = 0; i < n; i++) {
    add_change(x, out[i], i > 0);
    change_at(x, x->n - 1)->class =
        utf8proc_get_property(out[i])->combining_class;
  }
}

/* Marks in the order of their classes, runs of them sorted by insertion. */
static void order_marks(changes *x) {
  for (uint32_t i = 1; i < x->n; i++) {
    change c = *change_at(x, i);
    uint32_t k = i;
    if (c.class == 0)
      continue;
    for (; k > 0 && change_at(x, k - 1)->class > c.class; k--)
      *change_at(x, k) = *change_at(x, k - 1);
    *change_at(x, k) = c;
  }
}

static text_char compose_pair(text_char a, text_char b) {
  utf8proc_int32_t pair[4] = {a, b};
  if (b < 0x300 || (a < 0x80 && !((a | 32) >= 'a' && (a | 32) <= 'z') &&
                    !(a >= '<' && a <= '>')))
    return 0;
  utf8proc_ssize_t n =
      utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  return n == 1 ? pair[0] : 0;
}

static void compose(changes *x) {
  uint32_t n = 0, starter = UINT32_MAX;
  int last = 0; /* class of what follows the starter; 0: nothing does */
  for (uint32_t i = 0; i < x->n; i++) {
    change c = *change_at(x, i);
    if (starter != UINT32_MAX && (last == 0 || last < c.class)) {
      change *s = change_at(x, starter);
      text_char whole = compose_pair(s->c, c.c);
      if (whole) {
        s->c = whole;
        s->n += c.n - 1;
        continue;
      }
    }
    last = c.class;
    if (c.class == 0)
      starter = n;
    *change_at(x, n++) = c;
  }
  x->n = n;
}

static void normal_form(lua_State *L, text_tokenizer *t, text_buffer *from,
                        text_buffer *to, int kind) {
  changes x = {L, t, 0};
  uint32_t i = 0, k;
  while (i < from->n) {
    uint32_t first = i, last = i; /* last: the character before i */
    while (i < from->n && is_plain(text_get(from->p + i, &k), kind))
      last = i, i += k;
    if (i == from->n)
      last = i; /* nothing follows that could join the last one */
    fll_text_copy(L, to, from, first, last - first);
    uint32_t next = last;
    for (i = last; i < from->n; i += k) {
      text_char c = text_get(from->p + i, &k);
      if (i > last && is_plain(c, kind))
        break;
      decompose(&x, c, kind);
    }
    order_marks(&x);
    if (kind == NFC || kind == NFKC)
      compose(&x);
    apply_changes(&x, from, to, &next);
  }
}

/* --- character maps: a double array, then the replacements --- */

static uint32_t map_unit(const text_normalizer *n, uint32_t i) {
  uint32_t unit = 0, size = 0;
  memcpy(&size, n->text, 4);
  if (i < size / 4)
    memcpy(&unit, n->text + 4 + 4 * (size_t)i, 4);
  return unit;
}

static uint32_t unit_offset(uint32_t unit) {
  return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* The replacement of a start of s, NULL: there is none; of the shortest or the
 * longest one, whose length is in *used. */
static const char *map_find(const text_normalizer *n, const char *s,
                            uint32_t left, bool longest, uint32_t *used) {
  uint32_t size = 0, node = 0;
  const char *found = NULL;
  if (n->n_text < 8)
    return NULL;
  memcpy(&size, n->text, 4);
  if (size > n->n_text - 4)
    return NULL;
  node = unit_offset(map_unit(n, 0));
  for (uint32_t i = 0; i < left && s[i]; i++) {
    node ^= (unsigned char)s[i];
    uint32_t unit = map_unit(n, node);
    if ((unit & (1u << 31 | 0xff)) != (unsigned char)s[i])
      break;
    node ^= unit_offset(unit);
    if (unit >> 8 & 1) {
      uint64_t at = 4 + (uint64_t)size + (map_unit(n, node) & 0x7fffffff);
      found = at <= n->n_text ? n->text + at : NULL;
      *used = i + 1;
      if (!longest)
        break;
    }
  }
  return found;
}

static uint32_t count_chars(const char *s, uint32_t n) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n; i++)
    count += (s[i] & 0xc0) != 0x80;
  return count;
}

/* One replacement of `old` characters; may change the entry before it. */
static void add_replacement(changes *x, const char *to, int32_t old) {
  uint32_t n = 0, skip, size = (uint32_t)strlen(to);
  for (uint32_t i = 0, k; i < size; i += k, n++) {
    k = fll_text_valid((const unsigned char *)to + i, size - i, &skip);
    if (k == 0)
      add_change(x, 0xfffd, 0), k = skip;
    else
      add_change(x, text_get(to + i, &k), 0);
  }
  int32_t diff = (int32_t)n - old;
  for (uint32_t i = 0; diff > 0 && i < (uint32_t)diff && i < n; i++)
    change_at(x, x->n - 1 - i)->n = 1;
  if (diff < 0 && x->n > 0)
    change_at(x, x->n - 1)->n += diff;
}

static uint32_t grapheme_end(const text_buffer *b, uint32_t at) {
  uint32_t k;
  utf8proc_int32_t state = 0;
  text_char c = text_get(b->p + at, &k);
  for (at += k; at < b->n; at += k) {
    text_char next = text_get(b->p + at, &k);
    if (utf8proc_grapheme_break_stateful(c, next, &state))
      break;
    c = next;
  }
  return at;
}

static void map_chars(lua_State *L, text_tokenizer *t, const text_normalizer *n,
                      text_buffer *from, text_buffer *to) {
  changes x = {L, t, 0};
  uint32_t next = 0, k, used;
  for (uint32_t i = 0, end; i < from->n; i = end) {
    end = grapheme_end(from, i);
    const char *whole =
        end - i < 6 ? map_find(n, from->p + i, end - i, false, &used) : NULL;
    if (whole) {
      add_replacement(&x, whole, (int32_t)count_chars(from->p + i, end - i));
      continue;
    }
    for (; i < end; i += k) {
      text_char c = text_get(from->p + i, &k);
      const char *one = map_find(n, from->p + i, k, false, &used);
      if (one)
        add_replacement(&x, one, 1);
      else
        add_change(&x, c, 0);
    }
  }
  apply_changes(&x, from, to, &next);
}

/* --- SentencePiece's own: a character map by longest match, then spaces --- */

/* The next piece of the input: its replacement and length in *n, and how much
 * of the input it stands for. */
static uint32_t piece_next(text_tokenizer *t, const text_normalizer *m,
                           const text_buffer *b, uint32_t i, const char **p,
                           uint32_t *n) {
  size_t whole = 0;
  uint32_t used = 0;
  if (fll_text_trie_longest(&t->kept, b->p + i, b->n - i, &whole) !=
      TEXT_NONE) {
    *p = b->p + i;
    return *n = (uint32_t)whole;
  }
  *p = map_find(m, b->p + i, b->n - i, true, &used);
  if (*p) {
    *n = (uint32_t)strlen(*p);
    return used;
  }
  text_get(b->p + i, n);
  *p = b->p + i;
  return *n;
}

static void add_spaced(lua_State *L, text_buffer *to, const char *p, uint32_t n,
                       text_span at, unsigned flags) {
  for (uint32_t i = 0; i < n; i++)
    if (p[i] == ' ' && flags & ESCAPE)
      fll_text_append(L, to, space_mark, 3, at);
    else
      fll_text_append(L, to, p + i, 1, at);
}

static void sentencepiece(lua_State *L, text_tokenizer *t,
                          const text_normalizer *m, text_buffer *from,
                          text_buffer *to) {
  const char *p;
  uint32_t i = 0, n, used;
  bool extra = m->flags & EXTRA, after_space = extra;
  if (extra)
    for (; i < from->n; i += used) {
      used = piece_next(t, m, from, i, &p, &n);
      if (n != 1 || *p != ' ')
        break;
    }
  if (i == from->n)
    return;
  text_span at = fll_text_origin(from, i, i + 1);
  if (m->flags & DUMMY && !(m->flags & SUFFIX))
    add_spaced(L, to, " ", 1, (text_span){at.from, at.from}, m->flags);
  for (; i < from->n; i += used) {
    used = piece_next(t, m, from, i, &p, &n);
    at = fll_text_origin(from, i, i + used);
    while (after_space && n > 0 && *p == ' ')
      p++, n--;
    if (n > 0) {
      add_spaced(L, to, p, n, at, m->flags);
      after_space = extra && p[n - 1] == ' ';
    }
  }
  n = m->flags & ESCAPE ? 3 : 1;
  while (extra && to->n >= n &&
         memcmp(to->p + to->n - n, n == 3 ? space_mark : " ", n) == 0)
    to->n -= n;
  if (m->flags & DUMMY && m->flags & SUFFIX)
    add_spaced(L, to, " ", 1, (text_span){at.to, at.to}, m->flags);
}

void fll_text_normalize(lua_State *L, text_tokenizer *t, text_buffer *b) {
  for (int i = 0; i < t->n_normalizers && b->n > 0; i++) {
    const text_normalizer *n = t->normalizers + i;
    text_buffer *to = &t->other;
    fll_text_clear(to, b->base, b->moved);
    switch (n->kind) {
    case NFC:
    case NFD:
    case NFKC:
    case NFKD:
      normal_form(L, t, b, to, n->kind);
      break;
    case STRIP:
      strip_spaces(L, b, to, n->flags);
      break;
    case REPLACE:
      replace_matches(L, n, b, to);
      break;
    case PREPEND:
      fll_text_append(L, to, n->content, n->n_content,
                      fll_text_origin(b, 0, 1));
      fll_text_copy(L, to, b, 0, b->n);
      break;
    case PRECOMPILED:
      map_chars(L, t, n, b, to);
      break;
    case BYTE_LEVEL:
      map_bytes(L, b, to);
      break;
    case SENTENCEPIECE:
      sentencepiece(L, t, n, b, to);
      break;
    default:
      change_chars(L, b, to, n->kind);
    }
    fll_text_swap(b, to);
  }
}
