-- The architecture as a test: who may include whom, what the library must never
-- call, and what it may export. The picture is in docs/architecture.md.
local tree = require "spec.support.tree"

-- What a folder's quoted includes may resolve to, as patterns of paths.
local contracts = {"^runtime/types%.h$", "^runtime/backend%.h$", "^runtime/program%.h$",
  "^runtime/tile%.h$", "^runtime/comm%.h$", "^runtime/view%.h$",
  "^runtime/math/math%.h$", "^runtime/%w+%.def$", "^op_slots%.h$"}
local may_include = {
  runtime = {"^runtime/", "^op_slots%.h$"}, -- the build makes it from runtime/ops.def
  kernels = {"^(kernels/%w+/)", table.unpack(contracts)},
  lua = {"^lua/", "^runtime/flare%.h$", "^runtime/dlpack%.h$", "^runtime/ops%.def$"},
  repl = {"^repl/", "^lua/flarelua%.h$", "^lua/embed%.h$", "^runtime/flare%.h$"},
}
local public = {["flare.h"] = "runtime/flare.h", ["dlpack.h"] = "runtime/dlpack.h",
  ["flarelua.h"] = "lua/flarelua.h"}

local function code(path) -- without comments and strings
  return (tree.read(path):gsub("/%*.-%*/", " "):gsub("//[^\n]*", " "):gsub('"[^"\n]*"', '""'))
end

