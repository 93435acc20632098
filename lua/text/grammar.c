/* Texts held to a grammar: which tokens may come next. A grammar is a recursive
 * transition network over bytes; its stacks are followed all at once, and sets
 * of stacks become states of an automaton that is made while it is used. A
 * vocabulary is a tree of the tokens' bytes, so one walk over it finds all
 * tokens that a state allows. Lua holds a state as a string: the automaton is a
 * cache, which may be emptied between two calls. */
#include "text.h"

#include <stdlib.h>

#define DEAD        (-1)
#define UNKNOWN     (-2)
#define MOST_SETS   (1u << 15) /* when the cache is emptied */
#define MOST_FRAMES (1u << 20)
#define MOST_WORK   (1u << 14) /* stacks of one state */

/* --- vocabularies --- */

typedef struct token_node {
  uint64_t bits;  /* groups of the bytes of this node and its descendants */
  int32_t token;  /* the first one that ends here, TEXT_NONE: none */
  uint32_t skip;  /* the node behind this one's descendants */
  uint32_t first; /* of their tokens in `order` */
  uint16_t depth;
  uint8_t byte;
} token_node;

typedef struct token_tree {
  uint64_t magic;
  token_node *nodes; /* depth first */
  int32_t *same;     /* by id: another token of the same bytes */
  int32_t *order;    /* ids in the order of the nodes */
  uint32_t n, room, n_ids, n_order, depth;
} token_tree;

typedef struct token_text {
  const char *p;
  size_t n;
  int32_t id;
} token_text;

static int compare_tokens(const void *x, const void *y) {
  const token_text *a = x, *b = y;
  int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
  if (c)
    return c;
  return a->n != b->n ? (a->n < b->n ? -1 : 1)
                      : (a->id > b->id) - (a->id < b->id);
}

static void add_token(lua_State *L, token_tree *t, const token_text *x,
                      const token_text *last, uint32_t *path) {
  size_t k = 0;
  if (last)
    while (k < last->n && k < x->n && last->p[k] == x->p[k])
      k++;
  if (last && k == x->n && k == last->n) { /* the same bytes */
    token_node *e = &t->nodes[path[k - 1]];
    t->same[x->id] = e->token;
    e->token = x->id;
    return;
  }
  t->nodes =
      fll_text_grow(L, t->nodes, &t->room, t->n + x->n, sizeof *t->nodes);
  for (; k < x->n; k++) {
    path[k] = t->n;
    t->nodes[t->n++] = (token_node){
        .token = TEXT_NONE, .depth = (uint16_t)k, .byte = (uint8_t)x->p[k]};
  }
  t->nodes[path[k - 1]].token = x->id;
  if (x->n > t->depth)
    t->depth = (uint32_t)x->n;
}

/* The group of a byte, a bit: letters by four, other printed characters and
 * usual spaces one by one, so that most tokens have few groups. */
static uint64_t group_of(uint8_t b) {
  int n = b >= 'a' && b <= 'z'   ? (b - 'a') / 4
          : b >= 'A' && b <= 'Z' ? 7 + (b - 'A') / 4
          : b >= '0' && b <= '9' ? 14 + (b - '0') / 4
          : b >= 128             ? 17
          : b == '\n'            ? 18
          : b == '\t'            ? 19
          : b == '\r'            ? 20
          : b < 32 || b == 127   ? 21
          : b < '0'              ? 22 + b - 32
          : b < 'A'              ? 38 + b - ':'
          : b < 'a'              ? 45 + b - '['
                                 : 51 + b - '{';
  return (uint64_t)1 << n;
}

/* Where each node's descendants end, from the last node on, and what bytes they
 * have; then the order of the ids. */
