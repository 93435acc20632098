/* What the files of lua/ share: the state behind a runtime in a lua_State, the
 * handle of a tensor, and the helpers every binding uses.
 *
 * Every C function of ours is a closure whose upvalue 1 is the state, 2 the
 * metatable of tensors, 3 what is its own (an operator, a table). A binding
 * checks its arguments, pushes the result's handle, calls the runtime once and
 * fills the handle: nothing that a Lua error could skip is ever owned by a C
 * local. */
#ifndef FLL_H
#define FLL_H

#include "flarelua.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define FLL_LIKELY(x) __builtin_expect(!!(x), 1)

/* --- registry --- */

enum {
  FLL_STATE,  /* the fl_lua */
  FLL_TENSOR, /* metatables */
  FLL_SHAPE,
  FLL_GENERATOR,
  FLL_GUARD,
  FLL_GRADS,
  FLL_HOOK,
  FLL_BOX,
  FLL_CHANNEL,
  FLL_WORKER,
  FLL_MAP,
  FLL_FILE,
  FLL_ARRAY,
  FLL_KERNEL,
  FLL_RAW,
  FLL_RAW_PLAN,
  FLL_PROFILE,
  FLL_STREAM,
  FLL_EVENT,
  FLL_CAPSULE,
  FLL_BOARD,
  FLL_COMPILED,
  FLL_WINDOW,
  FLL_LAUNCHES,
  FLL_TEXT,
  FLL_HTTP,
  FLL_ZMQ,
  FLL_MONITOR,
  FLL_MEMORY, /* what a tensor's memory held */
  FLL_VOCABULARY,
  FLL_GRAMMAR,
  FLL_TYPES,     /* how many metatables, too */
  FLL_METHODS,   /* of tensors */
  FLL_FUNCTIONS, /* weak: key of the tape -> table that holds the function */
  FLL_ERROR,     /* an error value on its way through the runtime */
  FLL_OPERANDS,  /* the last message, and where its operands were made */
  FLL_PASS,      /* gradients that Lua functions gave in a recorded pass */
  FLL_SCOPES,    /* handles made in each open scope */
  FLL_KEEPERS,   /* weak: objects whose tensors outlive scopes -> their age */
  FLL_LIBRARY,   /* weak: the tables of the library's modules */
  FLL_READY,     /* on_ready's function, called when a gradient is ready */
  FLL_LENT,      /* weak: functions that give what was lent */
  FLL_COROUTINE, /* the one that called last */
  FLL_GLOBALS,   /* what the library's files see of Lua's globals */
  FLL_KEYS
};
extern const char fll_keys[FLL_KEYS];

static inline int fll_getkey(lua_State *L, int key) {
  return lua_rawgetp(L, LUA_REGISTRYINDEX, &fll_keys[key]);
}

static inline void fll_setkey(lua_State *L, int key) {
  lua_rawsetp(L, LUA_REGISTRYINDEX, &fll_keys[key]);
}

/* --- handles --- */

/* The high words are no user-space pointers and no sane numbers, so that a
 * foreign userdata of this size is never taken for a handle. */
#define FLL_OPEN   0xf1a7e0a1u
#define FLL_CLOSED 0xf1c00000u /* plus FLL_BY: the call site that closed it */
#define FLL_BY     0x000fffffu

enum {
  FLL_H_GRAPH = 1,  /* user value: the graph's table of functions */
  FLL_H_PARENT = 2, /* user value: the handle that this is a view of */
  FLL_H_OWN = 4     /* user value: a table of its own, see graph.c */
};

enum { FLL_KEPT = 1, FLL_BY_SCOPE = 2, FLL_SPARE = 4, FLL_ALIAS = 8 };

typedef struct fll_tensor {
  fl_tensor *t; /* NULL: closed, or not filled in yet */
  uint8_t flags;
  uint8_t fate;  /* FLL_KEPT: scopes leave it open; who has closed it */
  uint16_t turn; /* of its birth, in steps of the collector */
  uint32_t magic;
} fll_tensor;

/* --- operators as Lua sees them --- */

#define FLL_FEW 6 /* inputs of the short way to call one */

typedef struct fll_op {
  fl_lua *st;
  const fl_op *op;
  const fl_op_info *info;
  uint8_t n_pos;              /* what can be given by position ... */
  uint8_t pos[FL_MAX_PARAMS]; /* ... in this order */
  int8_t variadic;            /* parameter, or -1 */
  uint8_t n_ret;              /* results that scripts get */
  uint8_t simple;             /* inputs, if nothing else must be given; or 0 */
  uint8_t n_in;               /* all inputs, the variadic one aside */
  bool views;                 /* a result may share memory with input 1 */
  char inplace_name[28];      /* "add_" */
} fll_op;