local function resolve(from, include)
  local folder = from:match "^(.*/)" .. include
  if not tree.exists(folder) then return public[include] or include end
  local parts = {}
  for part in folder:gmatch "[^/]+" do
    if part == ".." then parts[#parts] = nil else parts[#parts + 1] = part end
  end
  return table.concat(parts, "/")
end

local function allowed(from, to)
  for _, pattern in ipairs(may_include[from:match "^%w+"]) do
    local found = to:match(pattern)
    -- a pattern with a capture means: only in the file's own folder
    if found and (not pattern:find "%(" or from:find(found, 1, true) == 1) then return true end
  end
  return false
end

-- Fails with all offences at once: path and what is wrong there.
local function none(offences)
  assert(#offences == 0, "\n  " .. table.concat(offences, "\n  "))
end

local function matches(folders, pattern, except)
  local found = {}
  for _, path in ipairs(tree.files(folders, ".c", ".h", ".def")) do
    if not (except and path:find(except)) then
      for hit in code(path):gmatch(pattern) do found[#found + 1] = path .. ": " .. hit end
    end
  end
  return found
end

describe("layering", function()
  it("lets each folder include only what is below it", function()
    local offences = {}
    for _, path in ipairs(tree.files("runtime kernels lua repl", ".c", ".h")) do
      for include in tree.read(path):gmatch '#%s*include%s+"(.-)"' do
        local to = resolve(path, include)
        if not allowed(path, to) then offences[#offences + 1] = path .. " includes " .. to end
      end
    end
    none(offences)
  end)

  it("shows Lua only to lua/ and the program", function()
    none(matches("runtime kernels repl", "#%s*include%s+<(l[ua]%w*%.h)>", "^repl/"))
  end)

  it("neither ends the process nor prints", function()
    local forbidden = {}
    for name in ("abort exit _exit quick_exit printf vprintf puts putchar perror"):gmatch "%S+" do
      forbidden[name] = true
    end
    local found = matches("runtime kernels lua", "%f[%w_](f?printf%s*%(%s*std%w+)")
    for _, call in ipairs(matches("runtime kernels lua", "%f[%w_]([%w_]+)%s*%(")) do
      if forbidden[call:match "%S+$"] then found[#found + 1] = call end
    end
    none(found)
  end)

  it("loads NVIDIA's libraries in kernels/cuda only, with no #ifdef for them", function()
    -- backends from outside come in through one file, LAPACK through another; libzmq,
    -- libmicrohttpd and NVML through a third: the monitor measures GPUs that no backend has
    none(matches("runtime/rules kernels/sim", "%f[%w_](dlopen)%f[^%w_]"))
    none(matches("lua", "%f[%w_](dlopen)%f[^%w_]", "^lua/io/library%.c$"))
    none(matches("kernels/cpu", "%f[%w_](dlopen)%f[^%w_]", "^kernels/cpu/lapack%.c$"))
    none(matches("runtime", "%f[%w_](dlopen)%f[^%w_]", "^runtime/memory/load%.c$"))
    -- names of headers' guards go on after it
    none(matches("runtime kernels lua repl", "#%s*if[^\n]*(CUDA)%f[^%w_]"))
    none(matches("runtime kernels lua repl", "#%s*if[^\n]*HAVE_(%w*CUDA%w*)"))
  end)

  it("lists the collectives in ops.def alone", function()
    local rows, listed, offences = {}, {}, {}
    local text = tree.op_table()
    for name in text:gmatch "FL_OP%s*%(comm_([%w_]+)," do rows[name] = true end
    for name in text:gmatch "FL_COLLECTIVE%(([%w_]+), [%u_]+%)" do listed[name] = true end
    for name in pairs(rows) do
      if not listed[name] then offences[#offences + 1] = "no FL_COLLECTIVE for comm_" .. name end
    end
    for name in pairs(listed) do
      if not rows[name] then offences[#offences + 1] = "no row for FL_COLLECTIVE " .. name end
    end
    for _, path in ipairs(tree.files("runtime kernels", ".c", ".h")) do
      local source = tree.read(path)
      if source:find 'str%w+%s*%([^;]*"comm_' then
        offences[#offences + 1] = path .. " finds collectives by their prefix"
      end
      local strings = 0 -- "gather" and "scatter" are index operators as well
      for name in pairs(listed) do
        local literal = source:find(('"%s"'):format(name), 1, true)
          or source:find(('"comm_%s"'):format(name), 1, true)
        strings = strings + (literal and 1 or 0)
      end
      local macros = select(2, source:gsub("\n[%u_]+%(comm_[%w_]+%)", ""))
      if strings > 2 or macros > 1 then
        offences[#offences + 1] = path .. " has a list of collectives of its own"
      end
    end
    assert(next(rows))
    none(offences)
  end)

  it("asks what a dtype is, and never compares dtypes by their order", function()
    -- so a new row of dtype.def needs no place among the others
    local text = assert(io.open "runtime/dtype.def"):read "a"
    local names, found = {}, {}
    for name in text:gmatch "FL_DTYPE[_A-Z]*%((%u%w+)," do names["FL_" .. name] = true end
    for _, pattern in ipairs{"[%w_%)%]]%s[<>]=?%s(FL_%w+)%f[^%w_]",
                             "%f[%w_](FL_%w+)%s[<>]=?%s[%w_%(]"} do
      for _, match in ipairs(matches("runtime kernels lua repl", pattern)) do
        if names[match:match "%S+$"] then found[#found + 1] = match end
      end
    end
    none(found)
    -- how many there are is no part of the interface, and "none" stays when one is added
    none(matches("runtime", "%f[%w_](FLI?_DTYPES)%f[^%w_]", "^runtime/%w+/"))
    none(matches("kernels lua repl", "%f[%w_](FLI?_DTYPES)%f[^%w_]"))
    assert(tree.read "runtime/types.h":find "\n  FL_NODTYPE = 255 ")
  end)

  it("keeps the standard library to itself", function()
    local offences = {}
    for _, path in ipairs(tree.files("stdlib", ".lua")) do
      for name in tree.read(path):gmatch 'require%s*%(?%s*"(.-)"' do
        if not name:find "^flare%f[.\0]" then
          offences[#offences + 1] = path .. " requires " .. name
        end
      end
    end
    none(offences)
  end)
end)

-- The groups of runtime/ from the lowest to the highest; runtime.c is above them.
-- Calls that must go up are in the table fli_upcalls (runtime/runtime.h).
local groups = {}
for place, name in ipairs {"math", "base", "memory", "tensor", "ops", "tape", "call", "rules",
  "expr", "modes", "autograd", "register", "compile"} do
  groups[name] = place
end

local function group_of(path) -- of a source or an object; nil: a file of runtime/ itself
  return path:match "runtime/(%w+)/"
end

describe("groups of runtime/", function()
  it("are all in the order", function()
    local offences = {}
    for _, path in ipairs(tree.files("runtime", ".c", ".h", ".def")) do
      local group = group_of(path)
      if group and not groups[group] then offences[#offences + 1] = path end
    end
    none(offences)
  end)

  it("include only what is in or below them", function()
    local offences = {}
    for _, path in ipairs(tree.files("runtime", ".c", ".h")) do
      local from = group_of(path)
      for include in tree.read(path):gmatch '#%s*include%s+"(.-)"' do
        local to = resolve(path, include)
        local group = group_of(to)
        if from and group and groups[group] > groups[from] then
          offences[#offences + 1] = path .. " includes " .. to
        end
      end
    end
    none(offences)
  end)

  it("call only what is in or below them", function()
    local objects = tree.build .. "/CMakeFiles/flare_core.dir/runtime"
    local found = tree.output(("find '%s' -name '*.o' | xargs nm -A"):format(objects))
    local home, uses, offences = {}, {}, {}
    for path, kind, name in found:gmatch "([^\n:]+):%s*%x*%s+(%a)%s+([%w_]+)" do
      local source = path:match "(runtime/.*)%.o$"
      local here = tree.exists(source) -- else an old object of a source that has moved
      if here and kind == "U" then uses[#uses + 1] = {source, name} end
      if here and ("TDRBV"):find(kind) then home[name] = source end
    end
    assert(#uses > 1000, "no symbols in " .. objects)
    for _, use in ipairs(uses) do
      local source, name = table.unpack(use)
      local from, to = group_of(source), home[name] and group_of(home[name])
      local above = home[name] and groups[from] and (not to or groups[to] > groups[from])
      -- the op table holds the addresses of the rules
      local rule = {grad = true, shape = true, compose = true, cost = true, view = true,
                    layout = true}
      local row = from == "ops" and to == "rules" and rule[name:match "^fli_(%a+)_"]
      if above and not row then
        offences[#offences + 1] = ("%s uses %s of %s"):format(source, name, home[name])
      end
    end
    none(offences)
  end)
end)

describe("libraries", function()
  local function exported(library)
    local names = {}
    for name in tree.output("nm -D --defined-only " .. tree.build .. "/" .. library)
        :gmatch " [A-Z] ([%w_]+)" do
      names[#names + 1] = name
    end
    return names
  end

  it("export nothing but fl_ and luaopen_flare", function()
    local offences = {}
    for _, library in ipairs {"libflare.so", "libflarelua.so", "lua/flare/core.so"} do
      local names = exported(library)
      assert(#names > 0 or library:find "core", library .. " exports nothing")
      for _, name in ipairs(names) do
        if not (name:find "^fli?_" or name:find "^luaopen_flare") then
          offences[#offences + 1] = library .. ": " .. name
        end
      end
    end
    none(offences)
  end)

  it("define no global name without their prefixes, the static ones neither", function()
    local offences = {}
    for _, library in ipairs {"libflare.a", "libflarelua.a"} do
      local found = 0
      for name in tree.output("nm -g --defined-only " .. tree.build .. "/" .. library)
          :gmatch " [A-Z] ([%w_.]+)" do
        found = found + 1
        if not (name:find "^fl[ilc]?_" or name:find "^luaopen_flare") then
          offences[#offences + 1] = library .. ": " .. name
        end
      end
      assert(found > 100, library .. " defines nothing")
    end
    none(offences)
  end)

  it("have no writable global data", function()
    local offences, cuda = {}, {}
    for _, path in ipairs(tree.files("kernels/cuda", ".c")) do cuda[path:match "[^/]+$"] = true end
    for _, library in ipairs {"libflare.a", "libflarelua.a"} do
      local symbols, member = tree.output("objdump -t " .. tree.build .. "/" .. library), ""
      for line in symbols:gmatch "[^\n]+" do
        member = line:match "^(%S+)%.o: +file" or member
        local section, name = line:match " O (%.%S+)%s+%x+%s+([^\n]+)"
        -- what is loaded is there once for a process, and so is what is known of it
        local loader = cuda[member] or member == "lapack.c"
        if section and not loader and (section == ".bss" or section:find "^%.data"
            and not section:find "^%.data%.rel%.ro") then
          offences[#offences + 1] = library .. ": " .. member .. ": " .. name
        end
      end
    end
    none(offences)
  end)
end)