static void set_skips(token_tree *t, uint32_t *open) {
  for (uint32_t d = 0; d <= t->depth; d++)
    open[d] = t->n;
  for (uint32_t i = t->n; i-- > 0;) {
    uint32_t d = t->nodes[i].depth, skip = t->n;
    for (uint32_t up = 0; up <= d; up++)
      skip = open[up] < skip ? open[up] : skip;
    t->nodes[i].skip = skip;
    open[d] = i;
    t->nodes[i].bits = group_of(t->nodes[i].byte);
    for (uint32_t k = i + 1; k < skip; k = t->nodes[k].skip)
      t->nodes[i].bits |= t->nodes[k].bits;
  }
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++) {
    t->nodes[i].first = n;
    for (int32_t id = t->nodes[i].token; id != TEXT_NONE; id = t->same[id])
      t->order[n++] = id;
  }
  t->n_order = n;
}

/* vocabulary(list): the bytes of each id, from 0; "": no text may have it */
static int new_vocabulary(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  token_tree *t = fll_newobject(L, FLL_VOCABULARY, sizeof *t, 0);
  lua_Unsigned count = lua_rawlen(L, 1), n = 0;
  if (count > TEXT_MAX_ID)
    fll_error(L, "vocabulary: more than %d tokens", TEXT_MAX_ID);
  token_text *all = fll_scratch(L, (count + 1) * sizeof *all);
  uint32_t none = 0;
  t->same = fll_text_grow(L, NULL, &none, count + 1, sizeof *t->same);
  none = 0;
  t->order = fll_text_grow(L, NULL, &none, count + 1, sizeof *t->order);
  t->n_ids = (uint32_t)count;
  size_t longest = 1;
  for (lua_Unsigned k = 1; k <= count; k++) {
    lua_rawgeti(L, 1, (lua_Integer)k);
    token_text x = {.id = (int32_t)k - 1};
    x.p = lua_tolstring(L, -1, &x.n);
    t->same[k - 1] = TEXT_NONE;
    if (x.p && x.n > UINT16_MAX - 1)
      fll_error(L, "vocabulary: token %d is longer than %d bytes", x.id,
                UINT16_MAX - 1);
    if (x.p && x.n > 0)
      all[n++] = x;
    if (x.p && x.n > longest)
      longest = x.n;
    lua_pop(L, 1); /* the list keeps it */
  }
  qsort(all, n, sizeof *all, compare_tokens);
  uint32_t *path = fll_scratch(L, (longest + 1) * sizeof *path);
  for (lua_Unsigned k = 0; k < n; k++)
    add_token(L, t, &all[k], k ? &all[k - 1] : NULL, path);
  set_skips(t, path);
  lua_settop(L, 2);
  return 1;
}

static int collect_vocabulary(lua_State *L) {
  token_tree *t = fll_totype(L, 1, FLL_VOCABULARY, sizeof *t);
  if (t) {
    free(t->nodes);
    free(t->same);
    free(t->order);
    t->magic = 0;
  }
  return 0;
}

/* --- grammars --- */

enum { EPSILON = -1, CALL = -2 };

typedef struct grammar_edge {
  int32_t a, b; /* bytes a to b; or EPSILON; or CALL and a rule */
  uint32_t to;
} grammar_edge;

/* A stack: the state on its top and the stack below, 0: none. */
typedef struct grammar_frame {
  uint32_t state, parent, seen;
} grammar_frame;

typedef struct text_grammar {
  uint64_t magic;
  uint32_t n_states, n_rules, n_edges;
  uint32_t *first; /* of a state's edges */
  grammar_edge *edges;
  uint32_t *starts;          /* of rules; the first is the grammar's */
  bool *ends, *reads, *leaf; /* states: a rule ends; edges read; none of them */
  uint8_t class_of[256], byte_of[256];
  uint32_t n_classes;
  /* the cache: stacks, sets of them, and what follows a set */
  grammar_frame *frames;
  uint32_t *frame_slots, frame_mask, n_frames, frame_room;
  uint32_t *items, n_items, item_room; /* of all sets; stack 0: the end */
  uint32_t *set_first, n_sets, set_room;
  uint32_t *set_slots, set_mask;
  int32_t *next;
  uint32_t next_room;
  /* on the way */
  uint32_t *work, n_work, work_room, *found, n_found, found_room, epoch;
  bool ended;
} text_grammar;