/* --- the state --- */

typedef struct fll_heap fll_heap;

#define FLL_SITES 1024

typedef struct fll_site {
  uint64_t key; /* program counter and epoch */
  uint32_t instruction;
  fl_site site;
} fll_site;

/* Modes that guards set: see modes.c. */
enum {
  FLL_GRAD_MODE = 1,
  FLL_META_MODE = 2,
  FLL_ANOMALY_MODE = 4,
  FLL_AUTOCAST_MODE = 8,
  FLL_DEVICE_MODE = 16,
  FLL_ALL_MODES = 31
};

typedef struct fll_modes {
  bool grad, anomaly;
  bool meta, runtime_meta; /* they differ while a kernel is recorded */
  fl_dtype autocast;
  fl_device device;
  fl_site grad_site; /* where recording was turned off */
} fll_modes;

/* Modes that hold in the coroutine `co` and in those that it resumes. */
typedef struct fll_frame {
  struct fll_frame *outer, *inner; /* older, newer */
  lua_State *co;
  unsigned which;
  bool alone; /* a callback's: there was no other */
  fll_modes modes;
} fll_frame;

/* Faults to order for the file functions. */
typedef struct fll_file_fault {
  int64_t skip, count; /* count 0: none */
  int64_t asked;
  int error; /* errno */
} fll_file_fault;

struct fl_lua {
  fl_runtime *rt; /* NULL: closed */
  lua_State *L;   /* the thread that entered last */
  lua_State *main;
  bool owns_state;
  bool closing;            /* as soon as the runtime is at rest */
  bool closing_state;      /* and the state as soon as Lua is */
  int entries;             /* calls of the host that run */
  fll_heap *heap;          /* of a state that is ours */
  const char *row, *known; /* a row that runs by another name, for messages */
  atomic_bool interrupted;
  fl_runtime_options host; /* what the host asked for */
  /* the collector, gc.c */
  int fresh;                 /* handles to make until the next step */
  int asks;                  /* calls until the host is asked whether to stop */
  size_t soft, last, futile; /* futile: what a full one could not free */
  uint64_t steps, fulls;
  int kilobytes;  /* of Lua's own that the last full one left */
  int young;      /* handles made since the last step and not dropped */
  uint16_t turn;  /* the last bits of steps */
  bool transient; /* the last step left no young one, and the CPU had them */
  bool generational, reclaiming, collecting;
  int rests; /* steps that wait for the end of a compiled function, or 0 */
  /* modes */
  lua_State *modes_of; /* whose are in the runtime; NULL: they have changed */
  fll_frame *frames;   /* newest first */
  fll_modes base;      /* without frames */
  int callbacks;       /* Lua code inside a call of the runtime */
  fl_device device;
  bool meta, anomaly;
  int scopes;
  lua_Integer keepers;             /* how many there have been */
  bool warned_cycle, warned_guard; /* cycles of gradients; guards not held */
  unsigned reaches;                /* calls of fll_reach_begin */
  int64_t to_visit;                /* values left to fll_reach */
  int64_t next_key;
  bool error; /* FLL_ERROR holds one */
  /* operators */
  fll_op *ops;
  int n_ops;
  const fl_op *select, *narrow, *assign, *index_select, *masked_select,
      *index_copy, *masked_scatter, *masked_fill, *nonzero, *reshape, *expand,
      *view, *unsqueeze, *permute, *mul, *add, *full, *copy;
  /* call sites, site.c */
  bool result_counts; /* fll_discards works with this Lua */
  bool site_cache;
  uint64_t epoch; /* in the high bits of keys */
  fll_site sites[FLL_SITES];
  char library[128]; /* files that start so are the library's own */
  /* for the host, state.c */
  char *traceback;
  pthread_t owner;             /* the thread that opened it */
  struct fll_lending *lending; /* tensors in shared memory, parcel.c */
  struct fll_worker *workers;  /* threads not joined, thread.c */
  fll_file_fault fault;
};

/* state.c */
fl_lua *fll_open(lua_State *L, const fl_lua_options *o);
void fll_shut(fl_lua *st);
/* The same, at once or when neither a call of the runtime nor a finalizer is
 * under way: its callers use what would be freed. */
