# What flare takes from the system, as targets that may be empty:
#   LUA_PROGRAM             a Lua 5.4 that runs the build's own scripts
#   lua_headers, lua_whole  Lua 5.4: its headers; all of liblua, for the program
#   flare_modules           jansson, zlib and nanopb, for files; libpng, libjpeg-turbo for
#                           images; PCRE2, utf8proc for text, libmicrohttpd for HTTP
#   flare_terminal          utf8proc, for the prompt
#   flare_system            maths and threads, for libflare itself
# Each row of the table at the end says what was found and what brings the rest.
find_package(Threads REQUIRED)
find_package(PkgConfig)

set(table "")
macro(flare_row name found used packages)
  if(${found})
    list(APPEND table "  ${name}|${${found}}|")
  else()
    list(APPEND table "  ${name}|not found: ${used}|${packages}")
  endif()
endmacro()

function(flare_print_table)
  set(lines "flare ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE} build for ${FLARE_ISAS}\n")
  foreach(row IN LISTS table)
    string(REPLACE "|" ";" row "${row}")
    list(POP_FRONT row name found package)
    string(LENGTH "${name}" width)
    math(EXPR width "18 - ${width}")
    string(REPEAT " " ${width} space)
    string(APPEND lines "${name}${space}${found}\n")
    if(package)
      string(APPEND lines "                    apt install ${package}\n")
    endif()
  endforeach()
  message(STATUS "${lines}")
endfunction()

# A portable build takes archives where they exist.
function(flare_find_library variable)
  set(names ${ARGN})
  if(FLARE_PORTABLE)
    list(TRANSFORM ARGN REPLACE "(.+)" "lib\\1.a" OUTPUT_VARIABLE names)
  endif()
  find_library(${variable} NAMES ${names})
endfunction()

# Links a library by its path here and by its name where flare is installed.
function(flare_link target library)
  get_filename_component(name ${library} NAME_WE)
  string(REGEX REPLACE "^lib" "" name ${name})
  target_link_libraries(${target} INTERFACE $<BUILD_INTERFACE:${library}>
    $<INSTALL_INTERFACE:${name}>)
  set_property(TARGET ${target} APPEND_STRING PROPERTY pc_libs " -l${name}")
endfunction()

# --- Lua ---

if(PkgConfig_FOUND)
  foreach(package lua5.4 lua-5.4 lua54 lua)
    if(NOT LUA_PC_FOUND)
      pkg_check_modules(LUA_PC QUIET ${package})
    endif()
  endforeach()
endif()
find_path(LUA_INCLUDE_DIR lua.h HINTS ${LUA_PC_INCLUDE_DIRS}
  PATH_SUFFIXES lua5.4 lua-5.4 lua54)
find_library(LUA_LIBRARY NAMES liblua5.4.a liblua-5.4.a lua5.4 lua-5.4 lua54 lua
  HINTS ${LUA_PC_LIBRARY_DIRS})
if(NOT LUA_LIBRARY OR NOT EXISTS "${LUA_INCLUDE_DIR}/lua.h")
  message(FATAL_ERROR "flare needs Lua 5.4 and its headers: "
    "apt install liblua5.4-dev (./bootstrap install-deps installs everything)")
endif()
file(STRINGS ${LUA_INCLUDE_DIR}/lua.h is54 REGEX "LUA_VERSION_NUM[ \t]+504")
if(NOT is54)
  message(FATAL_ERROR "flare is made for Lua 5.4, and ${LUA_INCLUDE_DIR}/lua.h "
    "is another Lua's: say where 5.4 is with -D LUA_INCLUDE_DIR=... "
    "-D LUA_LIBRARY=...")
endif()
add_library(lua_headers INTERFACE)
target_include_directories(lua_headers SYSTEM INTERFACE ${LUA_INCLUDE_DIR})
add_library(lua_whole INTERFACE)
if(LUA_LIBRARY MATCHES "\\.a$")
  target_link_libraries(lua_whole INTERFACE -Wl,--whole-archive ${LUA_LIBRARY}
    -Wl,--no-whole-archive m ${CMAKE_DL_LIBS})
else()
  target_link_libraries(lua_whole INTERFACE ${LUA_LIBRARY})
endif()
set(LUA_FOUND ${LUA_LIBRARY})
find_program(LUA_PROGRAM NAMES lua5.4 lua54 lua-5.4 lua)
if(NOT LUA_PROGRAM)
  message(FATAL_ERROR "flare's build runs a Lua interpreter: apt install lua5.4 "
    "(./bootstrap install-deps installs everything)")