static void empty_cache(text_grammar *g) {
  g->n_frames = 1; /* 0 is no stack */
  g->n_sets = g->n_items = 0;
  g->epoch = 0;
  if (g->frame_slots)
    memset(g->frame_slots, 0, (g->frame_mask + 1) * sizeof *g->frame_slots);
  if (g->set_slots)
    memset(g->set_slots, 0, (g->set_mask + 1) * sizeof *g->set_slots);
}

static uint32_t mix(uint32_t a, uint32_t b) {
  uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
  return (uint32_t)(h >> 32) ^ (uint32_t)h;
}

static void frames_rehash(lua_State *L, text_grammar *g) {
  uint32_t size = g->frame_slots ? 2 * (g->frame_mask + 1) : 1024, room = 0;
  uint32_t *slots = fll_text_grow(L, NULL, &room, size, sizeof *slots);
  memset(slots, 0, size * sizeof *slots);
  for (uint32_t f = 1; f < g->n_frames; f++) {
    uint32_t i = mix(g->frames[f].state, g->frames[f].parent) & (size - 1);
    while (slots[i])
      i = (i + 1) & (size - 1);
    slots[i] = f;
  }
  free(g->frame_slots);
  g->frame_slots = slots;
  g->frame_mask = size - 1;
}

/* The stack of a state on another stack. */
static uint32_t stack_of(lua_State *L, text_grammar *g, uint32_t state,
                         uint32_t parent) {
  if (!g->frame_slots || 2 * g->n_frames > g->frame_mask)
    frames_rehash(L, g);
  uint32_t i = mix(state, parent) & g->frame_mask;
  for (uint32_t f; (f = g->frame_slots[i]); i = (i + 1) & g->frame_mask)
    if (g->frames[f].state == state && g->frames[f].parent == parent)
      return f;
  g->frames = fll_text_grow(L, g->frames, &g->frame_room, g->n_frames + 1,
                            sizeof *g->frames);
  g->frames[g->n_frames] = (grammar_frame){state, parent, 0};
  g->frame_slots[i] = g->n_frames;
  return g->n_frames++;
}

static void reach(lua_State *L, text_grammar *g, uint32_t state,
                  uint32_t parent) {
  uint32_t f = stack_of(L, g, state, parent);
  if (g->frames[f].seen == g->epoch)
    return;
  if (g->n_work >= MOST_WORK)
    fll_error(L, "grammar: more than %d ways to read a text at once",
              (int)MOST_WORK);
  g->frames[f].seen = g->epoch;
  g->work =
      fll_text_grow(L, g->work, &g->work_room, g->n_work + 1, sizeof *g->work);
  g->work[g->n_work++] = f;
}

/* What follows the stacks of `work` without a byte; those that read one next
 * are found. */
static void close_over(lua_State *L, text_grammar *g) {
  for (uint32_t k = 0; k < g->n_work; k++) {
    uint32_t f = g->work[k], s = g->frames[f].state, p = g->frames[f].parent;
    if (g->ends[s] && p == 0)
      g->ended = true;
    else if (g->ends[s])
      reach(L, g, g->frames[p].state, g->frames[p].parent);
    for (uint32_t e = g->first[s]; e < g->first[s + 1]; e++) {
      grammar_edge x = g->edges[e];
      if (x.a == EPSILON)
        reach(L, g, x.to, p);
      else if (x.a == CALL) /* a call at the end of a rule leaves no trace */
        reach(L, g, g->starts[x.b],
              g->leaf[x.to] ? p : stack_of(L, g, x.to, p));
    }
    if (!g->reads[s])
      continue;
    g->found = fll_text_grow(L, g->found, &g->found_room, g->n_found + 1,
                             sizeof *g->found);
    g->found[g->n_found++] = f;
  }
}

static void begin_set(text_grammar *g) {
  g->epoch++;
  g->n_work = g->n_found = 0;
  g->ended = false;
}

static int compare_numbers(const void *x, const void *y) {
  uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
  return (a > b) - (a < b);
}

