/* flarelua.h: runtimes in states of their own and in the host's, scripts,
 * calls, results, errors, two at once. */
#include "check.h"

#include <flare/flarelua.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <math.h>
#include <string.h>

static void test_calls(void) {
  fl_lua *f;
  CHECK(fl_lua_open(NULL, &f) == FL_OK);
  CHECK(fl_lua_run(f,
                   "local core = require 'flare.core'\n"
                   "model = {scale = 2.5, name = 'net', steps = 7, on = true}\n"
                   "function model.forward(x, k, label)\n"
                   "  last = label\n"
                   "  return x * model.scale + k, #x, label .. '!', k > 1\n"
                   "end\n"
                   "weights = core.tensor{{1, 2}, {3, 4}}\n",
                   "@host.lua") == FL_OK);
  float data[3] = {1, 2, 3};
  fl_tensor *x, *y = NULL, *w = NULL;
  int64_t shape[1] = {3}, n = 0, steps = 0;
  double scale = 0;
  const char *text = NULL;
  int flag = 0;
  CHECK(fl_tensor_wrap(fl_lua_runtime(f), data, FL_F32, 1, shape, NULL, NULL,
                       &x) == FL_OK);
  CHECK(fl_lua_call(f, "model.forward", "tds>tisb", x, 2.0, "label", &y, &n,
                    &text, &flag) == FL_OK);
  CHECK(n == 3 && flag == 1 && strcmp(text, "label!") == 0);
  float got[3];
  CHECK(fl_tensor_read(y, got, sizeof got) == FL_OK);
  for (int i = 0; i < 3; i++)
    CHECK(got[i] == data[i] * 2.5f + 2);
  CHECK(fl_lua_get(f, "model.scale", 'd', &scale) == FL_OK && scale == 2.5);
  CHECK(fl_lua_get(f, "model.steps", 'i', &steps) == FL_OK && steps == 7);
  CHECK(fl_lua_get(f, "model.name", 's', &text) == FL_OK &&
        strcmp(text, "net") == 0);
  CHECK(fl_lua_get(f, "weights", 't', &w) == FL_OK);
  CHECK(fl_tensor_meta(w)->ndim == 2 && ((float *)fl_tensor_data(w))[3] == 4);
  /* the script sees the host's memory, and the host what it writes */
  CHECK(fl_lua_set(f, "shared", x) == FL_OK);
  CHECK(fl_lua_run(f, "shared[2] = 9; assert(shared:sum():item() == 13)",
                   "=t") == FL_OK);
  CHECK(data[1] == 9);
  /* what goes wrong */
  CHECK(fl_lua_call(f, "model.forward", "td", x, 1.0) == FL_ELUA);
  CHECK(strstr(fl_error(), "host.lua:5: attempt to concatenate a nil value"));
  CHECK(strstr(fl_lua_traceback(f), "stack traceback"));
  CHECK(fl_lua_call(f, "model.backward", "") == FL_ELUA);
  CHECK(strstr(fl_error(), "there is no function 'model.backward'"));
  CHECK(fl_lua_set(f, "x", NULL) == FL_EARG);
  CHECK(strstr(fl_error(), "fl_lua_set: t is NULL"));
  CHECK(fl_lua_call(f, "model.forward", "q") == FL_ELUA);
  CHECK(strstr(fl_error(), "there is no 'q'"));
  CHECK(fl_lua_get(f, "nothing.at.all", 'd', &scale) == FL_ELUA);
  CHECK(strstr(fl_error(), "'nothing.at.all': there is nothing in front of "
                           "'.at.all'"));
  CHECK(fl_lua_get(f, "model.name", 't', &w) == FL_ELUA);
  CHECK(strstr(fl_error(), "'model.name', value 1: expected a tensor, got "
                           "string"));
  /* several results: all of them are good, or none is written */
  const char *words[2] = {NULL, NULL};
  CHECK(fl_lua_run(f,
                   "function two() return ('a'):rep(99), 2.5 end "
                   "function odd() return weights, {} end",
                   "=t") == FL_OK);
  CHECK(fl_lua_call(f, "two", ">ss", &words[0], &words[1]) == FL_OK);
  CHECK(strlen(words[0]) == 99 && strspn(words[0], "a") == 99);
  CHECK(strcmp(words[1], "2.5") == 0);
  fl_tensor *none = NULL;
  CHECK(fl_lua_call(f, "odd", ">td", &none, &scale) == FL_ELUA && !none);
  CHECK(strstr(fl_error(), "'odd', value 2: expected a number, got table"));
  CHECK(fl_lua_run(f, "x = = 1", "=bad") == FL_ELUA);
  CHECK(fl_lua_run(f, "\x1bLua", "=binary") == FL_ELUA);
  CHECK(fl_lua_run_file(f, "/no/such/file.lua", 0, NULL) == FL_ELUA);
  CHECK(fl_lua_run(f,
                   "error(setmetatable({}, {__tostring = function() return "
                   "'an object' end}))",
                   "=t") == FL_ELUA);
  CHECK(strcmp(fl_error(), "an object") == 0);
  CHECK(lua_gettop(fl_lua_state(f)) == 0);
  fl_tensor_release(x);
  fl_tensor_release(y);
  fl_tensor_release(w);
  fl_lua_close(f);
}

