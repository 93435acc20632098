-- What `cmake --install` leaves is complete and may be moved: the program runs,
-- a stock Lua loads the module, and a project outside builds against it by
-- pkg-config and by CMake, shared and static. Where examples/embed is, that is the
-- project; it is copied out of the tree first.
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"
local prefix = place .. "/moved"

-- Runs a shell command in `place`; its output, which a failure shows.
local function run(command)
  local text = tree.output(("(cd '%s' && %s) 2>&1; echo status=$?"):format(place, command))
  assert(text:find "status=0\n$", command .. "\n" .. text)
  return (text:gsub("status=0\n$", ""))
end

local main = [[
#include <flare/flarelua.h>
#include <stdio.h>
int main(void) {
  fl_lua *f = NULL;
  double sum = 0;
  if (fl_lua_open(NULL, &f) != FL_OK ||
      fl_lua_run(f, "sum = require 'flare'.ones(2, 3):sum():item()", "=t") !=
          FL_OK ||
      fl_lua_get(f, "sum", 'd', &sum) != FL_OK)
    printf("%s\n", fl_error());
  fl_lua_close(f);
  return sum != 6;
}
]]

local plugin = [[
#include <flare/flarelua.h>
#define TEXT                                                                   \
  "local flare = require 'flare'; local x = flare.ones(300, 300);"             \
  "sum = flare.matmul(x, x):sum():item()"
FL_API double plug(void);
double plug(void) {
  fl_runtime_options r = {.struct_size = sizeof r, .threads = 2};
  fl_lua_options o = {.struct_size = sizeof o, .runtime = &r};
  fl_lua *f = NULL;
  double sum = 0;
  if (!fl_lua_open(&o, &f) && !fl_lua_run(f, TEXT, "=plug"))
    fl_lua_get(f, "sum", 'd', &sum);
  fl_lua_close(f);
  return sum;
}
]]

local loader = [[
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static int entries(const char *path) {
  DIR *d = opendir(path);
  int n = 0;
  while (readdir(d))
    n++;
  closedir(d);
  return n;
}
int main(void) {
  char line[4096];
  int left = 0, files = 0;
  for (int k = 0; k < 5; k++) {
    void *h = dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL);
    double (*plug)(void) = h ? (double (*)(void))dlsym(h, "plug") : NULL;
    if (!plug || plug() != 2.7e7 || dlclose(h))
      return puts("not loaded"), 1;
    if (k == 0)
      files = entries("/proc/self/fd");
  }
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps))
    left += strstr(line, "libflare") != NULL;
  fclose(maps);
  printf("%d mapped, %d threads, %d files more\n", left,
         entries("/proc/self/task") - 2, entries("/proc/self/fd") - files);
  return 0;
}
]]

local cmakelists = [[
cmake_minimum_required(VERSION 3.22)
project(outside C)
find_package(flare REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared flare::flarelua flare::lua)
add_executable(static main.c)
target_link_libraries(static flare::flarelua_static flare::lua)
]]

-- pkg-config's answers for what is installed, and for the system's Lua
local path = "PKG_CONFIG_PATH=$(dirname $(find " .. prefix .. " -name flare.pc))"
local flags = ("$(%s pkg-config --cflags --libs flarelua) "
  .. "$(pkg-config --cflags --libs lua5.4 || pkg-config --cflags --libs lua) "
  .. "-Wl,-rpath,$(%s pkg-config --variable=libdir flare)"):format(path, path)
local script = "'print(require \"flare\".ones(2, 3):sum():item())'"

-- Builds a CMake project with the generator that flare itself was built with.
local function configure(source, build)
  local generator = tree.read(tree.build .. "/CMakeCache.txt"):match "CMAKE_GENERATOR:%w+=([^\n]+)"
  run(("cmake -G '%s' -S %s -B %s -D CMAKE_PREFIX_PATH=$PWD/moved && cmake --build %s")
    :format(generator, source, build, build))