static uint32_t hash_set(const uint32_t *v, uint32_t n) {
  uint32_t h = n;
  for (uint32_t k = 0; k < n; k++)
    h = mix(h, v[k]);
  return h;
}

static void sets_rehash(lua_State *L, text_grammar *g) {
  uint32_t size = g->set_slots ? 2 * (g->set_mask + 1) : 256, room = 0;
  uint32_t *slots = fll_text_grow(L, NULL, &room, size, sizeof *slots);
  memset(slots, 0, size * sizeof *slots);
  for (uint32_t s = 0; s < g->n_sets; s++) {
    uint32_t n = g->set_first[s + 1] - g->set_first[s];
    uint32_t i = hash_set(g->items + g->set_first[s], n) & (size - 1);
    while (slots[i])
      i = (i + 1) & (size - 1);
    slots[i] = s + 1;
  }
  free(g->set_slots);
  g->set_slots = slots;
  g->set_mask = size - 1;
}

/* The set of the stacks that were found, DEAD if there are none. */
static int32_t end_set(lua_State *L, text_grammar *g) {
  if (g->ended) {
    g->found = fll_text_grow(L, g->found, &g->found_room, g->n_found + 1,
                             sizeof *g->found);
    g->found[g->n_found++] = 0;
  }
  uint32_t n = g->n_found;
  if (n == 0)
    return DEAD;
  qsort(g->found, n, sizeof *g->found, compare_numbers);
  if (!g->set_slots || 2 * (g->n_sets + 1) > g->set_mask)
    sets_rehash(L, g);
  uint32_t i = hash_set(g->found, n) & g->set_mask;
  for (uint32_t s; (s = g->set_slots[i]); i = (i + 1) & g->set_mask)
    if (g->set_first[s] - g->set_first[s - 1] == n &&
        !memcmp(g->items + g->set_first[s - 1], g->found, n * sizeof *g->found))
      return (int32_t)s - 1;
  uint32_t set = g->n_sets;
  g->set_first = fll_text_grow(L, g->set_first, &g->set_room, set + 2,
                               sizeof *g->set_first);
  g->items = fll_text_grow(L, g->items, &g->item_room, g->n_items + n,
                           sizeof *g->items);
  g->next = fll_text_grow(L, g->next, &g->next_room,
                          (size_t)(set + 1) * g->n_classes, sizeof *g->next);
  memcpy(g->items + g->n_items, g->found, n * sizeof *g->found);
  g->set_first[set] = g->n_items;
  g->n_items += n;
  g->set_first[set + 1] = g->n_items;
  for (uint32_t c = 0; c < g->n_classes; c++)
    g->next[(size_t)set * g->n_classes + c] = UNKNOWN;
  g->set_slots[i] = set + 1;
  g->n_sets = set + 1;
  return (int32_t)set;
}

static int32_t compute_step(lua_State *L, text_grammar *g, int32_t set,
                            uint32_t class) {
  int32_t byte = g->byte_of[class];
  begin_set(g);
  for (uint32_t k = g->set_first[set]; k < g->set_first[set + 1]; k++) {
    uint32_t f = g->items[k];
    if (f == 0)
      continue;
    uint32_t s = g->frames[f].state, p = g->frames[f].parent;
    for (uint32_t e = g->first[s]; e < g->first[s + 1]; e++)
      if (g->edges[e].a >= 0 && byte >= g->edges[e].a && byte <= g->edges[e].b)
        reach(L, g, g->edges[e].to, p);
  }
  close_over(L, g);
  int32_t to = end_set(L, g);
  g->next[(size_t)set * g->n_classes + class] = to;
  return to;
}

static inline int32_t step(lua_State *L, text_grammar *g, int32_t set,
                           uint8_t byte) {
  uint32_t class = g->class_of[byte];
  int32_t to = g->next[(size_t)set * g->n_classes + class];
  return to == UNKNOWN ? compute_step(L, g, set, class) : to;
}

/* --- reading a grammar --- */

