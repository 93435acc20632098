/* Errors as a script sees them: the user's line in front, the path of the
 * module that was running behind, and the nearest known name for a wrong one.
 * The one place that raises. What is added to Lua's own errors is in hint.c. */
#include "provenance.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

/* --- where: the first line that is not the library's own --- */

static void push_where(lua_State *L, fl_lua *st) {
  lua_Debug ar;
  fl_site site = st && st->rt ? fll_site_from(L, st, 0) : 0;
  if (site) {
    lua_pushfstring(L, "%s: ", fl_site_text(st->rt, site));
    return;
  }
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline >= 0) {
      lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
      return;
    }
  }
  lua_pushliteral(L, "");
}

/* --- in which module: those that are called, or `self` of a method --- */

/* Pushes the name of the table at `inner` among the fields of the one at
 * `outer`, also inside a list there ("blocks.2"); false: it is not there. */
static bool push_name_in(lua_State *L, int outer, int inner, int depth) {
  outer = lua_absindex(L, outer);
  luaL_checkstack(L, 8, NULL);
  lua_pushnil(L);
  while (lua_next(L, outer)) {
    bool named = lua_type(L, -2) == LUA_TSTRING || lua_isinteger(L, -2);
    const char *s = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (named && s[0] != '_') {
      if (lua_rawequal(L, -1, inner)) {
        lua_pop(L, 1);
        luaL_tolstring(L, -1, NULL);
        lua_replace(L, -2);
        return true;
      }
      if (depth > 0 && lua_istable(L, -1) &&
          push_name_in(L, -1, inner, depth - 1)) {
        lua_pushvalue(L, -3);
        lua_pushliteral(L, ".");
        lua_pushvalue(L, -3);
        lua_concat(L, 3);
        lua_replace(L, -4);
        lua_pop(L, 2);
        return true;
      }
    } else if (depth > 0 && s[0] == '_' && strcmp(s, "_modules") == 0 &&
               lua_istable(L, -1) && push_name_in(L, -1, inner, 0)) {
      lua_replace(L, -3);
      lua_pop(L, 1);
      return true;
    }
    lua_pop(L, 1);
  }
  return false;
}

static bool is_module(lua_State *L, int i) {
  bool yes =
      lua_getfield(L, i, "__module") == LUA_TBOOLEAN && lua_toboolean(L, -1);
  lua_pop(L, 1);
  return yes;
}

static void push_class(lua_State *L, int i) {
  if (luaL_getmetafield(L, i, "__name") == LUA_TSTRING)
    return;
  lua_settop(L, 5);
  lua_pushliteral(L, "model");
}

/* Pushes "GPT.blocks.2.mlp", or nothing at all when no module runs; "Linear,
 * called by GPT.blocks.2" for one that is no part of the model. Argument 1 is
 * the thread to look at. Protected by its caller: fields are read. */
static int module_path(lua_State *L) {
  lua_State *of = lua_touserdata(L, 1);
  lua_Debug ar;
  int depth = 0;
  while (lua_getstack(of, depth, &ar))
    depth++;
  lua_settop(L, 1);
  lua_pushnil(L);         /* 2: the module around */
  lua_pushliteral(L, ""); /* 3: the path */
  lua_pushliteral(L, ""); /* 4: the model's, where it calls another's module */
  for (int level = depth - 1; level >= 0; level--) {
    if (!lua_getstack(of, level, &ar))
      continue;
    const char *name = lua_getlocal(of, &ar, 1);
    if (!name)
      continue;
    bool self = strcmp(name, "self") == 0 ||
                (*name == '(' && fll_is_module_call(of, &ar));
    if (of != L)
      lua_xmove(of, L, 1);
    if (self && lua_istable(L, -1) && !lua_rawequal(L, -1, 2) &&
        is_module(L, lua_gettop(L))) {
      if (lua_istable(L, 2) && push_name_in(L, 2, 5, 2)) {
        lua_pushvalue(L, 3);
        lua_pushliteral(L, ".");
        lua_rotate(L, -3, -1);
        lua_concat(L, 3);
      } else {
        if (lua_rawlen(L, 4) == 0) {
          lua_pushvalue(L, 3);
          lua_replace(L, 4);
        }
        push_class(L, 5);
      }
      lua_replace(L, 3);
      lua_pushvalue(L, 5);
      lua_replace(L, 2);
    }
    lua_settop(L, 4);
  }
  if (lua_rawlen(L, 4) == 0)
    lua_settop(L, 3);
  else
    lua_pushfstring(L, "%s, called by %s", lua_tostring(L, 3),
                    lua_tostring(L, 4));
  return 1;
}