end

describe("an installed flare", function()
  lazy_setup(function()
    local root = tree.output "pwd":match "[^\n]+"
    assert(os.execute(("mkdir -p '%s/project'"):format(place)))
    run(("cmake --install '%s/%s' --prefix first"):format(root, tree.build))
    run "mv first moved"
    for name, text in pairs {["main.c"] = main, ["CMakeLists.txt"] = cmakelists,
      ["plugin.c"] = plugin, ["loader.c"] = loader} do
      local file = assert(io.open(place .. "/project/" .. name, "w"))
      file:write(text)
      file:close()
    end
    run(("if [ -d '%s/examples/embed' ]; then cp -r '%s/examples/embed' .; fi"):format(root, root))
  end)

  lazy_teardown(function()
    os.execute(("rm -rf '%s' '%s'"):format(place, (place:gsub("%.d$", ""))))
  end)

  it("has a standalone program", function()
    assert.equal("6.0\n", run("moved/bin/flare -e " .. script))
  end)

  it("is a module of a stock Lua", function()
    local module = tree.output("find " .. prefix .. " -name core.so"):match "(.*)/flare/core.so"
    assert.equal("6.0\n", run(("LUA_PATH='%s/?.lua;%s/?/init.lua' LUA_CPATH='%s/?.so' lua5.4 -e %s")
      :format("moved/share/lua/5.4", "moved/share/lua/5.4", module, script)))
  end)

  it("builds a project by pkg-config", function()
    run("cc project/main.c -o by_pkg_config " .. flags)
    run "./by_pkg_config"
  end)

  it("is loaded, closed and loaded again as a plug-in", function()
    run("cc -shared -fPIC project/plugin.c -o plugin.so " .. flags)
    run "cc project/loader.c -o loader -ldl"
    assert.equal("0 mapped, 1 threads, 0 files more\n", run "./loader")
  end)

  it("builds a project by find_package", function()
    configure("project", "by_cmake")
    run "by_cmake/shared"
    run "by_cmake/static"
  end)

  it("builds the embedding example both ways", function()
    if not tree.exists(place .. "/embed/CMakeLists.txt") then
      return pending "examples/embed is not there"
    end
    configure("embed", "embed/build")
    run("cd embed && cc *.c -o by_pkg_config " .. flags .. " -lm && ./by_pkg_config")
  end)
end)

-- The build's needs are said in three places: CMake finds them, bootstrap and LuaRocks bring them.
describe("what the build needs", function()
  local depends = tree.read "cmake/depends.cmake"

  it("is what bootstrap installs on Debian", function()
    local needs = tree.read("bootstrap"):match "needs='\n(.-)\n'"
    local installs = {}
    for packages in needs:gmatch "[^\n]+" do
      for name in packages:match("^%S+ +%S+ +(%S+)"):gmatch "[^,]+" do installs[name] = true end
    end
    local count = 0
    for text in depends:gmatch "apt install ([%w%.%- \"]+)" do
      local name = text:match "^[\"%s]*([%w%.-]+)"
      count = count + (name and 1 or 0)
      assert(not name or installs[name], name)
    end
    for name in depends:gmatch "%f[%w](lib[%w-]+%-dev)%f[^%w-]" do
      count = count + 1
      assert(installs[name], name)
    end
    assert(count >= 7, count)
  end)

  it("is what LuaRocks gives to it", function()
    local rock = {}
    assert(loadfile("flare-scm-1.rockspec", "t", rock))()
    for variable in depends:gmatch "find_p%a+%((LUA_[%u_]+)" do
      assert(rock.build.variables[variable], variable .. " is another Lua's")
    end
    for name in depends:gmatch "NOT (%u+)_FOUND%)\n  message%(FATAL_ERROR" do
      assert(rock.external_dependencies[name], name)
      rock.external_dependencies[name] = nil
    end
    assert.is_nil(next(rock.external_dependencies), "what is optional is no dependency")
  end)
end)