static uint32_t read_count(lua_State *L, int i, lua_Integer below,
                           const char *what) {
  int fine;
  lua_Integer n = lua_tointegerx(L, i, &fine);
  if (!fine || n < 0 || n >= below)
    fll_error(L, "grammar: %s out of range", what);
  return (uint32_t)n;
}

static uint32_t *read_list_of(lua_State *L, const char *name, uint32_t *n,
                              uint32_t below) {
  lua_getfield(L, 1, name);
  luaL_checktype(L, -1, LUA_TTABLE);
  *n = (uint32_t)lua_rawlen(L, -1);
  uint32_t *v = fll_scratch(L, (*n + 1) * sizeof *v);
  for (uint32_t k = 0; k < *n; k++) {
    lua_rawgeti(L, -2, (lua_Integer)k + 1);
    v[k] = read_count(L, -1, below, name);
    lua_pop(L, 1);
  }
  return v;
}

/* Bytes that no edge tells apart are one class. */
static void find_classes(text_grammar *g) {
  bool border[257] = {true};
  for (uint32_t e = 0; e < g->n_edges; e++)
    if (g->edges[e].a >= 0)
      border[g->edges[e].a] = border[g->edges[e].b + 1] = true;
  for (int b = 0; b < 256; b++) {
    if (border[b])
      g->byte_of[g->n_classes++] = (uint8_t)b;
    g->class_of[b] = (uint8_t)(g->n_classes - 1);
  }
}

static void *allot(lua_State *L, size_t n, size_t size) {
  uint32_t room = 0;
  void *p = fll_text_grow(L, NULL, &room, n, size);
  memset(p, 0, n * size);
  return p;
}

/* Edges are four numbers each: from, a, b, to. a is a byte, 256: nothing is
 * read, 257: rule b is called. */
static void read_edges(lua_State *L, text_grammar *g) {
  uint32_t n;
  uint32_t *flat = read_list_of(L, "edges", &n, UINT32_MAX);
  g->n_edges = n / 4;
  g->edges = allot(L, g->n_edges + 1, sizeof *g->edges);
  g->first = allot(L, g->n_states + 2, sizeof *g->first);
  for (uint32_t e = 0; e < g->n_edges; e++) {
    const uint32_t *x = flat + 4 * e;
    bool fine = x[0] < g->n_states && x[3] < g->n_states && x[1] <= 257 &&
                (x[1] > 255 || (x[2] <= 255 && x[1] <= x[2])) &&
                (x[1] != 257 || x[2] < g->n_rules);
    if (!fine)
      fll_error(L, "grammar: edge %d out of range", (int)e);
    g->first[x[0] + 2]++;
  }
  for (uint32_t s = 2; s < g->n_states + 2; s++)
    g->first[s] += g->first[s - 1];
  for (uint32_t e = 0; e < g->n_edges; e++) {
    const uint32_t *x = flat + 4 * e;
    int32_t a = x[1] == 256 ? EPSILON : x[1] == 257 ? CALL : (int32_t)x[1];
    g->edges[g->first[x[0] + 1]++] = (grammar_edge){a, (int32_t)x[2], x[3]};
    g->reads[x[0]] |= a >= 0;
  }
}

/* grammar{states = count, starts = states, ends = states, edges = numbers} */
static int new_grammar(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  uint32_t n;
  text_grammar *g = fll_newobject(L, FLL_GRAMMAR, sizeof *g, 0);
  lua_getfield(L, 1, "states");
  g->n_states = read_count(L, -1, 1 << 24, "states");
  uint32_t *starts = read_list_of(L, "starts", &g->n_rules, g->n_states);
  if (g->n_rules == 0)
    fll_error(L, "grammar: no rules");
  g->starts = allot(L, g->n_rules, sizeof *g->starts);
  memcpy(g->starts, starts, g->n_rules * sizeof *g->starts);
  g->ends = allot(L, g->n_states, sizeof *g->ends);
  g->reads = allot(L, g->n_states, sizeof *g->reads);
  g->leaf = allot(L, g->n_states, sizeof *g->leaf);
  uint32_t *ends = read_list_of(L, "ends", &n, g->n_states);
  for (uint32_t k = 0; k < n; k++)
    g->ends[ends[k]] = true;
  read_edges(L, g);
  for (uint32_t s = 0; s < g->n_states; s++)
    g->leaf[s] = g->ends[s] && g->first[s] == g->first[s + 1];
  find_classes(g);
  empty_cache(g);
  lua_settop(L, 2);
  return 1;
}