/* Whether the text names the module itself: "nn.Linear: ..." for "Linear". */
static bool names_module(const char *text, const char *path) {
  size_t n = strlen(path);
  if (strncmp(text, "nn.", 3) == 0)
    text += 3;
  return strncmp(text, path, n) == 0 && text[n] == ':';
}

/* Appends " (in GPT.blocks.2)" to the string on top, which ends in `text`, but
 * not to an error that a device reports late: its launch was in another module,
 * or in none. */
static void add_module(lua_State *L, const char *text) {
  lua_Debug ar;
  if (strstr(text, "(launched at "))
    return;
  if (!lua_getstack(L, 0, &ar) || !lua_checkstack(L, 16))
    return;
  lua_pushcfunction(L, module_path);
  lua_pushlightuserdata(L, L);
  if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_rawlen(L, -1) > 0 &&
      !names_module(text, lua_tostring(L, -1))) {
    lua_pushfstring(L, "%s (in %s)", lua_tostring(L, -2), lua_tostring(L, -1));
    lua_replace(L, -3);
  }
  lua_pop(L, 1);
}

/* --- raising --- */

static fl_lua *state_or_null(lua_State *L) {
  fll_getkey(L, FLL_STATE);
  fl_lua *st = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return st;
}

/* What the user called, where that is not the row's name. */
static const char *rename_row(lua_State *L, fl_lua *st, const char *text) {
  size_t n = st && st->row ? strlen(st->row) : 0;
  if (n > 0 && strncmp(text, st->row, n) == 0) {
    n += text[n] == '_'; /* in place */
    if (text[n] == ':')
      text = lua_pushfstring(L, "%s%s", st->known, text + n);
  }
  if (st)
    st->row = NULL;
  return text;
}

/* Whether the value on top is a part of the library, such as flare or nn. */
bool fll_is_part(lua_State *L) {
  if (lua_type(L, -1) != LUA_TTABLE || !lua_getmetatable(L, -1))
    return false;
  lua_pushliteral(L, "__pairs");
  lua_rawget(L, -2);
  lua_pushliteral(L, "__name");
  lua_rawget(L, -3);
  bool part = lua_isfunction(L, -2) && lua_type(L, -1) == LUA_TSTRING;
  lua_pop(L, 3);
  return part;
}

/* The last word of a part's name on top: "init" of nn.init. */
static const char *part_name(lua_State *L) {
  const char *name = "", *last;
  if (luaL_getmetafield(L, -1, "__name") == LUA_TSTRING)
    name = lua_tostring(L, -1);
  last = strrchr(name, '.');
  return last ? last + 1 : name;
}

/* Whether the frame of this level is Lua code of the library. */
static bool is_library_frame(lua_State *L, const fl_lua *st, int level) {
  lua_Debug ar;
  return st && lua_getstack(L, level, &ar) && lua_getinfo(L, "Sl", &ar) &&
         ar.currentline >= 0 && fll_is_library(st, ar.source);
}

/* What to add where a part of the library was passed as the first argument of
 * a function of the library, as by flare:zeros(2); "" elsewhere. */
