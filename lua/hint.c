/* Hints for errors that Lua itself raises: what a newcomer's slip from Python,
 * PyTorch or JavaScript is in Lua. Raising is in error.c. */
#include "fll.h"

#include <ctype.h>

static const struct {
  const char *part, *hint;
} hints[] = {
    {"near '!'", "Lua writes not x, and not equal as ~= (tensors: x:ne(y))"},
    {"near '!='", "Lua writes not equal as ~= (tensors: x:ne(y))"},
    {"syntax error near '+'", "Lua has no += or ++: x = x + 1, or x:add_(1)"},
    {"syntax error near '-'", "Lua has no -= or --: x = x - 1, or x:sub_(1)"},
    {"syntax error near '*'",
     "a power is x ^ y; Lua has no *=: x = x * 2, or x:mul_(2)"},
    {"syntax error near '/'", "Lua has no /=: x = x / 2, or x:div_(2)"},
    {"unexpected symbol near '*'", "a power is x ^ y"},
    {"unexpected symbol near '['", "a list is {1, 2, 3}"},
    {"unexpected symbol near '{'", "a block has no braces, it ends with end"},
    {"near '@'", "a product of matrices is x:matmul(y)"},
    {"near '?'", "Lua chooses by: condition and x or y"},
    {"near '#'", "a comment begins with --"},
    {"near '//'", "a comment begins with --"},
    {"']' expected near ':'", "a range of positions is x[{{first, last}}]"},
    {"']' expected near ','", "several positions are a table: x[{1, 2}]"},
    {"unexpected symbol near ':'", "all of a dim is {}: x[{{}, 1}]"},
    {"<name> expected near 'repeat'",
     "it is x:tile({2, 1}): repeat is a word of Lua"},
    {"function arguments expected near", "a method is called: x:dim()"},
    {"'}' expected near ':'", "a table is {name = value, [key] = value}"},
    {"')' expected near '='",
     "what has names is a table: f(x, {name = value})"},
    {"'then' expected near '='", "Lua compares by =="},
    {"'then' expected near ':'", "Lua writes: if condition then ... end"},
    {"'then' expected near <eof>", "Lua writes: if condition then ... end"},
    {"'do' expected near",
     "Lua writes: for ... do ... end, while ... do ... end"},
    {") near ':'", "a table is {name = value, [key] = value}"},
    {"'}' expected (to close '{'", "a comma stands between what is in a table"},
    {"syntax error near 'flare'",
     "Lua has no import or with: local flare = require \"flare\", "
     "flare.no_grad(function() ... end)"},
    {"')' expected near ','",
     "Lua has no tuples: flare.zeros(3, 4), or a table: {3, 4}"},
    {"attempt to add a 'string'", "strings are joined by .."},
    {"add: a: expected a tensor or a number, got string",
     "strings are joined by ..: \"loss \" .. loss:item()"},
    {"attempt to mod a 'string'", "it is (\"%d of %s\"):format(x, y)"},
    {"attempt to concatenate a", "tostring(x) is a text for any x"},
    {"attempt to compare number with string", "tonumber(s) is its number"},
    {"attempt to compare string with number", "tonumber(s) is its number"},
    {"number has no integer representation",
     "%d takes whole numbers; others are written by %g or %.3f"},
    {"non-closable value",
     "a guard is what a call returns: local _ <close> = flare.no_grad()"},
    {"near '&'", "Lua writes and, or, not"},
    {"near '|'", "Lua writes and, or, not"},
    {"(global 'flare')",
     "a script starts with: local flare = require \"flare\""},
    {"(global 'torch')",
     "torch is flare here: local flare = require \"flare\""},
    {"(global 'np')",
     "arrays are flare's tensors: local flare = require \"flare\""},
    {"(global 'F')", "its functions are in flare: flare.relu(x)"},
    {"(global 'f')", "for f\"{x}\" write (\"%g\"):format(x)"},
    {"(global 'plt')", "x:plot(\"losses.svg\"), or :plot x at the prompt"},
    {"(global 'time')", "os.time() and os.clock() give seconds"},
    {"(global 'random')", "it is math.random(n), or flare.rand(sizes)"},
    {"(global 'max')", "of numbers it is math.max, of tensors flare.max"},
    {"(global 'min')", "of numbers it is math.min, of tensors flare.min"},
    {"(global 'abs')", "of numbers it is math.abs, of tensors flare.abs"},
    {"(global 'exp')", "of numbers it is math.exp, of tensors flare.exp"},
    {"(global 'sqrt')", "of numbers it is math.sqrt, of tensors flare.sqrt"},
    {"(global 'log')", "of numbers it is math.log, of tensors flare.log"},
    {"(global 'float')", "it is tonumber(x); x:to(\"f32\") of a tensor"},
    {"(global 'list')", "a list is {1, 2, 3}"},
    {"(global 'dict')", "a table is {name = value}"},
    {"(global 'zip')", "Lua writes: for i = 1, #a do ... a[i], b[i] ... end"},
    {"(global 'sorted')", "it is table.sort(list)"},
    {"(global 'isinstance')",
     "it is type(x), flare.is_tensor(x) or flare.class.is(x, Net)"},
    {"(global 'input')", "it is io.read()"},
    {"(global 'open')", "it is io.open(path)"},
    {"(global 'exit')", "it is os.exit()"},
    {"(global 'printf')", "it is print((\"%d\"):format(x))"},
    {"(global 'console')", "it is print(x)"},
    {"(global 'super')", "nothing is needed there; for a parent's own init: "
                         "Net.parent.init(self, ...)"},
    {"(global 'this')", "it is self"},
    {"(global 'try')", "errors are caught by: local ok, message = pcall(f)"},
    {"module 'torch' not found", "torch is flare here: require \"flare\""},
    {"attempt to call a table value (for iterator",
     "a list is walked by: for i, x in ipairs(list) do"},
    {"'for iterator' (table expected, got function)",
     "an iterator needs no pairs: for name, p in model:named_parameters() do"},
    {"nil value (field 'integer index')",
     "there is nothing at this position; positions count from 1"},
    {"nil value (field '?')",
     "there is nothing at this position; positions count from 1"},
    {"nil value (field '0.weight')", "names count from 1: \"1.weight\""},
    {"nil value (field '0.bias')", "names count from 1: \"1.bias\""},
    {"nil value (method 'append')", "a list grows by list[#list + 1] = x"},
    {"nil value (field 'append')", "a list grows by list[#list + 1] = x"},
    {"nil value (method 'push')", "a list grows by list[#list + 1] = x"},
    {"nil value (method 'split')",
     "for word in s:gmatch(\"[^,]+\") do ... end cuts a string"},
    {"nil value (method 'strip')", "it is s:match(\"^%s*(.-)%s*$\")"},
    {"nil value (method 'trim')", "it is s:match(\"^%s*(.-)%s*$\")"},
    {"nil value (method 'startswith')", "it is s:sub(1, #start) == start"},
    {"nil value (method 'replace')", "it is s:gsub(from, to)"},
    {"nil value (method 'join')", "it is table.concat(list, \", \")"},
    {"nil value (method 'items')", "it is for key, value in pairs(t) do"},
    {"nil value (method 'keys')", "it is for key in pairs(t) do"},
    {"nil value (method 'grad')", "it is read without (): x.grad"},
    {"(global 'len')", "a length is #x"},
    {"(global 'range')", "Lua counts by: for i = 1, n do"},
    {"(global 'enumerate')", "Lua writes: for i, value in ipairs(list) do"},
    {"(global 'str')", "it is tostring(x)"},
    {"(global 'int')", "it is math.floor(x)"},
    {"(method 'extend')", "it is local Net = flare.class(\"Net\", nn.Module)"},
    {"(method 'children')", "it is model:modules(), or model:named_modules()"},
    {"(method 'register_buffer')", "it is self.name = self:buffer(tensor)"},
    {"(method 'register_parameter')", "it is self.name = self:param(tensor)"},
    {"(method 'add_module')", "it is self.name = module"},
    {"(method 'requires_grad_')", "it is model:freeze(), model:freeze(false)"},
    {"(method 'get_last_lr')", "it is schedule:lr()"},
    {"(method 'add')", "it is model:append(layer)"},
    {"have no 'cpu'", "it is x:to(\"cpu\")"},
    {"have no 'values'", "x:max(1) and x:sort() return values and positions"},
    {"have no 'indices'", "x:max(1) and x:sort() return values and positions"},
    {"have no 'numpy'", "files are shared: flare.io.npy.save(path, x)"},
    {"attempt to index a function value (field 'fft')", "it is flare.fft(x)"},
    {"attempt to index a function value (field 'func')",
     "flare.func makes a function with a gradient of its own; vmap and grad "
     "are flare.vmap and flare.grad"},
    {"attempt to index a function value (field 'named_",
     "it is for name, p in model:named_parameters() do"},
    {"attempt to index a function value (field",
     "a method is called: x:size(1)"},
    {"attempt to index a function value",
     "an iterator is read by for: for name, p in model:named_parameters() do"},
    {"(field 'is_available')", "it is flare.cuda.available()"},
    {"(field 'param_groups')", "it is optimizer.groups"},
    {"nil value (field 'grad')",
     "it is there after backward, if x requires a gradient"},
    {"(number expected, got flare.tensor)", "a tensor's number is x:item()"},
    {"but must be positions",
     "whole numbers are made by flare.tensor({1, 2}, {dtype = \"i64\"})"},
    {"a list of parameters is expected, got an empty one",
     "a module's tensor is a parameter by self.weight = self:param(tensor)"},
    {"but must be floats", "x:float() makes floats of it"},
    {"but must be integers", "x:long() makes integers of it"},
    {"but must be bool", "comparisons such as x:gt(0) give bool"},
    {", the ones before on ", "x:to(device) copies it there"},
    {"options are a table such as {dtype = ...}, got an integer",
     "all elements are one table: flare.tensor{1, 2, 3}"},
    {"and must be i64 or i32",
     "whole numbers are made by flare.tensor({1, 2}, {dtype = \"i64\"})"},
    {"attempt to call a string value (", "it is read without (): x.dtype"},
    {"attempt to call a number value (", "it is read without (): x.ndim"},
    {"attempt to call a boolean value (",
     "it is read without (): x.requires_grad, model.training"},
    {" value (local 'self')",
     "methods are called with ':', as in model:forward(x)"},
    {"attempt to index a nil value (global 'self')",
     "methods are defined with ':', as in function Net:forward(x)"},
    {"attempt to index a boolean value",
     "== gives true or false; elementwise it is x:eq(y)"},
    {"attempt to call a flare.shape value", "shape is a table: x.shape[1]"},
    {"C stack overflow", "modules can call each other about 190 deep"},
};

