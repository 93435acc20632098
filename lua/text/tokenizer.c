/* Tokenizers as Lua sees them: core.text.new(description), whose parts the
 * files of this folder read, and an object's methods. Ids count from 0, as
 * they are published; spans of bytes from 1, as string.sub takes them. */
#include "text.h"

#include <stdlib.h>

static text_tokenizer *check_tokenizer(lua_State *L) {
  return fll_checktype(L, 1, FLL_TEXT, sizeof(text_tokenizer));
}

static int collect_tokenizer(lua_State *L) {
  text_tokenizer *t = fll_totype(L, 1, FLL_TEXT, sizeof *t);
  if (t) {
    fll_text_free(t);
    t->magic = 0;
  }
  return 0;
}

/* {token = id}, or a list of tokens, with ids from 0 */
static void read_vocab(lua_State *L, text_tokenizer *t, int i) {
  size_t n;
  lua_Integer count = (lua_Integer)lua_rawlen(L, i);
  for (lua_Integer k = 1; k <= count; k++) {
    lua_rawgeti(L, i, k);
    const char *p = lua_tolstring(L, -1, &n);
    if (!p)
      fll_error(L, "token %d of the vocabulary is no text", (int)k - 1);
    fll_text_vocab_add(L, &t->vocab, p, n,
                       k > TEXT_MAX_ID ? -1 : (int32_t)k - 1);
    lua_pop(L, 1);
  }
  if (count > 0)
    return;
  for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
    int fine;
    lua_Integer id = lua_tointegerx(L, -1, &fine);
    if (lua_type(L, -2) != LUA_TSTRING || !fine || id < 0 || id > TEXT_MAX_ID)
      fll_error(L, "an id of the vocabulary is not a whole number from 0 to %d",
                TEXT_MAX_ID);
    const char *p = lua_tolstring(L, -2, &n);
    fll_text_vocab_add(L, &t->vocab, p, n, (int32_t)id);
  }
}