static const char *colon_hint(lua_State *L, const fl_lua *st) {
  lua_Debug ar;
  const char *part = NULL, *f = "f";
  for (int level = 0; level < 12 && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sln", &ar);
    if (ar.currentline >= 0 && st && !fll_is_library(st, ar.source))
      break;
    if (strcmp(ar.namewhat, "metamethod") == 0) {
      if (!is_library_frame(L, st, level + 1)) /* nn.Linaer in a script */
        return "";
      continue; /* a function that reads its argument's fields */
    }
    if (strcmp(ar.namewhat, "method") == 0)
      f = ar.name;
    for (int i = 1; i <= 2 && !part && lua_getlocal(L, &ar, i); i++)
      if (fll_is_part(L))
        part = part_name(L);
      else
        lua_pop(L, 1);
  }
  if (!part)
    return "";
  return lua_pushfstring(L, "; call it with a dot: %s.%s(...), not %s:%s(...)",
                         part, f, part, f);
}

static int raise_text(lua_State *L, const char *text) {
  fl_lua *st = state_or_null(L);
  luaL_checkstack(L, 20, NULL);
  text = rename_row(L, st, text);
  text = lua_pushfstring(L, "%s%s", text, colon_hint(L, st));
  push_where(L, st);
  lua_pushstring(L, text);
  lua_concat(L, 2);
  add_module(L, text);
  fll_note_operands(L, st);
  return lua_error(L);
}

int fll_error(lua_State *L, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  fli_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  raise_text(L, text);
  __builtin_unreachable();
}

/* The runtime has come back to Lua, so this is where a close in one of its
 * callbacks may take place. */
int fll_raise(lua_State *L, fl_lua *st, fl_status s) {
  if (st->closing) {
    lua_pushstring(L, fl_error());
    fll_shut_soon(st);
    raise_text(L, lua_tostring(L, -1));
  }
  if (s == FL_ELUA && st->error) {
    st->error = false;
    fll_getkey(L, FLL_ERROR);
    lua_rawgeti(L, -1, 1);
    lua_pushboolean(L, 0);
    lua_rawseti(L, -3, 1);
    lua_error(L);
  }
  if (s == FL_EINTERRUPT)
    fll_error(L, "interrupted!");
  const char *text = fl_error();
  raise_text(L, text[0] ? text : fl_status_text(s));
  __builtin_unreachable();
}

int fll_failed(lua_State *L, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  fli_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  lua_pushnil(L);
  lua_pushstring(L, text);
  return 2;
}

/* "sum: x: expected a tensor, got nil", with what would be right. */
int fll_argerror(lua_State *L, const char *where, const char *param,
                 const char *wanted, int i) {
  const char *hint = "";
  if (fll_is_closed(L, i))
    fll_error(L, "%s: %s: tensor is closed%s", where, param,
              fll_closer(L, lua_touserdata(L, i)));
  if (strstr(wanted, "tensor")) {
    int type = lua_type(L, i);
    bool dot = i == 1 && (type <= LUA_TNIL || type == LUA_TNUMBER);
    if (type == LUA_TTABLE) {
      lua_pushnil(L);
      dot = i == 1 && lua_next(L, i) && lua_type(L, -2) == LUA_TSTRING;
      hint = "; make a tensor of it: flare.tensor{...}";
    }
    if (dot)
      hint = "; methods are called with ':', as in x:sum()";
  }
  fll_error(L, "%s: %s: expected %s, got %s%s", where, param, wanted,
            fll_typename(L, i), hint);
}

/* Refuses a table without elements but with names, such as flare itself. */
void fll_checklist(lua_State *L, int i, const char *where, const char *param) {
  i = lua_absindex(L, i);
  lua_pushnil(L);
  if (lua_next(L, i))
    fll_error(L, "%s: %s: expected a list, got a table of names", where, param);
}

/* model.forward(x) makes x the self of a function that is no tensor's. */
const char *fll_selfhint(lua_State *L) {
  lua_Debug ar;
  if (!lua_getstack(L, 1, &ar))
    return "";
  const char *name = lua_getlocal(L, &ar, 1);
  bool self = name && strcmp(name, "self") == 0 && fll_test(L, -1);
  lua_pop(L, name != NULL);
  return self ? "; methods are called with ':', as in model:forward(x)" : "";
}

/* --- nearest names --- */