void fll_shut_soon(fl_lua *st);
void fll_find_library(lua_State *L, fl_lua *st);
fl_lua *fll_state_of(lua_State *L); /* raises if there is none */
/* Closures, fields of the table at the top; upvalues: state, metatable, nil */
void fll_register(lua_State *L, const luaL_Reg *reg);
void fll_pushfunction(lua_State *L, lua_CFunction f);
/* A metatable in its registry slot and on the stack; scripts cannot get it. */
void fll_newtype(lua_State *L, int key, const char *name, const luaL_Reg *reg);
/* The same with methods; leaves nothing on the stack. */
void fll_newclass(lua_State *L, int key, const char *name, const luaL_Reg *reg,
                  const luaL_Reg *methods);
/* A userdata of zeros of the type `key`, whose first member is a magic word: a
 * metatable alone, which Lua can swap, does not make it of the type. */
void *fll_newobject(lua_State *L, int key, size_t size, int values);
/* The userdata at `i` if it is of that type, else NULL (raises: check). */
void *fll_totype(lua_State *L, int i, int key, size_t size);
void *fll_checktype(lua_State *L, int i, int key, size_t size);
const char *fll_typename(lua_State *L, int i);
/* Scratch memory: a userdata at the top of the stack. */
void *fll_scratch(lua_State *L, size_t bytes);

/* Something that C owns until it is done or an error has passed: memory that
 * grows, or whatever `free` frees. Pushed, freed by the collector at the
 * latest. */
typedef struct fll_box {
  uint64_t magic;
  char *p;
  size_t n, room;
  void (*release)(void *);
} fll_box;
fll_box *fll_newbox(lua_State *L, void (*release)(void *));
void fll_emptybox(fll_box *b);
char *fll_boxroom(lua_State *L, fll_box *b, size_t more); /* at the end */
void fll_boxadd(lua_State *L, fll_box *b, const void *p, size_t n);
int fll_source(lua_State *L); /* a function for Lua */
/* Lua's libraries; preload has flare.core and, if wanted, the library's files
 * that are inside. */
void fll_openlibs(lua_State *L, bool embedded);

/* heap.c */
fll_heap *fll_heap_open(lua_State *L); /* NULL is fine */
void fll_heap_close(fll_heap *h);      /* when L is closed */

/* gc.c */
void fll_collect(lua_State *L, fl_lua *st);
bool fll_collector_rests(lua_State *L, fl_lua *st);
void fll_collector_resumes(lua_State *L, fl_lua *st, bool step);
void fll_collect_pass(lua_State *L, fl_lua *st);
bool fll_reclaim(void *context, fl_device device, size_t bytes);
void fll_gc_open(lua_State *L, fl_lua *st, bool tune);
void fll_gc_core(lua_State *L);

/* site.c */
/* Whether the function at a level (0: the running one) is called as a
 * statement, so that its results are lost; false if this Lua does not tell. */
bool fll_discards(lua_State *L, const fl_lua *st, int level);
/* Stands in the cache in place of a site: the line is the library's. */
#define FLL_IN_LIBRARY UINT32_MAX
/* The innermost user's line from that level on, else the library's. */
fl_site fll_site_from(lua_State *L, fl_lua *st, int level);
bool fll_is_library(const fl_lua *st, const char *source);
void fll_site_open(lua_State *L, fl_lua *st);

/* module.c */
/* Is a frame a call of a module, its first local? Of a framed function? */
bool fll_is_module_call(lua_State *L, lua_Debug *ar);
bool fll_is_framed(lua_State *L, lua_Debug *ar);
void fll_module_core(lua_State *L);

/* error.c */
int fll_error(lua_State *L, const char *format, ...) __attribute__((noreturn));
/* Raises the message that a failed call of the runtime left. */
int fll_raise(lua_State *L, fl_lua *st, fl_status s) __attribute__((noreturn));
void fll_checklist(lua_State *L, int i, const char *where, const char *param);
int fll_argerror(lua_State *L, const char *where, const char *param,
                 const char *wanted, int i) __attribute__((noreturn));
/* The name among n that is nearest, NULL if none is near. */
const char *fll_nearest(const char *name, int n,
                        const char *(*at)(const void *, int), const void *list);
