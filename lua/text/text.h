/* What the files of lua/text/ share: a tokenizer, and the text on its way
 * through it. A section of text (what lies between added tokens) is normalized,
 * split into pieces, and each piece becomes ids by the model. All memory
 * belongs to the tokenizer's userdata, so errors may be raised anywhere. */
#ifndef FLL_TEXT_H
#define FLL_TEXT_H

#include "../fll.h"

#define TEXT_MAX_ID    ((1 << 24) - 1)
#define TEXT_NONE      (-1)
#define TEXT_MAX_BYTES ((size_t)1 << 30) /* of a text */

/* A range of bytes, from 0, `to` excluded. */
typedef struct text_span {
  uint32_t from, to;
} text_span;

/* Text with, if `at` is set, the span of the original that each byte stands
 * for. Without, `base` is where it begins in the original, unchanged. */
typedef struct text_buffer {
  char *p;
  text_span *at;
  uint32_t n, room, at_room, base;
  bool moved; /* `at` counts */
} text_buffer;

typedef struct text_spans {
  text_span *v;
  uint32_t n, room;
} text_spans;

typedef struct text_ids {
  int32_t *v;
  uint32_t n, room;
} text_ids;

/* --- tables.c --- */

/* Strings that ids stand for, and back. */
typedef struct text_vocab {
  char *bytes;
  uint32_t *start, *length; /* by id; length UINT32_MAX: there is no such id */
  int32_t *slots;           /* ids by hash, TEXT_NONE: empty */
  uint32_t n_bytes, room, n_ids, id_room, mask, count;
} text_vocab;

/* Pairs of ids that merge. */
typedef struct text_merge {
  uint32_t left, right; /* left UINT32_MAX: an empty slot */
  int32_t rank, id;
} text_merge;

typedef struct text_merges {
  text_merge *slots;
  uint32_t mask, count;
} text_merges;

/* Strings by their bytes. Node 0 is the root; `value` TEXT_NONE: no end. */
typedef struct text_trie {
  int32_t *value;
  uint64_t *slots; /* (node << 8 | byte) << 32 | child; 0: empty */
  uint32_t n, room, mask;
  uint32_t first[256]; /* children of the root */
} text_trie;

void *fll_text_grow(lua_State *L, void *p, uint32_t *room, size_t need,
                    size_t size);
uint64_t fll_text_hash(const char *p, size_t n);
void fll_text_vocab_add(lua_State *L, text_vocab *v, const char *p, size_t n,
                        int32_t id);
int32_t fll_text_vocab_find(const text_vocab *v, const char *p, size_t n);
const char *fll_text_vocab_get(const text_vocab *v, int32_t id, size_t *n);
void fll_text_vocab_free(text_vocab *v);
void fll_text_merges_add(lua_State *L, text_merges *m, int32_t left,
                         int32_t right, int32_t rank, int32_t id);
const text_merge *fll_text_merges_find(const text_merges *m, int32_t left,
                                       int32_t right);
void fll_text_trie_add(lua_State *L, text_trie *t, const char *p, size_t n,
                       int32_t value);
uint32_t fll_text_trie_next(const text_trie *t, uint32_t node,
                            unsigned char byte);
/* The longest string that p begins with: its value, its length in *n. */
int32_t fll_text_trie_longest(const text_trie *t, const char *p, size_t left,
                              size_t *n);
void fll_text_trie_free(text_trie *t);

/* --- the parts of a tokenizer --- */

typedef enum text_model {
  TEXT_BPE,
  TEXT_UNIGRAM,
  TEXT_WORDPIECE,
  TEXT_WORDLEVEL
} text_model;

typedef struct text_symbol {
  int32_t id, prev, next;
  uint32_t length;
} text_symbol;

/* A piece and what the model made of it: spans count from its first byte. */
typedef struct text_cached {
  uint8_t n_key, n_ids;
  char key[42];
  uint8_t from[14], to[14];
  int32_t ids[14];
} text_cached;

typedef struct text_regex text_regex;

typedef struct text_normalizer {
  int kind;
  text_regex *regex;
  char *text; /* a pattern, or a character map */
  uint32_t n_text;
  char *content;
  uint32_t n_content;
  unsigned flags;
} text_normalizer;

typedef enum text_behavior {
  TEXT_ISOLATED,
  TEXT_REMOVED,
  TEXT_CONTIGUOUS,
  TEXT_MERGED_WITH_PREVIOUS,
  TEXT_MERGED_WITH_NEXT
} text_behavior;

typedef struct text_splitter {
  int kind;
  text_regex *regex;
  char *text;
  uint32_t n_text;
  text_behavior behavior;
  bool invert, prefix, first, split;
} text_splitter;

typedef struct text_added {
  int32_t id;
  bool single_word, left, right, normalized, special;
} text_added;

#define TEXT_STAGES 32