static int field(lua_State *L) {
  lua_gettable(L, 1);
  return 1;
}

/* Pushes the X of "(kind 'X')" in a message. */
static bool push_name(lua_State *L, const char *text, const char *kind) {
  const char *name = strstr(text, kind);
  const char *end = name ? strchr(name += strlen(kind), '\'') : NULL;
  if (end)
    lua_pushlstring(L, name, (size_t)(end - name));
  return end != NULL;
}

/* Pushes the global that the message lacks, if it is a name of flare's. */
static bool push_ours(lua_State *L, const char *text) {
  if (!push_name(L, text, "(global '"))
    return false;
  lua_pushcfunction(L, field);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  int has = lua_getfield(L, -1, "flare");
  lua_remove(L, -2);
  lua_pushvalue(L, 2);
  bool ours =
      has == LUA_TTABLE && lua_pcall(L, 2, 1, 0) == LUA_OK && !lua_isnil(L, -1);
  lua_settop(L, 2);
  return ours;
}

/* Pushes the method that was meant, if the message lacks one that has nearly
 * its name: of all classes that are loaded, as the object is not known. */
static bool push_method(lua_State *L, const char *text) {
  enum { MOST = 512 };
  const char *names[MOST];
  int n = 0;
  lua_settop(L, 1);
  if (!push_name(L, text, "(method '"))
    return false;
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  for (lua_pushnil(L); lua_next(L, 3); lua_settop(L, 4)) {
    if (!lua_istable(L, 5) || luaL_getmetafield(L, 5, "__call") == LUA_TNIL)
      continue;
    lua_settop(L, 5);
    for (lua_pushnil(L); lua_next(L, 5); lua_pop(L, 1))
      if (n < MOST && lua_isfunction(L, -1) && lua_type(L, -2) == LUA_TSTRING)
        names[n++] = lua_tostring(L, -2); /* the class keeps it */
  }
  const char *said = lua_tostring(L, 2);
  const char *near = fll_nearest(said, n, fll_name_at, names);
  bool other = near && strcmp(near, said) != 0; /* not another class's own */
  lua_settop(L, 1);
  lua_pushstring(L, near);
  return other;
}