static void test_library(void) {
  fl_lua *f;
  fl_lua_options o = {.struct_size = sizeof o, .path = "/nowhere/?.lua"};
  const char *text;
  CHECK(fl_lua_open(&o, &f) == FL_OK);
  CHECK(fl_lua_run(f,
                   "where = package.path; flare = require 'flare'\n"
                   "collector = require('flare.core').collector()",
                   "=t") == FL_OK);
  CHECK(fl_lua_get(f, "where", 's', &text) == FL_OK);
  CHECK(strncmp(text, "/nowhere/?.lua;", 15) == 0);
  CHECK(fl_lua_get(f, "collector", 's', &text) == FL_OK);
  CHECK(strcmp(text, "flare") == 0);
  fl_lua_close(f);
}

static void test_attach(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  fl_lua *f, *again;
  fl_runtime_options r = {.struct_size = sizeof r, .threads = 1};
  fl_lua_options o = {.struct_size = sizeof o, .runtime = &r};
  CHECK(fl_lua_of(L) == NULL);
  CHECK(fl_lua_attach(L, &o, &f) == FL_OK);
  CHECK(fl_lua_attach(L, NULL, &again) == FL_OK && again == f);
  CHECK(fl_lua_of(L) == f && fl_lua_state(f) == L);
  CHECK(fl_runtime_threads(fl_lua_runtime(f)) == 1);
  CHECK(luaL_dostring(L, "package.path, package.cpath = '', ''\n"
                         "return require('flare').nn.Linear(2, 3)") == 0);
  lua_settop(L, 0);
  luaL_requiref(L, "flare.core", luaopen_flare_core, 1);
  lua_pop(L, 1);
  CHECK(luaL_dostring(L, "core = package.loaded['flare.core']\n"
                         "x = core.ones(4); y = x:sum()\n"
                         "assert(core.collector() == 'host')") == 0);
  CHECK(luaL_dostring(L, "return x * 2") == 0);
  fl_tensor *t = fl_lua_tensor(L, -1);
  CHECK(t && fl_tensor_numel(t) == 4);
  CHECK(fl_lua_tensor(L, 99) == NULL);
  fl_lua_push(L, t);
  CHECK(fl_lua_tensor(L, -1) == t);
  lua_settop(L, 0);
  /* the runtime goes before the state: tensors are closed, nothing crashes */
  fl_lua_close(f);
  CHECK(fl_lua_of(L) == NULL);
  CHECK(luaL_dostring(L, "return x + 1") != 0);
  CHECK(strstr(lua_tostring(L, -1), "closed"));
  CHECK(luaL_dostring(L, "assert(x.closed and tostring(x):find 'closed');"
                         "x:close() collectgarbage()") == 0);
  CHECK(luaL_dostring(L, "return core.zeros(1)") != 0);
  CHECK(luaL_dostring(L, "return require('flare.core')") == 0);
  lua_close(L);
}