const char *fll_selfhint(lua_State *L); /* where `self` is a tensor */
int fll_failed(lua_State *L, const char *format, ...); /* nil, message */
const char *fll_hint_of(const char *text);             /* NULL: none is known */
int fll_messageh(lua_State *L); /* adds hints and a traceback */
bool fll_is_part(lua_State *L); /* the top is a table of the library */
const char *fll_name_at(const void *list, int i);
void fll_error_core(lua_State *L), fll_hint_core(lua_State *L);
void fll_missing_core(lua_State *L), fll_profile_core(lua_State *L);

static inline void fll_check(lua_State *L, fl_lua *st, fl_status s) {
  if (!FLL_LIKELY(s == FL_OK))
    fll_raise(L, st, s);
}

/* graph.c */
/* Results at stack indices [result, result + n) get what their inputs' handles
 * (the arguments at 1..top whose handles have flags) carry. */
void fll_inherit(lua_State *L, fl_lua *st, int result, int n, int top);
void fll_inherit_from(lua_State *L, fl_lua *st, int result, int from);
void fll_set_parent(lua_State *L, int view, int parent);
/* The table for functions on the graph of the handle at i, made if need be. */
void fll_graph_table(lua_State *L, fl_lua *st, int i);
void fll_join_graph(lua_State *L, int i, int table);
void fll_common_graph(lua_State *L, int args, int n);
void fll_own_table(lua_State *L, int i);      /* for the hooks of a leaf */
bool fll_function(lua_State *L, int64_t key); /* pushes holder and function */
int64_t fll_hold(lua_State *L, fl_lua *st, int table); /* pops a function */
void fll_forget(void *context, int64_t key);

/* tensor.c */
void fll_scope_add(lua_State *L);
void fll_tensor_open(lua_State *L, fl_lua *st);
fl_tensor *fll_checktensor(lua_State *L, int i, const char *where,
                           const char *param);
/* Pushes a handle of `t` with a reference of its own. */
void fll_push(lua_State *L, fl_lua *st, fl_tensor *t);
void fll_pushshape(lua_State *L, int n, const int64_t *v);
/* Closes a handle, which then tells its users the line. */
void fll_close(fl_lua *st, fll_tensor *h, fl_site site);
/* Pushes " (at train.lua:12)", where it was closed, or an empty string. */
const char *fll_closer(lua_State *L, const fll_tensor *h);
int fll_tostring(lua_State *L);
void fll_tensor_core(lua_State *L);
/* Elements as Lua values: whole numbers exactly, booleans as such. */
void fll_pushvalue(lua_State *L, fl_dtype d, const void *p, int64_t i);
/* convert.c */
extern const luaL_Reg fll_convert_methods[];
void fll_convert_methods_more(lua_State *L);
/* contract.c */
extern const luaL_Reg fll_contract_methods[];

/* args.c */
/* The text at i, a string; one with a zero byte in it is refused. */
const char *fll_checkname(lua_State *L, int i, const char *where,
                          const char *what);
fl_dtype fll_checkdtype(lua_State *L, int i, const char *where);
fl_device fll_checkdevice(lua_State *L, fl_lua *st, int i, const char *where);
/* A dim or position counted from 1 as one counted from 0. */
int64_t fll_dim(lua_State *L, int64_t d, const char *where, const char *name);
int64_t fll_checkint(lua_State *L, int i, const char *where, const char *name);
/* Sizes from a table at `i` or from integers at i, i + 1, ...: returns how
 * many arguments they took. */
int fll_checksizes(lua_State *L, int i, const char *where, int *n,
                   int64_t *sizes);
/* Runs an operator on the arguments at 1, 2, ...; returns how many results are
 * pushed. `inplace`: argument 1 is written and returned. */
int fll_run(lua_State *L, fl_lua *st, const fll_op *b, bool inplace);
int fll_run_simple(lua_State *L, fl_lua *st, const fll_op *b, int n,
                   bool inplace);
const fll_op *fll_findop(fl_lua *st, const char *name);
/* An option of the table at `i`, left on the stack, its type returned. */
int fll_option(lua_State *L, int i, const char *name);
void fll_checkoptions(lua_State *L, int i, const char *where,
                      const char *const *names);

/* ops.c */
void fll_ops_open(lua_State *L, fl_lua *st);
void fll_ops_core(lua_State *L);
void fll_op_function(lua_State *L, fl_lua *st, const fl_op *op); /* pushes it */
void fll_op_info(lua_State *L, fl_lua *st, const fl_op *op); /* as a table */
void fll_ops_methods(lua_State *L, fl_lua *st);   /* into the table on top */
void fll_ops_metatable(lua_State *L, fl_lua *st); /* likewise */

