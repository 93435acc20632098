/* Modes as scopes: no_grad, enable_grad, meta, anomaly, autocast, device. Each
 * takes a function (and its arguments), or gives a guard for `local _ <close> =
 * flare.no_grad()`.
 *
 * A guard belongs to the coroutine that made it. What is open is a list of
 * frames; the modes of a coroutine are those of its own frames, newest first,
 * then those of the coroutines that wait for it (it runs inside them), then the
 * program's. The runtime has the modes of one coroutine, st->modes_of: the
 * first call from another one puts them there anew. Guards are closed by
 * <close>, by close() or, at the latest, by the collector. */
#include "fll.h"

/* --- which modes hold --- */

static void read_modes(fl_lua *st, fll_modes *m) {
  m->grad = fl_grad_enabled(st->rt);
  m->grad_site = fl_grad_site(st->rt, 0);
  fl_grad_site(st->rt, m->grad_site);
  m->runtime_meta = fl_meta_mode(st->rt, true);
  fl_meta_mode(st->rt, m->runtime_meta);
  m->meta = st->meta;
  m->anomaly = st->anomaly;
  m->autocast = fl_autocast_now(st->rt);
  m->device = st->device;
}

static void write_modes(fl_lua *st, const fll_modes *m) {
  fl_grad_mode(st->rt, m->grad);
  fl_grad_site(st->rt, m->grad_site);
  fl_meta_mode(st->rt, m->runtime_meta);
  st->meta = m->meta;
  fl_anomaly_mode(st->rt, m->anomaly);
  st->anomaly = m->anomaly;
  fl_autocast(st->rt, m->autocast);
  st->device = m->device;
}

static void copy_modes(fll_modes *to, const fll_modes *from, unsigned which) {
  if (which & FLL_GRAD_MODE) {
    to->grad = from->grad;
    to->grad_site = from->grad_site;
  }
  if (which & FLL_META_MODE) {
    to->meta = from->meta;
    to->runtime_meta = from->runtime_meta;
  }
  if (which & FLL_ANOMALY_MODE)
    to->anomaly = from->anomaly;
  if (which & FLL_AUTOCAST_MODE)
    to->autocast = from->autocast;
  if (which & FLL_DEVICE_MODE)
    to->device = from->device;
}

/* Whether co waits for the coroutine that runs: it has resumed it, or one that
 * has. A coroutine that has yielded or ended waits for nothing. */
static bool waits_inside(const fl_lua *st, lua_State *co) {
  lua_Debug ar;
  return co == st->main ||
         (lua_status(co) == LUA_OK && lua_getstack(co, 0, &ar));
}

static bool frame_holds(const fl_lua *st, const fll_frame *f, lua_State *L,
                        bool own) {
  return own ? f->co == L : f->co != L && waits_inside(st, f->co);
}

static void apply_modes(lua_State *L, fl_lua *st) {
  fll_modes m = st->base;
  unsigned open = FLL_ALL_MODES;
  for (int own = 1; own >= 0; own--)
    for (fll_frame *f = st->frames; f && open; f = f->outer)
      if (f->which & open && frame_holds(st, f, L, own)) {
        copy_modes(&m, &f->modes, f->which & open);
        open &= ~f->which;
      }
  write_modes(st, &m);
}

void fll_modes_switch(lua_State *L, fl_lua *st) {
  if (st->closing)
    fll_shut_soon(st);
  if (!st->rt)
    return;
  if (st->frames || !st->modes_of)
    apply_modes(L, st);
  st->modes_of = st->closing ? NULL : L;
  lua_pushthread(L); /* lives until then: its address stays its own */
  fll_setkey(L, FLL_COROUTINE);
}

static void link_frame(lua_State *L, fl_lua *st, fll_frame *f) {
  f->co = L;
  f->inner = NULL;
  f->outer = st->frames;
  if (f->outer)
    f->outer->inner = f;
  st->frames = f;
}

static void unlink_frame(fl_lua *st, fll_frame *f) {
  if (f->outer)
    f->outer->inner = f->inner;
  if (f->inner)
    f->inner->outer = f->outer;
  else
    st->frames = f->outer;
  f->co = NULL;
}