static int collect_grammar(lua_State *L) {
  text_grammar *g = fll_totype(L, 1, FLL_GRAMMAR, sizeof *g);
  if (!g)
    return 0;
  void *all[] = {g->first, g->edges,  g->starts,      g->ends,  g->reads,
                 g->leaf,  g->frames, g->frame_slots, g->items, g->set_first,
                 g->next,  g->work,   g->set_slots,   g->found};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    free(all[k]);
  g->magic = 0;
  return 0;
}

/* --- states as strings: for each stack its depth and its states, from the top
 * on; the end is a stack without states --- */

static void push_state(lua_State *L, const text_grammar *g, int32_t set) {
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (uint32_t k = g->set_first[set]; k < g->set_first[set + 1]; k++) {
    uint32_t n = 0;
    for (uint32_t f = g->items[k]; f; f = g->frames[f].parent)
      n++;
    luaL_addlstring(&b, (const char *)&n, sizeof n);
    for (uint32_t f = g->items[k]; f; f = g->frames[f].parent)
      luaL_addlstring(&b, (const char *)&g->frames[f].state, sizeof n);
  }
  luaL_pushresult(&b);
}

static uint32_t number_at(lua_State *L, const char *p, size_t at, size_t n) {
  uint32_t x;
  if (at + sizeof x > n)
    fll_error(L, "grammar: no state of this grammar");
  memcpy(&x, p + at, sizeof x);
  return x;
}

/* The set of a state; the cache may be emptied here only. */
static int32_t check_state(lua_State *L, text_grammar *g, int i) {
  size_t n;
  const char *p = luaL_checklstring(L, i, &n);
  if (g->n_sets > MOST_SETS || g->n_frames > MOST_FRAMES ||
      g->epoch > UINT32_MAX / 2)
    empty_cache(g);
  begin_set(g);
  for (size_t at = 0; at < n;) {
    uint32_t depth = number_at(L, p, at, n), f = 0;
    if (depth > n / sizeof depth)
      fll_error(L, "grammar: no state of this grammar");
    for (uint32_t k = depth; k > 0; k--) {
      uint32_t state = number_at(L, p, at + k * sizeof state, n);
      if (state >= g->n_states)
        fll_error(L, "grammar: no state of this grammar");
      f = stack_of(L, g, state, f);
    }
    at += (depth + 1) * sizeof depth;
    if (depth == 0) {
      g->ended = true;
      continue;
    }
    g->found = fll_text_grow(L, g->found, &g->found_room, g->n_found + 1,
                             sizeof *g->found);
    g->found[g->n_found++] = f;
  }
  return end_set(L, g);
}

static text_grammar *check_grammar(lua_State *L) {
  return fll_checktype(L, 1, FLL_GRAMMAR, sizeof(text_grammar));
}

/* g:start(): the state before a text; nil: no text is allowed */
static int grammar_start(lua_State *L) {
  text_grammar *g = check_grammar(L);
  begin_set(g);
  reach(L, g, g->starts[0], 0);
  close_over(L, g);
  int32_t set = end_set(L, g);
  if (set == DEAD)
    return 0;
  push_state(L, g, set);
  return 1;
}

/* g:advance(state, bytes): the state behind them; nil: they are not allowed */
static int grammar_advance(lua_State *L) {
  size_t n;
  text_grammar *g = check_grammar(L);
  int32_t set = check_state(L, g, 2);
  const char *p = luaL_checklstring(L, 3, &n);
  for (size_t k = 0; k < n && set != DEAD; k++)
    set = step(L, g, set, (uint8_t)p[k]);
  if (set == DEAD)
    return 0;
  push_state(L, g, set);
  return 1;
}