static bool read_flag(lua_State *L, int i, const char *name) {
  lua_getfield(L, i, name);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

static void read_byte_ids(text_tokenizer *t) {
  char name[8];
  for (int b = 0; b < 256; b++) {
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
    t->byte_ids[b] = fll_text_vocab_find(&t->vocab, name, 6);
  }
}

static void read_model(lua_State *L, text_tokenizer *t, int i) {
  static const char *const kinds[] = {"bpe", "unigram", "wordpiece",
                                      "wordlevel", NULL};
  lua_getfield(L, i, "kind");
  t->model = (text_model)luaL_checkoption(L, -1, NULL, kinds);
  lua_getfield(L, i, "vocab");
  luaL_checktype(L, -1, LUA_TTABLE);
  read_vocab(L, t, lua_gettop(L));
  lua_getfield(L, i, "unk");
  t->unk = TEXT_NONE;
  if (lua_isinteger(L, -1))
    t->unk = (int32_t)lua_tointeger(L, -1);
  t->fuse_unk = read_flag(L, i, "fuse_unk");
  t->byte_fallback = read_flag(L, i, "byte_fallback");
  t->ignore_merges = read_flag(L, i, "ignore_merges");
  t->single = t->bytes_per_error = read_flag(L, i, "sentencepiece");
  read_byte_ids(t);
  if (t->model == TEXT_BPE) {
    fll_text_bpe_read(L, t, i);
  } else if (t->model == TEXT_UNIGRAM) {
    fll_text_unigram_read(L, t, i);
  } else {
    size_t n = 0;
    lua_getfield(L, i, "prefix");
    const char *prefix = luaL_optlstring(L, -1, "", &n);
    if (n >= sizeof t->prefix)
      fll_error(L, "continuing_subword_prefix is too long");
    memcpy(t->prefix, prefix, n);
    t->n_prefix = (uint32_t)n;
    lua_getfield(L, i, "max_chars");
    lua_Integer most = luaL_optinteger(L, -1, 100);
    t->max_chars = most < 0 || most > 100000 ? 100000 : (uint32_t)most;
  }
}

static void read_list(lua_State *L, text_tokenizer *t, const char *name,
                      void read(lua_State *, text_tokenizer *, int)) {
  lua_getfield(L, 1, name);
  lua_Integer n = lua_istable(L, -1) ? (lua_Integer)lua_rawlen(L, -1) : 0;
  for (lua_Integer k = 1; k <= n; k++) {
    lua_rawgeti(L, -1, k);
    luaL_checktype(L, -1, LUA_TTABLE);
    read(L, t, lua_gettop(L));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* Texts that SentencePiece's normalizer leaves as they are. */
static void read_kept(lua_State *L, text_tokenizer *t) {
  size_t n;
  lua_getfield(L, 1, "kept");
  lua_Integer count = lua_istable(L, -1) ? (lua_Integer)lua_rawlen(L, -1) : 0;
  for (lua_Integer k = 1; k <= count; k++) {
    lua_rawgeti(L, -1, k);
    const char *p = luaL_checklstring(L, -1, &n);
    fll_text_trie_add(L, &t->kept, p, n, (int32_t)k);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* new{model =, normalizers =, splitters =, added =}: raises for what is wrong
 */
static int new_tokenizer(lua_State *L) {
  fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  text_tokenizer *t = fll_newobject(L, FLL_TEXT, sizeof *t, 0);
  lua_getfield(L, 1, "model");
  luaL_checktype(L, -1, LUA_TTABLE);
  read_model(L, t, 3);
  lua_settop(L, 2);
  read_list(L, t, "normalizers", fll_text_normalizer_read);
  read_list(L, t, "splitters", fll_text_splitter_read);
  read_kept(L, t);
  read_list(L, t, "added", fll_text_added_read);
  lua_settop(L, 2);
  return 1;
}

/* t:encode(text, spans, no special): a list of ids and, if asked for, a list of
 * first and last bytes in turn */
static int encode(lua_State *L) {
  fll_enter(L);
  text_tokenizer *t = check_tokenizer(L);
  size_t n;
  const char *p = luaL_checklstring(L, 2, &n);
  t->spans = lua_toboolean(L, 3);
  t->no_special = lua_toboolean(L, 4);
  fll_text_encode(L, t, p, n);
  lua_createtable(L, (int)t->ids.n, 0);
  for (uint32_t i = 0; i < t->ids.n; i++) {
    lua_pushinteger(L, t->ids.v[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  if (!t->spans)
    return 1;
  lua_createtable(L, 2 * (int)t->ids.n, 0);
  for (uint32_t i = 0; i < t->ids.n; i++) {
    lua_pushinteger(L, (lua_Integer)t->result.v[i].from + 1);
    lua_rawseti(L, -2, 2 * (lua_Integer)i + 1);
    lua_pushinteger(L, t->result.v[i].to);
    lua_rawseti(L, -2, 2 * (lua_Integer)i + 2);
  }
  return 2;
}

/* t:find(token): its id or nil */
static int find_token(lua_State *L) {
  size_t n;
  text_tokenizer *t = check_tokenizer(L);
  const char *p = luaL_checklstring(L, 2, &n);
  int32_t id = fll_text_vocab_find(&t->vocab, p, n);
  if (id == TEXT_NONE)
    return 0;
  lua_pushinteger(L, id);
  return 1;
}

static int push_token(lua_State *L, const text_vocab *v) {
  size_t n;
  lua_Integer id = luaL_checkinteger(L, 2);
  const char *p = id < 0 || id > TEXT_MAX_ID
                      ? NULL
                      : fll_text_vocab_get(v, (int32_t)id, &n);
  if (!p)
    return 0;
  lua_pushlstring(L, p, n);
  return 1;
}

/* t:token(id): its text or nil */
static int get_token(lua_State *L) {
  return push_token(L, &check_tokenizer(L)->vocab);
}

/* t:bytes(id): the bytes that a token of a byte-level vocabulary stands for */
static int get_bytes(lua_State *L) {
  return push_token(L, &check_tokenizer(L)->raw);
}

/* t:size(): the greatest id plus one, how many tokens there are */
static int get_size(lua_State *L) {
  text_tokenizer *t = check_tokenizer(L);
  lua_pushinteger(L, t->vocab.n_ids);
  lua_pushinteger(L, t->vocab.count);
  return 2;
}

/* t:normalize(text): what the normalizers make of it */
static int normalize(lua_State *L) {
  fll_enter(L);
  text_tokenizer *t = check_tokenizer(L);
  size_t n;
  const char *p = luaL_checklstring(L, 2, &n);
  fll_text_clear(&t->text, 0, false);
  fll_text_append(L, &t->text, p, (uint32_t)n, (text_span){0, 0});
  fll_text_normalize(L, t, &t->text);
  lua_pushlstring(L, t->text.p, t->text.n);
  return 1;
}

/* unmap(text): the bytes that characters of GPT-2's alphabet stand for; nil: it
 * has others */
static int unmap(lua_State *L) {
  size_t n;
  uint32_t k, skip;
  const char *p = luaL_checklstring(L, 1, &n);
  luaL_Buffer b;
  luaL_buffinitsize(L, &b, n);
  for (size_t i = 0; i < n; i += k) {
    k = fll_text_valid((const unsigned char *)p + i, n - i, &skip);
    int byte = k ? fll_text_char_byte(text_get(p + i, &k)) : TEXT_NONE;
    if (byte == TEXT_NONE)
      return 0;
    luaL_addchar(&b, (char)byte);
  }
  luaL_pushresult(&b);
  return 1;
}

/* repair(text, by byte): with U+FFFD for what is not UTF-8; and how many bytes
 * at the end may be the start of a character */
static int repair(lua_State *L) {
  size_t n, tail = 0;
  uint32_t k, skip;
  const char *p = luaL_checklstring(L, 1, &n);
  bool by_byte = lua_toboolean(L, 2);
  luaL_Buffer b;
  luaL_buffinitsize(L, &b, n);
  for (size_t i = 0; i < n; i += k) {
    k = fll_text_valid((const unsigned char *)p + i, n - i, &skip);
    if (k) {
      luaL_addlstring(&b, p + i, k);
      continue;
    }
    unsigned char lead = (unsigned char)p[i];
    if (i + skip == n && lead >= 0xc2 && lead < 0xf5)
      tail = skip;
    k = by_byte ? 1 : skip;
    luaL_addstring(&b, "\xef\xbf\xbd");
  }
  luaL_pushresult(&b);
  lua_pushinteger(L, (lua_Integer)tail);
  return 2;
}

void fll_text_core(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", collect_tokenizer}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"encode", encode},   {"find", find_token}, {"token", get_token},
      {"bytes", get_bytes}, {"size", get_size},   {"normalize", normalize},
      {NULL, NULL}};
  static const luaL_Reg functions[] = {{"new", new_tokenizer},
                                       {"unmap", unmap},
                                       {"repair", repair},
                                       {NULL, NULL}};
  fll_newclass(L, FLL_TEXT, "tokenizer", meta, methods);
  lua_newtable(L);
  fll_register(L, functions);
  fll_text_grammar_core(L);
  lua_setfield(L, -2, "text");
}