/* modes.c */
void fll_modes_start(lua_State *L, fl_lua *st);
void fll_modes_switch(lua_State *L, fl_lua *st);
/* The caller sets `which` and `modes`; a frame outlives what it spans. */
void fll_modes_open(lua_State *L, fl_lua *st, fll_frame *f);
void fll_modes_close(lua_State *L, fl_lua *st, fll_frame *f);
/* lua_pcall(L, n, LUA_MULTRET, 0) in these modes; its status. */
int fll_with_modes(lua_State *L, fl_lua *st, unsigned which,
                   const fll_modes *modes, int n);
/* Around Lua code that the runtime calls in the middle of its own work: that
 * code's guards do not reach the work, and the code has the modes of it. */
void fll_callback_begin(lua_State *L, fl_lua *st, fll_frame *f);
void fll_callback_end(lua_State *L, fl_lua *st, fll_frame *f);

/* index.c */
int fll_index_get(lua_State *L, fl_lua *st);
int fll_index_set(lua_State *L, fl_lua *st);
int fll_select(lua_State *L, fl_lua *st, fll_tensor *h, lua_Integer i);

/* the rest */
void fll_make_core(lua_State *L), fll_random_core(lua_State *L);
void fll_expr_core(lua_State *L), fll_raw_core(lua_State *L);
fl_raw *fll_toraw(lua_State *L, int i); /* NULL: it is none */
/* register.c */
int fll_op_register(lua_State *L);
int fll_op_find(lua_State *L);
/* Runs f(data) protected from inside a call of the runtime: an error becomes
 * FL_ELUA (custom.c). */
fl_status fll_protect(fl_lua *st, lua_CFunction f, void *data);
/* stream.c */
void fll_stream_core(lua_State *L), fll_comm_core(lua_State *L);
void fll_secret_core(lua_State *L), fll_net_core(lua_State *L);
void fll_http_core(lua_State *L), fll_zmq_core(lua_State *L);
void fll_monitor_core(lua_State *L), fll_keep_core(lua_State *L);
bool fll_tostream(lua_State *L, int i, const char *where, fl_device *d,
                  int *number);                /* false: nil or nothing */
void fll_pin(lua_State *L, fl_lua *st, int i); /* pushes a pinned copy */
void fll_evict_core(lua_State *L), fll_vmap_core(lua_State *L);
/* dlpack.c */
void fll_dlpack_core(lua_State *L);
extern const luaL_Reg fll_dlpack_methods[], fll_stream_methods[],
    fll_random_methods[], fll_autograd_methods[];
fl_generator *fll_checkgenerator(lua_State *L, int i, const char *where);
void fll_autograd_open(lua_State *L, fl_lua *st);
void fll_autograd_core(lua_State *L);
void fll_custom_open(lua_State *L, fl_lua *st);
void fll_custom_core(lua_State *L);
void fll_checkpoint_core(lua_State *L);
void fll_compile_core(lua_State *L), fll_capture_core(lua_State *L);
void fll_modes_core(lua_State *L);
void fll_scope_core(lua_State *L);
void fll_file_core(lua_State *L), fll_json_core(lua_State *L);
void fll_text_core(lua_State *L);
void fll_thread_core(lua_State *L);
void fll_lending_release(struct fll_lending *l);
/* Ends the state's threads; one that does not end in time keeps the libraries
 * loaded. */
void fll_threads_end(fl_lua *st);

/* --- what is on the hot path --- */

/* L makes a call: the runtime gets the modes of its coroutine. */
static inline void fll_arrive(lua_State *L, fl_lua *st) {
  st->L = L;
  if (!FLL_LIKELY(st->modes_of == L))
    fll_modes_switch(L, st);
}

static inline fl_lua *fll_peek(lua_State *L) { /* may be closed */
  fl_lua *st = lua_touserdata(L, lua_upvalueindex(1));
  fll_arrive(L, st);
  return st;
}

static inline fl_lua *fll_enter(lua_State *L) {
  fl_lua *st = fll_peek(L);
  if (!FLL_LIKELY(st->rt != NULL))
    luaL_error(L, "flare: the runtime of this state is closed");
  return st;
}

/* Asks the host, every FLL_ASKS times, whether to stop (core.c). */
#define FLL_ASKS 16
void fll_ask_host(lua_State *L, fl_lua *st);
static inline void fll_ask(lua_State *L, fl_lua *st) {
  if (!FLL_LIKELY(--st->asks >= 0))
    fll_ask_host(L, st);
}