/* A state that the host gave few libraries: the one that is missing is named;
 * with what is asked for the library works. */
static void test_few_libraries(void) {
  static const luaL_Reg libraries[] = {
      {"_G", luaopen_base},     {"string", luaopen_string},
      {"table", luaopen_table}, {"math", luaopen_math},
      {"utf8", luaopen_utf8},   {"package", luaopen_package}};
  lua_State *L = luaL_newstate();
  fl_lua *f = NULL;
  for (int k = 0; k < 6; k++) {
    CHECK(fl_lua_attach(L, NULL, &f) == FL_ELUA && !f);
    CHECK(strstr(fl_error(), "flare needs Lua's library '"));
    CHECK(lua_gettop(L) == 0);
    luaL_requiref(L, libraries[k].name, libraries[k].func, 1);
    lua_pop(L, 1);
  }
  CHECK(fl_lua_attach(L, NULL, &f) == FL_OK);
  CHECK(fl_lua_run(f,
                   "local flare = require 'flare'\n"
                   "local model = flare.nn.Linear(2, 1)\n"
                   "local optimizer = flare.optim.Adam(model, {lr = 0.1})\n"
                   "model(flare.ones(3, 2)):sum():backward()\n"
                   "optimizer:step()\n"
                   "assert(not io and not os and not debug)",
                   "=few") == FL_OK);
  fl_lua_close(f);
  lua_close(L);
}

static fl_status twice(const fl_launch *l) {
  for (int64_t i = 0; i < l->in[0].shape[0]; i++)
    ((float *)l->out[0].data)[i] =
        2 * ((const float *)l->in[0].data)[i * l->in[0].stride[0]];
  return FL_OK;
}

/* What the host registers is an operator of its scripts, too. */
static void test_operator(void) {
  fl_lua *f;
  fl_op_spec s = {.struct_size = sizeof s,
                  .name = "host_twice",
                  .signature = "x:float -> y:x",
                  .kernel = twice,
                  .gradient = "gx = 2 * gy"};
  const fl_op *op;
  CHECK(fl_lua_open(NULL, &f) == FL_OK);
  CHECK(fl_op_register(fl_lua_runtime(f), &s, &op) == FL_OK);
  CHECK(fl_lua_run(f,
                   "local flare = require 'flare'\n"
                   "local twice = flare.op.find 'host_twice'\n"
                   "local x = flare.tensor({1, 2}, {requires_grad = true})\n"
                   "local y = twice(x)\n"
                   "y:sum():backward()\n"
                   "assert(y[2]:item() == 4 and x.grad[2]:item() == 2)\n"
                   "assert(flare.op.find 'host_twice' == twice)\n"
                   "assert(flare.op.info('host_twice').differentiable)\n"
                   "assert(flare.op.find 'exp'(x)[1]:item() > 2.7)\n"
                   "local ok, why = pcall(flare.op.find, 'host_thrice')\n"
                   "assert(why:find 'no operator \"host_thrice\"')",
                   "=operator") == FL_OK);
  fl_lua_close(f);
}

static void test_two(void) {
  fl_lua *a = NULL, *b = NULL;
  fl_tensor *t;
  double n = 0;
  CHECK(fl_lua_open(NULL, &a) == FL_OK && fl_lua_open(NULL, &b) == FL_OK);
  const char *text = "core = require 'flare.core'; core.manual_seed(seed)\n"
                     "x = core.rand(3); n = core.tensors()";
  CHECK(fl_lua_run(a, "seed = 1", "=t") == FL_OK);
  CHECK(fl_lua_run(b, "seed = 2", "=t") == FL_OK);
  CHECK(fl_lua_run(a, text, "=t") == FL_OK);
  CHECK(fl_lua_run(b, text, "=t") == FL_OK);
  CHECK(fl_lua_get(a, "n", 'd', &n) == FL_OK && n == 1);
  CHECK(fl_lua_get(a, "x", 't', &t) == FL_OK);
  CHECK(fl_lua_set(b, "y", t) == FL_ELUA);
  CHECK(strstr(fl_error(), "another runtime"));
  fl_lua_close(a); /* t outlives it, closed */
  CHECK(fl_tensor_closed(t));
  fl_tensor_release(t);
  CHECK(fl_lua_run(b, "assert((x + 1):sum():item() > 3)", "=t") == FL_OK);
  fl_lua_close(b);
}