endif()
execute_process(COMMAND ${LUA_PROGRAM} -v OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT said MATCHES "^Lua 5\\.4")
  message(FATAL_ERROR "flare's build runs Lua 5.4, and ${LUA_PROGRAM} -v says "
    "\"${said}\": say where 5.4 is with -D LUA_PROGRAM=...")
endif()
flare_row(Lua LUA_FOUND "" "")

# --- what libflare links ---

add_library(flare_system INTERFACE)
target_link_libraries(flare_system INTERFACE m Threads::Threads
  ${CMAKE_DL_LIBS})
find_library(MVEC_LIBRARY mvec)
if(MVEC_LIBRARY)
  target_link_libraries(flare_system INTERFACE mvec)
endif()
flare_row(libmvec MVEC_LIBRARY "exp, tanh and the like are slower" "")

# --- MPI, for ranks on several hosts: a module of its own ---

find_package(MPI QUIET COMPONENTS C)
flare_row(mpi MPI_C_LIBRARIES "ranks on one host only" libopenmpi-dev)

# --- small libraries; absent ones are named when their feature is used ---

macro(flare_optional target macro name header used package)
  flare_find_library(${macro}_LIBRARY ${name})
  find_path(${macro}_INCLUDE_DIR ${header})
  if(${macro}_LIBRARY AND ${macro}_INCLUDE_DIR)
    target_include_directories(${target} SYSTEM INTERFACE
      $<BUILD_INTERFACE:${${macro}_INCLUDE_DIR}>)
    target_compile_definitions(${target} INTERFACE
      $<BUILD_INTERFACE:FLARE_HAVE_${macro}>)
    flare_link(${target} ${${macro}_LIBRARY})
    set(${macro}_FOUND ${${macro}_LIBRARY})
  endif()
  string(TOLOWER ${macro} title)
  flare_row(${title} ${macro}_FOUND "${used}" ${package})
endmacro()

add_library(flare_modules INTERFACE)
add_library(flare_terminal INTERFACE)
flare_optional(flare_modules JANSSON jansson jansson.h "" libjansson-dev)
# before zlib, which an archive of libpng needs
flare_optional(flare_modules PNG png16 png.h "no PNG images" libpng-dev)
flare_optional(flare_modules ZLIB z zlib.h "no .gz files" zlib1g-dev)
flare_optional(flare_modules TURBOJPEG turbojpeg turbojpeg.h "no JPEG images"
  libturbojpeg0-dev)
flare_optional(flare_modules NANOPB protobuf-nanopb pb_decode.h
  "no ONNX models" libnanopb-dev)
if(NANOPB_FOUND AND NOT APPLE) # its names are not ours to export
  target_link_options(flare_modules INTERFACE
    $<BUILD_INTERFACE:LINKER:--exclude-libs,libprotobuf-nanopb.a>)
endif()
# loaded by `flare serve`: its libraries took 1.6 ms of every start
find_path(MHD_INCLUDE_DIR microhttpd.h)
if(MHD_INCLUDE_DIR)
  target_include_directories(flare_modules SYSTEM INTERFACE
    $<BUILD_INTERFACE:${MHD_INCLUDE_DIR}>)
  set(MHD_FOUND ${MHD_INCLUDE_DIR}/microhttpd.h)
endif()
flare_row(mhd MHD_FOUND "no flare serve" libmicrohttpd-dev)
flare_optional(flare_modules PCRE2 pcre2-8 pcre2.h "no tokenizers" libpcre2-dev)
flare_optional(flare_terminal UTF8PROC utf8proc utf8proc.h
  "no tokenizers, and the C library's widths of characters at the prompt" libutf8proc-dev)
if(UTF8PROC_FOUND)
  target_include_directories(flare_modules SYSTEM INTERFACE
    $<BUILD_INTERFACE:${UTF8PROC_INCLUDE_DIR}>)
  flare_link(flare_modules ${UTF8PROC_LIBRARY})
endif()
if(ZLIB_FOUND) # packs of CUDA kernels are compressed
  target_compile_definitions(flare_system INTERFACE
    $<BUILD_INTERFACE:FLARE_HAVE_ZLIB>)
  flare_link(flare_system ${ZLIB_LIBRARY})
endif()
if(NOT JANSSON_FOUND)
  message(FATAL_ERROR "flare needs jansson for its files: apt install "
    "libjansson-dev (./bootstrap install-deps installs everything)")
endif()