/* Edits from one to the other (insert, delete, replace, swap), bounded. */
static int distance(const char *a, const char *b) {
  enum { N = 32 };
  int la = (int)strlen(a), lb = (int)strlen(b);
  if (la >= N || lb >= N)
    return N;
  int d[3][N + 1];
  for (int j = 0; j <= lb; j++)
    d[0][j] = j;
  for (int i = 1; i <= la; i++) {
    int *now = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
    now[0] = i;
    for (int j = 1; j <= lb; j++) {
      int best = up[j - 1] + (a[i - 1] != b[j - 1]);
      if (up[j] + 1 < best)
        best = up[j] + 1;
      if (now[j - 1] + 1 < best)
        best = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          up2[j - 2] + 1 < best)
        best = up2[j - 2] + 1;
      now[j] = best;
    }
  }
  return d[la % 3][lb];
}

/* Names that people bring along from PyTorch, Torch7 and NumPy, where they are
 * not near to what is meant. */
static const struct {
  const char *theirs, *ours;
} synonyms[] = {
    {"axis", "dim"},
    {"axis", "dims"},
    {"num_layers", "layers"},
    {"learning_rate", "lr"},
    {"step_size", "every"},
    {"batch_size", "batch"},
    {"sum_to_size", "sum_to"},
    {"num_workers", "workers"},
    {"unbiased", "correction"},
    {"ddof", "correction"},
    {"array", "tensor"},
    {"as_tensor", "tensor"},
    {"conv2d", "conv"},
    {"scaled_dot_product_attention", "attention"},
    {"binary_cross_entropy", "bce_loss"},
    {"binary_cross_entropy_with_logits", "bce_with_logits"},
    {"CosineAnnealingLR", "CosineLR"},
    {"CosineAnnealingWarmRestarts", "CosineRestartsLR"},
    {"ReduceLROnPlateau", "PlateauLR"},
    {"ChainedScheduler", "ChainedLR"},
    {"MultiplicativeLR", "LambdaLR"},
    {"total_iters", "total"},
    {"base_lr", "floor"},
    {"eta_min", "floor"},
    {"step_size_up", "up"},
    {"step_size_down", "down"},
    {"adjust_lr_fn", "adjust"},
    {"lambd", "lambda"},
    {"T_max", "total"},
    {"total_steps", "total"},
    {"milestones", "at"},
    {"lr_lambda", "f"},
    {"scale_factor", "scale"},
    {"FloatTensor", "tensor"},
    {"uniform", "rand"},
    {"normal", "randn"},
    {"seed", "manual_seed"},
    {"seed", "generator"},
    {"get_num_threads", "threads"},
    {"astype", "to"},
    {"data", "detach"},
    {"list", "totable"},
    {"numpy", "totable"},
    {"type_as", "to"},
    {"float64", "double"},
    {"ndimension", "dim"},
    {"is_cuda", "device"},
    {"from_numpy", "from_dlpack"},
    {"resize", "view"},
    {"resizeAs", "view_as"},
    {"evaluate", "eval"},
    {"getParameters", "parameters"},
    {"zeroGradParameters", "zero_grad"},
    {"updateOutput", "forward"},
    {"predict", "forward"},
    {"DataLoader", "Loader"},
    {"TensorDataset", "Tensors"},
    {"ConcatDataset", "Concat"},
    {"random_split", "split"},
    {"kl_divergence", "kl"},
    {"dim_feedforward", "hidden"},
    {"activation", "act"},
    {"num_encoder_layers", "encoder"},
    {"num_decoder_layers", "decoder"},
    {"kdim", "memory"},
    {"proj_size", "projection"},
    {"padding_idx", "padding"},
    {"per_sample_weights", "weights"},
    {"distance_function", "distance"},
    {"TripletMarginWithDistanceLoss", "TripletMarginLoss"},
    {"SyncBatchNorm", "sync_norms"},
    {"register_parametrization", "parametrize"},
    {"remove_weight_norm", "remove_parametrization"},
    {"remove_spectral_norm", "remove_parametrization"},
    {"kaiming_uniform_", "kaiming_"},
    {"kaiming_normal_", "kaiming_"},
    {"xavier_uniform_", "xavier_"},
    {"xavier_normal_", "xavier_"},
    {"trunc_normal_", "truncated_normal_"},
    {"calculate_gain", "gain"},
    {"ReflectionPad2d", "Pad"},
    {"ReplicationPad2d", "Pad"},
    {"ConstantPad2d", "Pad"},
    {"UpsamplingBilinear2d", "Upsample"},
    {"UpsamplingNearest2d", "Upsample"},
    {"LookupTable", "Embedding"},
    {"SpatialConvolution", "Conv2d"},
    {"SpatialMaxPooling", "MaxPool2d"},
    {"SpatialBatchNormalization", "BatchNorm2d"},
    {"Reshape", "Unflatten"},
    {"View", "Unflatten"},
    {"ZeroPad2d", "Pad"},
    {"CrossEntropyCriterion", "CrossEntropyLoss"},
    {"ClassNLLCriterion", "NLLLoss"},
    {"MSECriterion", "MSELoss"},
    {"BCECriterion", "BCELoss"},
    {"AbsCriterion", "L1Loss"},
};