enum { NAMES = 512 };

/* Adds the keys of the table at the top that are names to a list, and those of
 * the tables in its fields that begin with _, as modules keep their parts. */
static int add_keys(lua_State *L, const char **names, int n, int depth) {
  int t = lua_gettop(L);
  luaL_checkstack(L, 6, NULL);
  for (lua_pushnil(L); lua_next(L, t); lua_settop(L, t + 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      continue;
    const char *key = lua_tostring(L, -2); /* the table keeps it */
    if (key[0] == '_' && depth > 0 && lua_istable(L, -1))
      n = add_keys(L, names, n, depth - 1);
    else if (key[0] != '_' && n < NAMES && !lua_rawequal(L, -2, 2))
      names[n++] = key;
  }
  return n;
}

/* Pushes the field that was meant, if the message lacks one that has nearly the
 * name of one in a table among the variables of the function that failed. */
static bool push_field(lua_State *L, const char *text) {
  const char *names[NAMES], *at = NULL;
  int n = 0;
  lua_Debug ar;
  lua_settop(L, 1);
  if (!strstr(text, "nil value (field '") || !push_name(L, text, "(field '"))
    return false;
  for (int level = 1; !at && level < 8 && lua_getstack(L, level, &ar);
       level++) {
    lua_getinfo(L, "Slf", &ar);
    at = lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
    at = strncmp(text, at, strlen(at)) == 0 ? at : NULL;
    lua_pop(L, at ? 1 : 2); /* the function stays */
  }
  for (int upvalues = 0; at && upvalues < 2; upvalues++)
    for (int i = 1; upvalues ? lua_getupvalue(L, 3, i) != NULL
                             : lua_getlocal(L, &ar, i) != NULL;
         i++, lua_settop(L, 3))
      if (lua_istable(L, -1) && !fll_is_part(L))
        n = add_keys(L, names, n, 1);
  const char *near = fll_nearest(lua_tostring(L, 2), n, fll_name_at, names);
  lua_settop(L, 1);
  lua_pushstring(L, near);
  return near != NULL;
}

/* Pushes the class of an object that was called and is no module. */
static bool push_uncallable(lua_State *L, const char *text) {
  static const char start[] = "attempt to call a ";
  const char *name = strstr(text, start), *end;
  if (!name || !isupper((unsigned char)name[sizeof start - 1]))
    return false;
  name += sizeof start - 1;
  for (end = name; isalnum((unsigned char)*end) || *end == '_'; end++)
    ;
  lua_pushlstring(L, name, (size_t)(end - name));
  return strncmp(end, " value", 6) == 0;
}

/* Whether the text has the part, and no longer name where the part ends in one.
 */
static bool has_part(const char *text, const char *part) {
  size_t n = strlen(part);
  bool name = isalpha((unsigned char)part[n - 1]);
  for (const char *s = strstr(text, part); s; s = strstr(s + 1, part))
    if (!name || !(isalpha((unsigned char)s[n]) || s[n] == '_'))
      return true;
  return false;
}

const char *fll_hint_of(const char *text) {
  for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
    if (has_part(text, hints[i].part))
      return hints[i].hint;
  return NULL;
}

static void push_hinted(lua_State *L, const char *text) {
  const char *known = fll_hint_of(text);
  if (known)
    lua_pushfstring(L, "%s (%s)", text, known);
  else if (push_ours(L, text))
    lua_pushfstring(L, "%s (here it is flare.%s)", text, lua_tostring(L, -1));
  else if (push_method(L, text))
    lua_pushfstring(L, "%s (did you mean '%s'?)", text, lua_tostring(L, -1));
  else if (push_field(L, text))
    lua_pushfstring(L, "%s (did you mean '%s'?)", text, lua_tostring(L, -1));
  else if (push_uncallable(L, text))
    lua_pushfstring(L,
                    "%s (a model's class has a parent: "
                    "flare.class(\"%s\", nn.Module))",
                    text, lua_tostring(L, -1));
  else
    lua_pushstring(L, text);
}

/* Replaces the line of the library that an error of Lua itself begins with by
 * the script's line. Called by a message handler, on the stack of the error:
 * the library's innermost function is below the handler's. */
static const char *push_script_line(lua_State *L, const char *text) {
  fll_getkey(L, FLL_STATE);
  fl_lua *st = lua_touserdata(L, -1); /* NULL: none is open */
  lua_pop(L, 1);
  const char *library = st && st->rt && *st->library ? st->library + 1 : "";
  size_t n = strlen(library);
  const char *rest =
      n && strncmp(text, library, n) == 0 ? strchr(text, ':') : 0;
  lua_Debug ar = {.source = ""};
  int level = 0;
  while (rest && isdigit((unsigned char)rest[1]))
    rest++;
  if (!rest || rest[1] != ':')
    return lua_pushstring(L, text);
  while (!fll_is_library(st, ar.source) && lua_getstack(L, ++level, &ar))
    lua_getinfo(L, "S", &ar);
  fl_site site = fll_site_from(L, st, level);
  const char *where = site ? fl_site_text(st->rt, site) : library;
  return strncmp(where, library, n) == 0
             ? lua_pushstring(L, text)
             : lua_pushfstring(L, "%s%s", where, rest + 1);
}

/* core.hint(message): the message, with a hint if there is one for it. */
static int hint(lua_State *L) {
  luaL_checkstring(L, 1);
  lua_settop(L, 1);
  const char *text = push_script_line(L, lua_tostring(L, 1));
  lua_replace(L, 1);
  push_hinted(L, text);
  return 1;
}

void fll_hint_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"hint", hint}, {NULL, NULL}};
  fll_register(L, functions);
}