static int tens(lua_State *L) { /* written against Lua's own interface */
  fl_tensor *t = fl_lua_tensor(L, 1);
  luaL_argcheck(L, t, 1, "tensor expected");
  fl_tensor *bad;
  int64_t sizes[2] = {INT64_MAX, 8};
  if (lua_toboolean(L, 2))
    fl_lua_check(
        L, fl_tensor_new(fl_tensor_runtime(t), FL_F32, 2, sizes, 0, &bad));
  lua_pushinteger(L, fl_tensor_numel(t) * 10);
  return 1;
}

static void test_functions(void) {
  fl_lua *f;
  double n = 0;
  CHECK(fl_lua_open(NULL, &f) == FL_OK);
  lua_register(fl_lua_state(f), "tens", tens);
  CHECK(fl_lua_run(f, "n = tens(require('flare.core').zeros(4))", "=t") ==
        FL_OK);
  CHECK(fl_lua_get(f, "n", 'd', &n) == FL_OK && n == 40);
  CHECK(fl_lua_run(f, "tens(require('flare.core').zeros(4), true)", "=user") ==
        FL_ELUA);
  CHECK(strncmp(fl_error(), "user:1: ", 8) == 0);
  CHECK(strstr(fl_error(), "too large"));
  fl_lua_close(f);
  fl_lua_close(NULL);
}

static void test_interrupt(void) {
  fl_lua *f;
  fl_lua_options o = {.struct_size = sizeof o, .interruptible = true};
  CHECK(fl_lua_open(&o, &f) == FL_OK);
  fl_lua_interrupt(f);
  CHECK(fl_lua_run(f, "while true do pcall(function() end) end", "=t") ==
        FL_ELUA);
  CHECK(strstr(fl_error(), "interrupted!"));
  CHECK(fl_lua_run(f, "coroutine.wrap(function() while true do end end)()",
                   "=t") == FL_ELUA);
  fl_lua_resume(f);
  CHECK(fl_lua_run(f, "for i = 1, 1e5 do end", "=t") == FL_OK);
  fl_lua_close(f);
}

static bool asked_often(void *context) {
  return ++*(int *)context > 1000;
}

/* The host's `interrupted` ends loops of small calls, and loops of nothing in a
 * state of flare's own. */
static void test_host_interrupts(void) {
  static const char *const loops[] = {
      "while true do core.ones(10) end",
      "while true do x:add_(1) end",
      "while true do local _ = x[1] end",
      "while true do pcall(core.ones, 10) end",
      "coroutine.wrap(function() while true do core.zeros(3) end end)()",
      "while true do x:sum():item() end",
      "while true do end",
  };
  int calls = 0;
  fl_runtime_options r = {
      .struct_size = sizeof r, .interrupted = asked_often, .context = &calls};
  fl_lua_options o = {.struct_size = sizeof o, .runtime = &r};
  for (size_t k = 0; k < sizeof loops / sizeof *loops; k++) {
    fl_lua *f;
    char text[256];
    calls = 0;
    CHECK(fl_lua_open(&o, &f) == FL_OK);
    snprintf(text, sizeof text,
             "local core = require 'flare.core' local x = core.ones(10) %s",
             loops[k]);
    CHECK(fl_lua_run(f, text, "=t") == FL_ELUA);
    CHECK(strstr(fl_error(), "interrupted!"), "%s: %s", loops[k], fl_error());
    fl_lua_close(f);
  }
  lua_State *L = luaL_newstate();
  fl_lua *f;
  luaL_openlibs(L);
  calls = 0;
  CHECK(fl_lua_attach(L, &o, &f) == FL_OK);
  CHECK(luaL_dostring(L, "local core = require 'flare.core' "
                         "while true do core.ones(10) end"));
  CHECK(strstr(lua_tostring(L, -1), "interrupted!"));
  CHECK(lua_gethook(L) == NULL); /* the state's loops are the host's */
  lua_close(L);
}