/* That of the list which is meant by another library's name. */
static const char *synonym(const char *name, int n,
                           const char *(*at)(const void *, int),
                           const void *list) {
  for (size_t k = 0; k < sizeof synonyms / sizeof synonyms[0]; k++)
    for (int i = 0; i < n && strcasecmp(name, synonyms[k].theirs) == 0; i++)
      if (strcasecmp(at(list, i), synonyms[k].ours) == 0)
        return at(list, i);
  return NULL;
}

/* The name without "_" of a form in place, unless one was asked for. */
static const char *plain_twin(const char *name, const char *best, int n,
                              const char *(*at)(const void *, int),
                              const void *list) {
  size_t length = strlen(best), asked = strlen(name);
  if (length < 2 || best[length - 1] != '_' ||
      (asked && name[asked - 1] == '_'))
    return best;
  for (int i = 0; i < n; i++) {
    const char *s = at(list, i);
    if (strlen(s) == length - 1 && memcmp(s, best, length - 1) == 0)
      return s;
  }
  return best;
}

const char *fll_nearest(const char *name, int n,
                        const char *(*at)(const void *, int),
                        const void *list) {
  const char *best = synonym(name, n, at, list);
  if (best)
    return best;
  int length = (int)strlen(name), least = length / 3 + (length < 8 ? 1 : 2);
  for (int i = 0; i < n; i++) {
    const char *s = at(list, i);
    int d = distance(name, s);
    if (d < least && d < length) {
      least = d;
      best = s;
    }
  }
  return best ? plain_twin(name, best, n, at, list) : NULL;
}

/* core.raise(message): as our own errors, at the user's line, with the module.
 * For the library's Lua files. */
static int raise(lua_State *L) {
  return raise_text(L, luaL_checkstring(L, 1));
}

const char *fll_name_at(const void *list, int i) {
  return ((const char *const *)list)[i];
}

/* core.nearest(name, names) */
static int nearest(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 2);
  const char **names = fll_scratch(L, (size_t)(n + 1) * sizeof *names);
  int have = 0;
  for (int i = 1; i <= n; i++) {
    if (lua_rawgeti(L, 2, i) == LUA_TSTRING)
      names[have++] = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  lua_pushstring(L, fll_nearest(name, have, fll_name_at, names));
  return 1;
}

/* core.library(prefix): files whose source starts so are the library's, errors
 * are blamed on the line that called them. */
static int library(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (!lua_isnoneornil(L, 1)) {
    const char *prefix = luaL_checkstring(L, 1);
    if (strlen(prefix) >= sizeof st->library)
      fll_error(L, "library: prefix is too long");
    strcpy(st->library, prefix);
  }
  lua_pushstring(L, st->library);
  return 1;
}

void fll_error_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"raise", raise},
                                       {"nearest", nearest},
                                       {"library", library},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
