-- Ceilings on the length of files, functions and lines, and on the size of what
-- is installed. A file above its ceiling, or with a function above it, says why
-- in its first comment, in a sentence that starts "Long because".
local tree = require "spec.support.tree"

local ceilings = { -- lines, by the first pattern that fits the path
  {"%.h$", 600}, {"%.[c]$", 800}, {"%.def$", 800}, {"%.cuh?$", 900},
  {"^spec/.*%.lua$", 500}, {"%.lua$", 400},
}
local longest_function = 80

local function lines_of(text)
  local _, count = text:gsub("\n", "")
  return count
end

local function excused(text)
  local comment = text:match "^/%*.-%*/" or text:sub(1, 500):match "^%-%-.-\n%f[^\n-]" or ""
  return comment:gsub("%s+[-*]*%s*", " "):find("Long because", 1, true)
end

-- The lines of C without comments, strings and directives, which may hold braces.
local function code_of(text)
  local lines, continued = {}, false
  text = text:gsub("/%*.-%*/", function(c) return (c:gsub("[^\n]", "")) end):gsub("//[^\n]*", "")
  for line in text:gmatch "([^\n]*)\n" do
    local directive = continued or line:find "^%s*#"
    continued = directive and line:find "\\$"
    line = line:gsub("'\\?.'", ""):gsub('\\.', ""):gsub('".-"', "")
    lines[#lines + 1] = directive and "" or line
  end
  return lines
end

-- Functions and methods: {first = the line that they begin on, lines =}. A brace outside of them
-- opens one if there are parentheses since the last brace or semicolon.
local function functions(text)
  local list, depth, inside, first, head = {}, 0, nil, nil, ""
  for number, line in ipairs(code_of(text)) do
    for piece, mark in line:gmatch "([^{};]*)([{};]?)" do
      if not inside and not head:find "%S" then first = number end
      head = inside and "" or head .. piece
      if mark == "{" then
        if not inside and head:find "%(" then inside = depth end
        depth = depth + 1
      elseif mark == "}" then
        depth = depth - 1
        if inside == depth then
          inside, list[#list + 1] = nil, {first = first, lines = number - first + 1}
        end
      end
      if mark ~= "" and not inside then head = "" end
    end
  end
  return list
end

local sources = tree.files("runtime kernels lua repl stdlib examples bench spec",
  ".c", ".h", ".def", ".cu", ".cuh", ".lua")

describe("size", function()
  it("of every file stays under its ceiling", function()
    local sizes, over = {}, {}
    for _, path in ipairs(sources) do
      local text = tree.read(path)
      local lines, ceiling = lines_of(text), nil
      for _, rule in ipairs(ceilings) do
        ceiling = ceiling or path:find(rule[1]) and rule[2]
      end
      sizes[#sizes + 1] = {path = path, lines = lines}
      if lines > ceiling and not excused(text) then
        over[#over + 1] = ("%s has %d lines, %d allowed"):format(path, lines, ceiling)
      end
    end
    table.sort(sizes, function(a, b) return a.lines > b.lines end)
    print "\nThe ten largest files:"
    for k = 1, math.min(10, #sizes) do
      print(("%6d  %s"):format(sizes[k].lines, sizes[k].path))
    end
    assert(#over == 0, "\n  " .. table.concat(over, "\n  "))
  end)

  it("of every function in C and CUDA C++ stays under " .. longest_function .. " lines", function()
    local over, found = {}, 0
    for _, path in ipairs(tree.files("runtime kernels lua repl", ".c", ".cu", ".cuh")) do
      local text = tree.read(path)
      for _, f in ipairs(functions(text)) do
        found = found + 1
        if f.lines > longest_function and not excused(text) then
          over[#over + 1] = ("%s:%d: %d lines"):format(path, f.first, f.lines)
        end
      end
    end
    assert.is_true(found > 5000, found .. " functions")
    assert(#over == 0, "\n  " .. table.concat(over, "\n  "))
  end)

  it("of every C line stays within 80 columns", function()
    local over = {}
    for _, path in ipairs(tree.files("runtime kernels lua repl", ".c", ".h")) do
      local number = 0
      for line in tree.read(path):gmatch "([^\n]*)\n" do
        number = number + 1
        if (utf8.len(line) or #line) > 80 then over[#over + 1] = path .. ":" .. number end
      end
    end
    assert(#over == 0, "\n  " .. table.concat(over, "\n  "))
  end)

  it("of an installation stays within 15 MiB, without BLAS", function()
    local cache = tree.read(tree.build .. "/CMakeCache.txt")
    if not cache:find "CMAKE_BUILD_TYPE:%w+=Release" then
      return pending "only a release build has the sizes that are promised"
    end
    local installed = tree.files("stdlib", ".lua")
    for _, name in ipairs {"flare", "libflare.so", "libflarelua.so", "lua/flare/core.so"} do
      installed[#installed + 1] = tree.build .. "/" .. name
    end
    local bytes = 0
    for _, path in ipairs(installed) do
      local file = assert(io.open(path))
      bytes = bytes + file:seek "end"
      file:close()
    end
    print(("\nInstalled: %.1f MiB"):format(bytes / 2 ^ 20))
    assert(bytes <= 15 * 2 ^ 20, ("%.1f MiB"):format(bytes / 2 ^ 20))
  end)
end)