void fll_modes_open(lua_State *L, fl_lua *st, fll_frame *f) {
  if (!st->frames && !st->callbacks)
    read_modes(st, &st->base);
  link_frame(L, st, f);
  apply_modes(L, st);
}

void fll_modes_close(lua_State *L, fl_lua *st, fll_frame *f) {
  unlink_frame(st, f);
  if (st->rt)
    apply_modes(L, st);
  st->modes_of = st->closing ? NULL : L;
}

void fll_callback_begin(lua_State *L, fl_lua *st, fll_frame *f) {
  st->callbacks++;
  f->which = FLL_ALL_MODES;
  f->alone = !st->frames;
  read_modes(st, &f->modes);
  link_frame(L, st, f);
}

void fll_callback_end(lua_State *L, fl_lua *st, fll_frame *f) {
  st->callbacks--;
  unlink_frame(st, f);
  st->L = L;
  if (!st->rt)
    return;
  write_modes(st, &f->modes);
  bool same = f->alone && !st->frames && st->modes_of;
  st->modes_of = same && !st->closing ? L : NULL;
}

/* Of a setting without an end: in the innermost frame that has the mode. */
static void set_mode(lua_State *L, fl_lua *st, unsigned which,
                     const fll_modes *m) {
  if (!st->frames && !st->callbacks)
    read_modes(st, &st->base);
  fll_modes *to = &st->base;
  for (int own = 0; own < 2; own++) {
    fll_frame *f = st->frames;
    while (f && !(f->which & which && frame_holds(st, f, L, own)))
      f = f->outer;
    to = f ? &f->modes : to;
  }
  copy_modes(to, m, which);
  apply_modes(L, st);
}

void fll_modes_start(lua_State *L, fl_lua *st) {
  read_modes(st, &st->base);
  st->modes_of = L;
  lua_pushthread(L);
  fll_setkey(L, FLL_COROUTINE);
}

/* --- functions and guards --- */

typedef struct guard {
  uint64_t magic;
  bool open;
  fll_frame frame;
} guard;

int fll_with_modes(lua_State *L, fl_lua *st, unsigned which,
                   const fll_modes *modes, int n) {
  fll_frame f = {.which = which, .modes = *modes};
  fll_modes_open(L, st, &f);
  int s = lua_pcall(L, n, LUA_MULTRET, 0);
  st->L = L;
  fll_modes_close(L, st, &f);
  return s;
}

/* The function at index f with what lies above it. Yielding across it is not
 * possible. */
static int call_function(lua_State *L, fl_lua *st, unsigned which,
                         const fll_modes *m, int f) {
  if (fll_with_modes(L, st, which, m, lua_gettop(L) - f) != LUA_OK)
    return lua_error(L);
  return lua_gettop(L) - f + 1;
}

/* The guard keeps its coroutine, whose state the frame points to. */
static int push_guard(lua_State *L, fl_lua *st, unsigned which,
                      const fll_modes *m) {
  guard *g = fll_newobject(L, FLL_GUARD, sizeof *g, 1);
  lua_pushthread(L);
  lua_setiuservalue(L, -2, 1);
  g->frame.which = which;
  g->frame.modes = *m;
  fll_modes_open(L, st, &g->frame);
  g->open = true;
  return 1;
}

/* A guard that no variable holds is open until Lua's collector finds it, at a
 * time that the script does not decide. */
static void warn_lost_guard(lua_State *L, fl_lua *st, const char *where) {
  if (st->warned_guard || !fll_discards(L, st, 0))
    return;
  st->warned_guard = true;
  lua_pushfstring(
      L,
      "flare: %s: %s without a function returns a guard, which "
      "is not used here and ends when Lua collects it; \"local _ "
      "<close> = flare.%s(...)\" holds until the end of the block\n",
      fl_site_text(st->rt, fll_site_here(L, st)), where, where);
  lua_writestringerror("%s", lua_tostring(L, -1));
  lua_pop(L, 1);
}