typedef struct text_tokenizer {
  uint64_t magic;
  text_vocab vocab;
  /* the model */
  text_model model;
  int32_t unk; /* its id, or TEXT_NONE */
  bool fuse_unk, byte_fallback, ignore_merges, single, bytes_per_error;
  bool whole_bytes;      /* pieces are bytes of `raw` */
  int32_t byte_ids[256]; /* of the bytes, or of <0xNN> */
  text_vocab raw;        /* what ids of a byte-level vocabulary stand for */
  text_merges merges;
  text_trie trie;
  double *scores, unk_score;
  char prefix[64], suffix[64];
  uint32_t n_prefix, n_suffix, max_chars;
  text_cached *cache;
  /* the rest */
  text_normalizer normalizers[TEXT_STAGES];
  text_splitter splitters[TEXT_STAGES];
  int n_normalizers, n_splitters;
  text_added *added;
  uint32_t n_added, added_room;
  text_trie added_raw, added_normalized;
  text_trie kept;   /* what SentencePiece leaves as it is */
  bool needs_place; /* a splitter asks where a piece begins */
  bool modifies;    /* normalizers or splitters change the text */
  /* on the way */
  bool spans;      /* they are wanted */
  bool no_special; /* special tokens in the text are text */
  text_buffer source, normal, text, other;
  text_spans pieces, more, events, result;
  text_ids ids;
  text_symbol *symbols;
  uint32_t symbol_room;
  int64_t *heap;
  uint32_t n_heap, heap_room;
  void *scratch;
  uint32_t scratch_room;
} text_tokenizer;

/* --- unicode.c --- */

typedef int32_t text_char;
/* The character at p < end, which is UTF-8, and its length. */
static inline text_char text_get(const char *p, uint32_t *length) {
  const unsigned char *s = (const unsigned char *)p;
  if (s[0] < 0x80)
    return *length = 1, s[0];
  if (s[0] < 0xe0)
    return *length = 2, (s[0] & 31) << 6 | (s[1] & 63);
  if (s[0] < 0xf0)
    return *length = 3, (s[0] & 15) << 12 | (s[1] & 63) << 6 | (s[2] & 63);
  return *length = 4,
         (s[0] & 7) << 18 | (s[1] & 63) << 12 | (s[2] & 63) << 6 | (s[3] & 63);
}
uint32_t fll_text_put(char *p, text_char c); /* at most 4 bytes; the length */
/* The length of the character at s, 0: there is none. *skip: the bytes that
 * are replaced by one U+FFFD, the longest start of a character. */
uint32_t fll_text_valid(const unsigned char *s, size_t n, uint32_t *skip);
bool fll_text_is_space(text_char c);
bool fll_text_is_punctuation(text_char c);
bool fll_text_is_numeric(text_char c);
bool fll_text_is_word(text_char c);
text_char
fll_text_byte_char(unsigned char byte); /* GPT-2's character of a byte */
int fll_text_char_byte(text_char c);    /* TEXT_NONE: it is none */

/* --- normalize.c --- */

void fll_text_normalizer_read(lua_State *L, text_tokenizer *t, int i);
void fll_text_normalize(lua_State *L, text_tokenizer *t, text_buffer *b);
void fll_text_normalizer_free(text_normalizer *n);
/* Empties a buffer, whose bytes are to be tracked or not. */
void fll_text_clear(text_buffer *b, uint32_t base, bool moved);
/* Bytes at the end of a buffer that all stand for `at`. */
void fll_text_append(lua_State *L, text_buffer *b, const char *p, uint32_t n,
                     text_span at);
void fll_text_copy(lua_State *L, text_buffer *to, const text_buffer *from,
                   uint32_t first, uint32_t n);
void fll_text_swap(text_buffer *a, text_buffer *b);
/* The span of the original that bytes [from, to) of a buffer stand for. */
text_span fll_text_origin(const text_buffer *b, uint32_t from, uint32_t to);

/* --- split.c, regex.c --- */

void fll_text_splitter_read(lua_State *L, text_tokenizer *t, int i);
void fll_text_split(lua_State *L, text_tokenizer *t);
void fll_text_splitter_free(text_splitter *s);
void fll_text_add_span(lua_State *L, text_spans *s, uint32_t from, uint32_t to);

text_regex *fll_text_regex_new(lua_State *L, const char *pattern, size_t n);
void fll_text_regex_free(text_regex *r);
/* The first match at or after `from`; false: there is none. */
bool fll_text_regex_find(lua_State *L, text_regex *r, const char *p, uint32_t n,
                         uint32_t from, text_span *match);

/* --- models --- */

/* Appends an id and the bytes of t->text that it stands for. */
void fll_text_emit(lua_State *L, text_tokenizer *t, int32_t id, uint32_t from,
                   uint32_t to);
/* These append the ids of [from, to) of t->text. */
void fll_text_bpe(lua_State *L, text_tokenizer *t, uint32_t from, uint32_t to);
void fll_text_unigram(lua_State *L, text_tokenizer *t, uint32_t from,
                      uint32_t to);
void fll_text_wordpiece(lua_State *L, text_tokenizer *t, uint32_t from,
                        uint32_t to);
void fll_text_bpe_read(lua_State *L, text_tokenizer *t, int i);
void fll_text_unigram_read(lua_State *L, text_tokenizer *t, int i);

/* --- encode.c --- */
void fll_text_encode(lua_State *L, text_tokenizer *t, const char *p, size_t n);
void fll_text_added_read(lua_State *L, text_tokenizer *t, int i);
void fll_text_free(text_tokenizer *t);

/* --- grammar.c --- */
void fll_text_grammar_core(lua_State *L); /* adds to the table at the top */

#endif
