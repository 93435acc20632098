-- The text of device code in the library: each unit with exactly the headers that it includes, and
-- a digest of them, which the keys of compiled kernels are made from.
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"

local function write(path, text)
  local file <close> = assert(io.open(place .. "/" .. path, "w"))
  file:write(text)
end

local function append(path, text)
  write(path, tree.read(place .. "/" .. path) .. text)
end

-- Embeds the units below `place`; the rows by name: {digest, headers}.
local function embed()
  local units = {}
  for _, path in ipairs(tree.files(place .. "/kernels/cuda", ".cu")) do
    units[#units + 1] = path:sub(#place + 2)
  end
  local out = place .. "/sources.c"
  os.remove(out)
  local said = tree.output(("cmake -D OUTPUT=%s -D ROOT=%s '-DUNITS=%s' -D HEADER=%s -P %s 2>&1")
    :format(out, place, table.concat(units, "|"), place .. "/kernels/cuda/driver/process.h",
      "cmake/embed_kernels.cmake"))
  local rows = {}
  if not tree.exists(out) then return rows, said end
  local text = tree.read(out)
  for id, list in text:gmatch "%*const names_([%w_]+)%[%] = {(.-)NULL}" do
    local digest = text:match("text_" .. id .. ', "(%x+)"')
    local name, headers = text:match('{"([%w_]+)", "[^\n]* text_' .. id .. ","), {}
    for header in list:gmatch '"(.-)"' do headers[#headers + 1] = header end
    local count = tonumber(text:match("sizeof text_" .. id .. " %- 1, (%d+)"))
    assert.equal(#headers, count)
    rows[name] = {digest = digest, headers = headers}
  end
  return rows, said
end

-- The names whose digest differs.
local function changed(before, after)
  local names = {}
  for name, row in pairs(before) do
    if after[name].digest ~= row.digest then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function count(rows)
  local n = 0
  for _ in pairs(rows) do n = n + 1 end
  return n
end

local function where(name, ending) -- below kernels/cuda
  for _, path in ipairs(tree.files(place .. "/kernels/cuda", ending)) do
    if path:find("/" .. name, 1, true) then return path:sub(#place + 2) end
  end
  error("there is no " .. name)
end

describe("device code in the library", function()
  before_each(function()
    os.execute(("rm -rf '%s'; mkdir -p '%s/runtime' && cp -r kernels '%s/' && "
      .. "cp -r runtime/math runtime/*.def runtime/*.h '%s/runtime/'"):format(
      place, place, place, place))
  end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("is every unit with the headers that it includes, no others", function()
    local rows = embed()
    assert.is_true(count(rows) >= 30)
    local text = tree.read(place .. "/sources.c")
    for _, host in ipairs {"cuda.h", "op_slots.h", "library.h", "process.h", "math_float.h",
      "line.h", "math_float_special.h", "nccl.h"} do
      assert.is_nil(text:find("/" .. host .. '"', #text:match "^.-\n\n", true), host)
    end
    for name, row in pairs(rows) do
      local headers = table.concat(row.headers, " ")
      assert(headers:find "runtime/math/math%.h", name)
      assert(headers:find("kernels/cuda/softmax.h", 1, true) ~= nil == (name == "softmax"), name)
    end
  end)

  it("may have any number of headers", function()
    local before, includes = embed(), ""
    for k = 1, 40 do
      local name = ("more%d.cuh"):format(k)
      write("kernels/cuda/" .. name, ("#pragma once\n#define MORE%d %d\n"):format(k, k))
      includes = includes .. ('#include "%s"\n'):format(name)
    end
    local unit = where("softmax.cu", ".cu")
    append(unit, includes)
    local after = embed()
    assert.equal(#before.softmax.headers + 40, #after.softmax.headers)
    assert.same({"softmax"}, changed(before, after))
    assert.equal("", tree.output(("%s -std=c11 -fsyntax-only -I '%s/generated' '%s/sources.c' 2>&1")
      :format(os.getenv "CC" or "cc", tree.build, place)))
  end)

  it("has a digest that changes with what it includes and with nothing else", function()
    local before = embed()
    for _, other in ipairs {"kernels/cuda/cuda.h", where("process.h", ".h"),
      "runtime/math/math_float_special.h", "runtime/types.h", where("nccl.h", ".h")} do
      append(other, "/* more */\n")
    end
    write("kernels/cuda/unused.cuh", "#pragma once\n")
    assert.same({}, changed(before, embed()))
    append("kernels/cuda/softmax.h", "/* more */\n")
    assert.same({"softmax"}, changed(before, embed()))
    append("runtime/math/math_gamma.h", "/* more */\n") -- through flare.cuh and math.h
    assert.equal(count(before), #changed(before, embed()))
  end)

  it("names a header that does not exist, and two units of one name", function()
    append("kernels/cuda/softmax.h", '#include "nowhere.h"\n')
    local rows, said = embed()
    assert.same({}, rows)
    assert.truthy(said:find("kernels/cuda/softmax.h includes nowhere.h", 1, true), said)
    os.execute(("cp kernels/cuda/softmax.h '%s/kernels/cuda/' && mkdir -p '%s/kernels/cuda/more'"
      .. " && touch '%s/kernels/cuda/more/softmax.cu'"):format(place, place, place))
    rows, said = embed()
    assert.same({}, rows)
    assert.truthy(said:find("softmax.cu", 1, true), said)
  end)
end)
