-- For `luarocks make` in a checkout; flare's libraries and headers, and the
-- program, come with `cmake --install` instead.
rockspec_format = "3.0"
package = "flare"
version = "scm-1"
source = {url = "."}
description = {
  summary = "Machine learning for Lua: tensors, autograd, nn, optimizers",
  license = "MIT",
}
dependencies = {"lua ~> 5.4"}
-- Only what the build does not do without: cmake/depends.cmake has the rest.
external_dependencies = {JANSSON = {header = "jansson.h"}}
build = {
  type = "cmake",
  variables = {
    CMAKE_BUILD_TYPE = "Release",
    FLARE_ROCK = "ON",
    FLARE_LUA_DIR = "$(LUADIR)",
    FLARE_LUA_MODULE_DIR = "$(LIBDIR)",
    LUA_INCLUDE_DIR = "$(LUA_INCDIR)",
    LUA_PROGRAM = "$(LUA)",
  },
}