/* A limit holds for a state, its threads, and what is between them. */
static void test_limit(void) {
  static const char *const greedy[] = {
      "local t = flare.spawn [[local flare = require 'flare' "
      "T = {} for i = 1, 40 do T[i] = flare.zeros(2500000) end]] "
      "local ok, said = t:join() assert(not ok) error(said)",
      "T = {} for i = 1, 40 do T[i] = flare.core.shared(2500000) end",
      "local c = flare.core.channel(1000) local x = flare.zeros(2500000) "
      "for i = 1, 40 do c:push(x) end",
      "local c, s = flare.core.channel(1000), ('x'):rep(10000000) "
      "for i = 1, 40 do c:push(s) end",
      "local t = {} for i = 1, 4 do t[i] = flare.spawn([[local flare = require "
      "'flare' local c, gate = ... local x = flare.zeros(7500000) c:push(1) "
      "gate:pop() return 1]], flare.core.channel(1), flare.core.channel(1)) "
      "end "
      "local all = true for i = 1, 4 do local ok, said = t[i]:join(2) "
      "if not ok and said ~= 'timeout' then error(said) end end",
  };
  fl_runtime_options r = {
      .struct_size = sizeof r, .threads = 1, .memory_limit = 100000000};
  fl_lua_options o = {.struct_size = sizeof o, .runtime = &r};
  fl_lua *f;
  CHECK(fl_lua_open(&o, &f) == FL_OK);
  CHECK(fl_lua_run(f, "flare = require 'flare'", "=t") == FL_OK);
  for (size_t k = 0; k < sizeof greedy / sizeof *greedy; k++) {
    CHECK(fl_lua_run(f, greedy[k], "=t") == FL_ELUA, "%s", greedy[k]);
    CHECK(strstr(fl_error(), "out of memory"), "%s", fl_error());
    /* all of it comes back */
    CHECK(fl_lua_run(f, "T = nil collectgarbage() flare.zeros(20000000)",
                     "=t") == FL_OK,
          "%s", fl_error());
    CHECK(fl_lua_run(f, "collectgarbage()", "=t") == FL_OK);
  }
  fl_lua_close(f);
}