/* The same for a closure over a row: one look-up instead of two. */
static inline const fll_op *fll_enter_op(lua_State *L) {
  const fll_op *b = lua_touserdata(L, lua_upvalueindex(3));
  fll_arrive(L, b->st);
  if (!FLL_LIKELY(b->st->rt != NULL))
    luaL_error(L, "flare: the runtime of this state is closed");
  fll_ask(L, b->st);
  return b;
}

#define FLL_MT  lua_upvalueindex(2)
#define FLL_OWN lua_upvalueindex(3)

/* Whether the userdata at i is a handle that is closed or not yet filled. */
static inline bool fll_is_closed(lua_State *L, int i) {
  const fll_tensor *h = lua_touserdata(L, i);
  return h && lua_rawlen(L, i) == sizeof *h &&
         (h->magic & ~FLL_BY) == FLL_CLOSED;
}

/* The open handle at index i, or NULL. */
static inline fll_tensor *fll_test(lua_State *L, int i) {
  fll_tensor *h = lua_touserdata(L, i);
  return h && lua_rawlen(L, i) == sizeof *h && h->magic == FLL_OPEN ? h : NULL;
}

static inline void fll_born(fl_lua *st, fll_tensor *h) {
  *h = (fll_tensor){.turn = st->turn, .magic = FLL_CLOSED};
  st->young++;
}

/* Pushes an empty handle; the metatable of tensors lies at index mt. */
static inline fll_tensor *fll_new(lua_State *L, fl_lua *st, int mt) {
  if (--st->fresh < 0 || fl_handles_bytes(st->rt, NULL) > st->soft)
    fll_collect(L, st);
  fll_ask(L, st);
  fll_tensor *h = lua_newuserdatauv(L, sizeof *h, 1);
  fll_born(st, h);
  lua_pushvalue(L, mt);
  lua_setmetatable(L, -2);
  if (st->scopes)
    fll_scope_add(L);
  return h;
}

/* Gives the handle a reference. */
static inline void fll_fill(fll_tensor *h, fl_tensor *t) {
  h->t = t;
  h->magic = FLL_OPEN;
  fl_tensor_handle(t, 1);
}

/* A tensor or a number as an operand. */
static inline bool fll_operand(lua_State *L, int i, fl_operand *o,
                               unsigned *flags) {
  fll_tensor *h = fll_test(L, i);
  if (FLL_LIKELY(h)) {
    o->tensor = h->t;
    o->dtype = FL_NODTYPE;
    *flags |= h->flags;
    return true;
  }
  o->tensor = NULL;
  switch (lua_type(L, i)) {
  case LUA_TNUMBER: {
    int exact;
    o->dtype = FL_I64;
    o->i = lua_tointegerx(L, i, &exact);
    if (exact && lua_isinteger(L, i))
      return true;
    o->dtype = FL_F64;
    o->f = lua_tonumber(L, i);
    return true;
  }
  case LUA_TBOOLEAN:
    o->dtype = FL_BOOL;
    o->i = lua_toboolean(L, i);
    return true;
  default:
    return false;
  }
}

static inline uint32_t fll_word(const void *p) {
  uint32_t w;
  memcpy(&w, p, sizeof w);
  return w;
}

/* fl_tensor_new, from the script's line. */
fl_status fll_tensor_new(lua_State *L, fl_lua *st, fl_dtype dtype, int ndim,
                         const int64_t *shape, fl_device d, fl_tensor **t);
/* Where the script asked for this. Level 1 is who called the running C
 * function; i_ci, a private field, points at its record: word 4 is the saved
 * program counter of a Lua function, bit 1 of the half-word at byte 62 tells a
 * C function. site.c makes sure of that when a state opens, or does without. */
static inline fl_site fll_site_here(lua_State *L, fl_lua *st) {
  lua_Debug ar;
  if (!lua_getstack(L, 1, &ar))
    return 0;
  const char *record = (const char *)ar.i_ci;
  if (!st->site_cache || record[62] & 2)
    return fll_site_from(L, st, 1);
  const char *pc = ((char *const *)(const void *)record)[4];
  uint64_t key = (uint64_t)(uintptr_t)pc;
  const fll_site *s = &st->sites[(key >> 2) % FLL_SITES];
  uint32_t instruction = fll_word(pc - 4);
  key |= st->epoch;
  if (FLL_LIKELY(s->key == key && s->instruction == instruction &&
                 s->site < FLL_IN_LIBRARY))
    return s->site;
  return fll_site_from(L, st, 1);
}

#endif