/* f(...) or a guard, from argument i on. */
static int scoped(lua_State *L, unsigned which, const fll_modes *m, int i,
                  const char *where) {
  fl_lua *st = fll_enter(L);
  if (lua_isnoneornil(L, i)) {
    warn_lost_guard(L, st, where);
    return push_guard(L, st, which, m);
  }
  if (!lua_isfunction(L, i) && luaL_getmetafield(L, i, "__call") == LUA_TNIL)
    fll_error(L, "%s: expected a function or nothing, got %s", where,
              fll_typename(L, i));
  if (!lua_isfunction(L, i))
    lua_pop(L, 1); /* a module, say */
  return call_function(L, st, which, m, i);
}

static int guard_close(lua_State *L) {
  fl_lua *st = fll_peek(L);
  guard *g = fll_checktype(L, 1, FLL_GUARD, sizeof *g);
  if (g->open) {
    unlink_frame(st, &g->frame);
    st->modes_of = NULL;
  }
  g->open = false;
  return 0;
}

static int guard_text(lua_State *L) {
  guard *g = fll_checktype(L, 1, FLL_GUARD, sizeof *g);
  lua_pushfstring(L, "flare.guard (%s)", g->open ? "open" : "closed");
  return 1;
}

static int no_grad(lua_State *L) {
  fll_modes m = {.grad = false};
  m.grad_site = fll_site_here(L, fll_enter(L));
  return scoped(L, FLL_GRAD_MODE, &m, 1, "no_grad");
}

static int enable_grad(lua_State *L) {
  return scoped(L, FLL_GRAD_MODE, &(fll_modes){.grad = true}, 1, "enable_grad");
}

static int grad_enabled(lua_State *L) {
  lua_pushboolean(L, fl_grad_enabled(fll_enter(L)->rt));
  return 1;
}

static int meta(lua_State *L) {
  fll_modes m = {.meta = true, .runtime_meta = true};
  return scoped(L, FLL_META_MODE, &m, 1, "meta");
}

/* anomaly(true), anomaly(false), anomaly(f, ...), or a guard. */
static int anomaly(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_modes m = {.anomaly = true};
  if (!lua_isboolean(L, 1))
    return scoped(L, FLL_ANOMALY_MODE, &m, 1, "anomaly");
  m.anomaly = lua_toboolean(L, 1);
  lua_pushboolean(L, st->anomaly);
  set_mode(L, st, FLL_ANOMALY_MODE, &m);
  return 1;
}

/* autocast(dtype, f, ...), or autocast(dtype) for a guard; false: not. */
static int autocast(lua_State *L) {
  fl_dtype d = FL_NODTYPE;
  fll_enter(L);
  if (!lua_isboolean(L, 1) || lua_toboolean(L, 1)) {
    d = fll_checkdtype(L, 1, "autocast");
    if (d != FL_BF16 && d != FL_F16)
      fll_error(L, "autocast: bf16 or f16, not %s", fl_dtype_name(d));
  }
  return scoped(L, FLL_AUTOCAST_MODE, &(fll_modes){.autocast = d}, 2,
                "autocast");
}

/* device(): the default one; device(name) sets it; device(name, f, ...). */
static int device(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (!lua_isnoneornil(L, 1)) {
    fll_modes m = {.device = fll_checkdevice(L, st, 1, "device")};
    if (lua_gettop(L) > 1)
      return scoped(L, FLL_DEVICE_MODE, &m, 2, "device");
    set_mode(L, st, FLL_DEVICE_MODE, &m);
  }
  lua_pushstring(L, fl_device_name(st->rt, st->device));
  return 1;
}

void fll_modes_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"no_grad", no_grad},
                                       {"enable_grad", enable_grad},
                                       {"grad_enabled", grad_enabled},
                                       {"meta", meta},
                                       {"anomaly", anomaly},
                                       {"autocast", autocast},
                                       {"device", device},
                                       {"set_default_device", device},
                                       {NULL, NULL}};
  static const luaL_Reg type[] = {{"__close", guard_close},
                                  {"__gc", guard_close},
                                  {"__tostring", guard_text},
                                  {NULL, NULL}};
  fll_newtype(L, FLL_GUARD, "flare.guard", type);
  lua_createtable(L, 0, 1);
  fll_pushfunction(L, guard_close);
  lua_setfield(L, -2, "close");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  fll_register(L, functions);
}
