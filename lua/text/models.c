/* The models that are not BPE: unigram (the path of the greatest sum of scores,
 * by Viterbi), WordPiece (the longest token first) and whole words. */
#include "text.h"

#include <math.h>
#include <stdlib.h>

/* --- unigram --- */

typedef struct best {
  double score;
  int32_t id;
  uint32_t from; /* UINT32_MAX: not reached */
} best;

static void reach(const text_tokenizer *t, best *to, double score, int32_t id,
                  uint32_t from) {
  if (t->single) /* SentencePiece adds in 32 bits */
    score = (float)score;
  if (to->from == UINT32_MAX || score > to->score)
    *to = (best){score, id, from};
}

static void find_paths(const text_tokenizer *t, const char *p, uint32_t n,
                       best *b) {
  for (uint32_t i = 0; i <= n; i++)
    b[i] = (best){0, TEXT_NONE, UINT32_MAX};
  for (uint32_t i = 0, k; i < n; i += k) {
    bool single = false;
    uint32_t node = 0;
    double till = b[i].score;
    text_get(p + i, &k);
    for (uint32_t j = i; j < n; j++) {
      node = fll_text_trie_next(&t->trie, node, (unsigned char)p[j]);
      if (!node)
        break;
      int32_t id = t->trie.value[node];
      if (id == TEXT_NONE)
        continue;
      reach(t, b + j + 1, till + t->scores[id], id, i);
      single = single || j + 1 == i + k;
    }
    if (!single)
      reach(t, b + i + k, till + t->unk_score, t->unk, i);
  }
}

/* A run of unknown characters: bytes, one unknown token, or, by chance, a
 * token. */
static void emit_unknown(lua_State *L, text_tokenizer *t, uint32_t from,
                         uint32_t to) {
  const char *p = t->text.p;
  int32_t id = t->single ? TEXT_NONE
                         : fll_text_vocab_find(&t->vocab, p + from, to - from);
  bool bytes = t->byte_fallback && id == TEXT_NONE;
  for (uint32_t i = from; i < to && bytes; i++)
    bytes = t->byte_ids[(unsigned char)p[i]] != TEXT_NONE;
  if (bytes)
    for (uint32_t i = from; i < to; i++)
      fll_text_emit(L, t, t->byte_ids[(unsigned char)p[i]], from, to);
  else if (id != TEXT_NONE || t->unk != TEXT_NONE)
    fll_text_emit(L, t, id != TEXT_NONE ? id : t->unk, from, to);
  else
    fll_error(L, "encode: a character is unknown, and the model has no "
                 "unknown token");
}

void fll_text_unigram(lua_State *L, text_tokenizer *t, uint32_t from,
                      uint32_t to) {
  uint32_t n = to - from, count = 0;
  size_t bytes = (n + 1) * (sizeof(best) + sizeof(uint32_t));
  if (bytes > UINT32_MAX)
    fll_error(L, "encode: a piece has %d MB, too much for a unigram model",
              (int)(n >> 20));
  t->scratch = fll_text_grow(L, t->scratch, &t->scratch_room, bytes, 1);
  best *b = t->scratch;
  uint32_t *ends = (uint32_t *)(b + n + 1);
  find_paths(t, t->text.p + from, n, b);
  for (uint32_t at = n; at > 0; at = b[at].from)
    ends[count++] = at;
  uint32_t unknown = 0; /* bytes of a run */
  for (uint32_t at = 0; count > 0;) {
    uint32_t end = ends[--count];
    if (b[end].id == t->unk) {
      unknown += end - at;
    } else {
      if (unknown)
        emit_unknown(L, t, from + at - unknown, from + at);
      unknown = 0;
      fll_text_emit(L, t, b[end].id, from + at, from + end);
    }
    at = end;
    if (count == 0 && unknown)
      emit_unknown(L, t, from + at - unknown, from + at);
  }
}

/* The description of the model at i: `scores` by id from 1, false for what the
 * text cannot match; the vocabulary is there. */
void fll_text_unigram_read(lua_State *L, text_tokenizer *t, int i) {
  double least = INFINITY;
  lua_getfield(L, i, "scores");
  luaL_checktype(L, -1, LUA_TTABLE);
  t->scores = calloc(t->vocab.n_ids + 1, sizeof *t->scores);
  if (!t->scores)
    luaL_error(L, "out of memory: scores");
  for (int32_t id = 0; id < (int32_t)t->vocab.n_ids; id++) {
    size_t n;
    const char *p = fll_text_vocab_get(&t->vocab, id, &n);
    bool matches = lua_rawgeti(L, -1, id + 1) == LUA_TNUMBER;
    t->scores[id] = lua_tonumber(L, -1);
    lua_pop(L, 1);
    if (!p || !matches)
      continue;
    if (isnan(t->scores[id]))
      fll_error(L, "the score of token %d is not a number", (int)id);
    fll_text_trie_add(L, &t->trie, p, n, id);
    least = t->scores[id] < least ? t->scores[id] : least;
  }
  lua_getfield(L, i, "least");
  if (lua_isnumber(L, -1))
    least = lua_tonumber(L, -1);
  t->unk_score = least - 10;
  if (t->trie.n == 0)
    fll_text_trie_add(L, &t->trie, "", 0, TEXT_NONE);
}

/* --- WordPiece and words --- */

static void emit_word(lua_State *L, text_tokenizer *t, uint32_t from,
                      uint32_t to) {
  if (t->unk == TEXT_NONE)
    fll_error(L, "encode: a word is unknown, and the vocabulary lacks the "
                 "unknown token");
  fll_text_emit(L, t, t->unk, from, to);
}

static uint32_t char_before(const char *p, uint32_t at) {
  do
    at--;
  while ((p[at] & 0xc0) == 0x80);
  return at;
}

/* The longest token at bytes [at, to): its id, its end in *end. */
static int32_t longest_token(const text_tokenizer *t, char *word, uint32_t at,
                             uint32_t from, uint32_t to, uint32_t *end) {
  const char *p = t->text.p;
  uint32_t before = at > from ? t->n_prefix : 0;
  memcpy(word, t->prefix, before);
  memcpy(word + before, p + at, to - at);
  for (*end = to; *end > at; *end = char_before(p, *end)) {
    int32_t id = fll_text_vocab_find(&t->vocab, word, before + *end - at);
    if (id != TEXT_NONE)
      return id;
  }
  return TEXT_NONE;
}

void fll_text_wordpiece(lua_State *L, text_tokenizer *t, uint32_t from,
                        uint32_t to) {
  const char *p = t->text.p;
  uint32_t chars = 0, n_ids = t->ids.n, n_result = t->result.n, end;
  if (t->model == TEXT_WORDLEVEL) {
    int32_t id = fll_text_vocab_find(&t->vocab, p + from, to - from);
    if (id != TEXT_NONE)
      fll_text_emit(L, t, id, from, to);
    else
      emit_word(L, t, from, to);
    return;
  }
  for (uint32_t i = from; i < to; i++)
    chars += (p[i] & 0xc0) != 0x80;
  if (chars > t->max_chars) {
    emit_word(L, t, from, to);
    return;
  }
  t->scratch = fll_text_grow(L, t->scratch, &t->scratch_room,
                             to - from + sizeof t->prefix, 1);
  for (uint32_t at = from; at < to; at = end) {
    int32_t id = longest_token(t, t->scratch, at, from, to, &end);
    if (id == TEXT_NONE) {
      t->ids.n = n_ids;
      t->result.n = n_result;
      emit_word(L, t, from, to);
      return;
    }
    fll_text_emit(L, t, id, at, end);
  }
}