/* g:ends(state): whether a text may end here, and whether it must */
static int grammar_ends(lua_State *L) {
  text_grammar *g = check_grammar(L);
  int32_t set = check_state(L, g, 2);
  bool may = set != DEAD && g->items[g->set_first[set]] == 0;
  lua_pushboolean(L, may);
  lua_pushboolean(L, may && g->set_first[set + 1] - g->set_first[set] == 1);
  return 2;
}

/* The groups of bytes that all leave a set as it is, as within strings. */
static uint64_t loops_of(lua_State *L, text_grammar *g, int32_t set) {
  uint64_t bits = ~(uint64_t)0;
  for (int b = 0; b < 256; b++)
    if (step(L, g, set, (uint8_t)b) != set)
      bits &= ~group_of((uint8_t)b);
  return bits;
}

/* Marks the tokens that a set allows with 0; how many. */
static lua_Integer walk(lua_State *L, text_grammar *g, const token_tree *t,
                        int32_t *at, char *out) {
  lua_Integer allowed = 0;
  uint64_t loops = loops_of(L, g, at[0]);
  for (uint32_t i = 0; i < t->n;) {
    const token_node *e = &t->nodes[i];
    if (at[e->depth] == at[0] && !(e->bits & ~loops)) { /* all of them */
      uint32_t end = e->skip < t->n ? t->nodes[e->skip].first : t->n_order;
      for (uint32_t k = e->first; k < end; k++)
        out[t->order[k]] = 0;
      allowed += end - e->first;
      i = e->skip;
      continue;
    }
    int32_t to = step(L, g, at[e->depth], e->byte);
    if (to == DEAD) {
      i = e->skip;
      continue;
    }
    at[e->depth + 1] = to;
    for (int32_t id = e->token; id != TEXT_NONE; id = t->same[id]) {
      out[id] = 0;
      allowed++;
    }
    i++;
  }
  return allowed;
}

/* g:mask(state, vocabulary, size): a byte for each id from 0 to size - 1, 0 if
 * the token may come next, and how many may */
static int grammar_mask(lua_State *L) {
  text_grammar *g = check_grammar(L);
  token_tree *t = fll_checktype(L, 3, FLL_VOCABULARY, sizeof *t);
  lua_Integer size = luaL_checkinteger(L, 4), allowed = 0;
  if (size < t->n_ids)
    fll_error(L, "mask: there are %d tokens", (int)t->n_ids);
  int32_t *at = fll_scratch(L, (t->depth + 2) * sizeof *at);
  char *out = fll_scratch(L, (size_t)size + 1);
  memset(out, 1, (size_t)size);
  at[0] = check_state(L, g, 2);
  if (at[0] != DEAD)
    allowed = walk(L, g, t, at, out);
  lua_pushlstring(L, out, (size_t)size);
  lua_pushinteger(L, allowed);
  return 2;
}

void fll_text_grammar_core(lua_State *L) {
  static const luaL_Reg of_vocabulary[] = {{"__gc", collect_vocabulary},
                                           {NULL, NULL}};
  static const luaL_Reg of_grammar[] = {{"__gc", collect_grammar},
                                        {NULL, NULL}};
  static const luaL_Reg methods[] = {{"start", grammar_start},
                                     {"advance", grammar_advance},
                                     {"ends", grammar_ends},
                                     {"mask", grammar_mask},
                                     {NULL, NULL}};
  static const luaL_Reg functions[] = {
      {"vocabulary", new_vocabulary}, {"grammar", new_grammar}, {NULL, NULL}};
  fll_newtype(L, FLL_VOCABULARY, "vocabulary", of_vocabulary);
  lua_pop(L, 1);
  fll_newtype(L, FLL_GRAMMAR, "grammar", of_grammar);
  lua_newtable(L);
  fll_register(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  fll_register(L, functions);
}