/* A pointer that is missing is an error, not a crash. */
static void test_null(void) {
  fl_lua *f;
  fl_tensor *x = NULL;
  int64_t shape[1] = {3};
  CHECK(fl_lua_open(NULL, NULL) == FL_EARG && strstr(fl_error(), "f is NULL"));
  CHECK(fl_lua_attach(NULL, NULL, &f) == FL_EARG);
  CHECK(fl_lua_open(NULL, &f) == FL_OK);
  fl_runtime *rt = fl_lua_runtime(f);
  CHECK(fl_lua_run(f, NULL, "=t") == FL_EARG);
  CHECK(fl_lua_run(NULL, "x = 1", "=t") == FL_EARG);
  CHECK(fl_lua_run(f, "function one() return 1 end", NULL) == FL_OK);
  CHECK(fl_lua_run_file(f, NULL, 0, NULL) == FL_EARG);
  CHECK(fl_lua_run_file(f, "x.lua", 1, NULL) == FL_EARG);
  CHECK(fl_lua_call(f, NULL, "") == FL_EARG);
  CHECK(fl_lua_call(f, "one", NULL) == FL_EARG);
  CHECK(fl_lua_call(f, "one", ">i", (int64_t *)NULL) == FL_ELUA);
  CHECK(strstr(fl_error(), "the pointer for result 1 is NULL"));
  CHECK(fl_lua_get(f, "one", 'i', NULL) == FL_EARG);
  CHECK(fl_lua_set(f, NULL, NULL) == FL_EARG);
  CHECK(fl_lua_of(NULL) == NULL && !*fl_lua_traceback(NULL));
  fl_lua_interrupt(NULL);
  fl_lua_resume(NULL);
  CHECK(fl_runtime_open(NULL, NULL) == FL_EARG);
  CHECK(fl_tensor_new(rt, FL_F32, 1, shape, 0, NULL) == FL_EARG);
  CHECK(fl_tensor_new(rt, FL_F32, 1, NULL, 0, &x) == FL_EARG);
  CHECK(fl_tensor_new(NULL, FL_F32, 1, shape, 0, &x) == FL_EARG);
  CHECK(fl_tensor_zeros(rt, FL_F32, 1, shape, 0, NULL) == FL_EARG);
  CHECK(fl_tensor_wrap(rt, shape, FL_I64, 1, shape, NULL, NULL, NULL) ==
        FL_EARG);
  CHECK(fl_tensor_wrap(rt, NULL, FL_I64, 1, shape, NULL, NULL, &x) == FL_EARG);
  CHECK(fl_tensor_read(NULL, shape, 8) == FL_EARG);
  CHECK(fl_tensor_item(NULL, NULL, NULL) == FL_EARG);
  CHECK(fl_tensor_detach(NULL, &x) == FL_EARG);
  CHECK(fl_tensor_to(NULL, 0, FL_F32, &x) == FL_EARG);
  CHECK(fl_call_run(rt, NULL) == FL_EARG);
  CHECK(fl_device_find(rt, NULL, NULL) == FL_EARG);
  CHECK(fl_op_find(rt, NULL) == NULL);
  CHECK(fl_op_register(rt, NULL, NULL) == FL_EARG);
  CHECK(fl_expr_new(rt, NULL, "T z", "z = 1", NULL, NULL) == FL_EARG);
  CHECK(fl_backward(rt, 1, NULL, NULL, 0) == FL_EARG);
  CHECK(fl_tensor_zeros(rt, FL_F32, 1, shape, 0, &x) == FL_OK);
  CHECK(fl_tensor_read(x, NULL, 12) == FL_EARG);
  CHECK(fl_tensor_write(x, NULL, 12) == FL_EARG);
  CHECK(fl_tensor_item(x, NULL, NULL) != FL_OK);
  CHECK(fl_tensor_to(x, 0, FL_F64, NULL) == FL_EARG);
  fl_tensor_release(x);
  fl_lua_close(f);
}

static void test_many(void) {
  for (int i = 0; i < 100; i++) {
    fl_lua *f;
    CHECK(fl_lua_open(NULL, &f) == FL_OK);
    CHECK(fl_lua_run(f,
                     "local c = require 'flare.core'\n"
                     "x = c.ones(3, {requires_grad = true})\n"
                     "x:register_hook(function(g) return g * 2 end)\n"
                     "y = (x * 2):sum() y:backward()",
                     "=t") == FL_OK);
    fl_lua_close(f);
  }
}

/* --- closing from inside --- */

static fl_lua *inside;

static int close_it(lua_State *L) {
  (void)L;
  fl_lua_close(inside);
  return 0;
}

static bool close_when_asked(void *context) {
  bool *armed = context;
  if (*armed)
    fl_lua_close(inside);
  *armed = false;
  return false;
}

/* Each ends in a close by a function that Lua or the runtime calls. */
static const char *const closers[] = {
    "x:register_hook(function(g) close() return g * 2 end)\n"
    "y = (x * 2):sum() y:backward()",
    "z = x * 2 z:register_hook(function(g) close() end) z:sum():backward()",
    "z = x * 2 z:register_hook(function(g) close() end)\n"
    "c.grad((z * z):sum(), {x}, {create_graph = true})",
    "f = c.func{forward = function(_, a) return a * 2 end,\n"
    "           backward = function(_, g) close() return g end}\n"
    "f(x):sum():backward()",
    "f = c.func{forward = function(_, a) close() return a * 2 end,\n"
    "           backward = function(_, g) return g end}\n"
    "f(x):sum():backward()",
    "c.on_ready(close); (x * 2):sum():backward()",
    "y = c.checkpoint(function(a) if n then close() end n = 1 return a * 2 end,"
    " x)\n"
    "y:sum():backward()",
    "c.checkpoint(function(a) close() return a * 2 end, x)",
    "c.no_grad(function() close() return x * 2 end)",
    "c.scope(function() local y = x * 2 close() return y end)",
    "c.kernel(function(a) close() return a * 2 end)(x)",
    "c.kernel(function(a) local b = a * 2 close() return b end)(x)",
    "c.vmap_run(3, function() close() return c.vmap_in(x) * 2 end)",
    "x:register_hook(function()\n"
    "  local w, _ <close> = c.ones(3, {requires_grad = true}), "
    "c.enable_grad()\n"
    "  w:register_hook(close); (w * 2):sum():backward()\n"
    "end); (x * 2):sum():backward()",
    "setmetatable({}, {__gc = close})\n"
    "for i = 1, 1e4 do local y = x * 2 + 1 end",
    "setmetatable({}, {__gc = function() close() local y = x * 2 end})\n"
    "for i = 1, 1e4 do local y = c.tensor{{1, 2}, {3, 4}} end",
    "setmetatable({}, {__gc = close}) c.memory.limit(1 << 20)\n"
    "collectgarbage 'stop' keep = {} for i = 1, 1000 do keep[i % 2] = "
    "c.zeros(30000) end",
    "coroutine.wrap(function() local _ <close> = c.no_grad() close() end)()",
    "setmetatable(x.shape, nil)", /* fails, and closes nothing */
    "close() x:sum()",
};

