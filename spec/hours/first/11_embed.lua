-- A C program that hosts flare: it scores rows by a model that a script has trained.
local flare = require "flare"
local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))

-- the model
local nn = flare.nn
flare.manual_seed(1)
local model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
local optimizer = flare.optim.Adam(model, {lr = 0.02})
for _ = 1, 300 do
  local x = flare.rand(64, 2)
  local loss = flare.mse_loss(model(x), x:sum{dim = 2, keepdim = true})
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
end
assert(flare.save(folder .. "/model.flare", model:state_dict()))

assert(flare.core.file.write_atomic(folder .. "/main.c", [[
#include <flare/flarelua.h>
#include <stdio.h>

static const char script[] =
    "local flare = require 'flare'\n"
    "local nn = flare.nn\n"
    "local model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))\n"
    "function load_model(path) model:load_state_dict(assert(flare.load(path))) end\n"
    "function score(x) return flare.no_grad(model, x) end\n";

int main(int argc, char **argv) {
  float rows[3][2] = {{0.1f, 0.2f}, {0.5f, 0.5f}, {0.9f, 0.4f}};
  int64_t shape[2] = {3, 2};
  fl_lua *f = NULL;
  fl_tensor *x = NULL, *y = NULL;
  float scores[3];
  if (argc < 2)
    return 2;
  if (fl_lua_open(NULL, &f) || fl_lua_run(f, script, "=script") ||
      fl_lua_call(f, "load_model", "s", argv[1]) ||
      fl_tensor_wrap(fl_lua_runtime(f), rows, FL_F32, 2, shape, NULL, NULL, &x) ||
      fl_lua_call(f, "score", "t>t", x, &y) ||
      fl_tensor_read(y, scores, sizeof scores)) {
    fprintf(stderr, "%s\n%s\n", fl_error(), f ? fl_lua_traceback(f) : "");
    fl_lua_close(f);
    return 1;
  }
  for (int i = 0; i < 3; i++)
    printf("%.3f\n", scores[i]);
  fl_tensor_release(x);
  fl_tensor_release(y);
  fl_lua_close(f);
  return 0;
}
]]))
local prefix = os.getenv "FLARE_PREFIX" or "/usr/local"
local command = ("PKG_CONFIG_PATH=%s/lib/pkgconfig cc %s/main.c -o %s/main "
  .. "$(PKG_CONFIG_PATH=%s/lib/pkgconfig pkg-config --cflags --libs flarelua lua5.4) "
  .. "-Wl,-rpath,%s/lib")
  :format(prefix, folder, folder, prefix, prefix)
assert(os.execute(command))
local pipe = io.popen(folder .. "/main " .. folder .. "/model.flare 2>&1")
local text = pipe:read "a"
pipe:close()
print(text)
local k, sums = 0, {0.3, 1.0, 1.3}
for number in text:gmatch "%S+" do
  k = k + 1
  assert(math.abs(tonumber(number) - sums[k]) < 0.1, number)
end
assert(k == 3)
os.execute("rm -r " .. folder)