static void test_close_inside(void) {
  for (size_t k = 0; k < 2 * sizeof closers / sizeof *closers; k++) {
    bool own = k % 2;
    lua_State *L = own ? NULL : luaL_newstate();
    if (own)
      CHECK(fl_lua_open(NULL, &inside) == FL_OK);
    else {
      luaL_openlibs(L);
      CHECK(fl_lua_attach(L, NULL, &inside) == FL_OK);
    }
    L = fl_lua_state(inside);
    lua_register(L, "close", close_it);
    CHECK(fl_lua_run(inside,
                     "c = require 'flare.core'\n"
                     "x = c.ones(3, {requires_grad = true})\n",
                     "=t") == FL_OK);
    fl_status s = fl_lua_run(inside, closers[k / 2], "=t");
    bool closes = strstr(closers[k / 2], "close") != NULL;
    CHECK(own && closes ? s != FL_OK : true);
    if (closes && s == FL_ELUA)
      CHECK(strstr(fl_error(), "closed"));
    if (own && !closes)
      fl_lua_close(inside);
    if (own)
      continue;
    if (closes) {
      CHECK(fl_lua_of(L) == NULL);
      CHECK(luaL_dostring(L, "return c.zeros(1)") != 0);
      CHECK(strstr(lua_tostring(L, -1), "closed"));
      CHECK(luaL_dostring(L, "assert(x.closed)") == 0);
    }
    lua_close(L);
  }
}

/* The host's own callbacks, in the middle of a long operator. */
static void test_close_interrupted(void) {
  bool armed = true;
  fl_runtime_options r = {.struct_size = sizeof r,
                          .interrupted = close_when_asked,
                          .context = &armed};
  fl_lua_options o = {.struct_size = sizeof o, .runtime = &r};
  CHECK(fl_lua_open(&o, &inside) == FL_OK);
  CHECK(fl_lua_run(inside,
                   "local c = require 'flare.core'\n"
                   "for i = 1, 100 do local y = c.ones(500, 500):matmul("
                   "c.ones(500, 500)) end",
                   "=t") != FL_OK);
  CHECK(!armed);
}

/* A state whose collector was stopped is closed like any other. */
static void test_close_stopped(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  CHECK(fl_lua_attach(L, NULL, &inside) == FL_OK);
  CHECK(luaL_dostring(L, "collectgarbage 'stop'\n"
                         "x = require('flare.core').ones(3)") == 0);
  fl_lua_close(inside);
  CHECK(luaL_dostring(L, "assert(x.closed)") == 0);
  lua_close(L);
}

int main(void) {
  test_calls();
  test_library();
  test_attach();
  test_few_libraries();
  test_operator();
  test_two();
  test_functions();
  test_interrupt();
  test_host_interrupts();
  test_limit();
  test_null();
  test_many();
  test_close_inside();
  test_close_interrupted();
  test_close_stopped();
  return check_done("lua_host");
}
