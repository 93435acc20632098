-- Names of functions: a static of one word stands in few files, so that a breakpoint, a profile or
-- a search for it finds one place. Names of files: of known endings, and comments name only files
-- that exist.
local tree = require "spec.support.tree"

local most = 3 -- files

-- Names of file-scope functions of a C or CUDA source that are static and of one word.
local function one_word_statics(text)
  local names = {}
  text = ("\n" .. text):gsub("/%*.-%*/", " "):gsub("\n#[^\n]*", "\n")
  for head in text:gmatch "\nstatic ([^;{}=]-)%s*{" do
    local name = head:match "([%w_]+)%s*%("
    if name and name:find "^[a-z][a-z0-9]*$" then names[name] = true end
  end
  return names
end

describe("names of functions", function()
  it("finds the statics of a text", function()
    assert.same({run = true, take = true}, one_word_statics [[
static int run(int a) {
}
static fl_status take_it(void) {
}
static inline void take(int a,
                        int b) {
}
static const int table[] = {1};
]])
  end)

  it("of one word stand in at most " .. most .. " files", function()
    local files, offences, count = {}, {}, 0
    for _, path in ipairs(tree.files("runtime kernels lua repl", ".c", ".cu")) do
      for name in pairs(one_word_statics(tree.read(path))) do
        files[name] = files[name] or {}
        table.insert(files[name], path)
        count = count + 1
      end
    end
    assert(count > 100, "no statics were found")
    for name, paths in pairs(files) do
      if #paths > most then
        offences[#offences + 1] = ("%s: %s"):format(name, table.concat(paths, ", "))
      end
    end
    table.sort(offences)
    assert(#offences == 0, "\n  " .. table.concat(offences, "\n  "))
  end)
end)

-- Names of files in the comments of a source: {"alloc.c", ...}, without folders. A name of one
-- letter is a member (p.c), and angle brackets name a header of the system.
local function files_in_comments(text)
  local names = {}
  for comment in text:gmatch "/%*.-%*/" do
    for name, ending in (comment .. " "):gmatch "%f[%w_<]([%w_][%w_]+)%.(%l+)%f[^%w_]" do
      if ending == "c" or ending == "h" or ending == "cu" or ending == "cuh" or ending == "inc"
        or ending == "def" or ending == "lua" then
        names[#names + 1] = name .. "." .. ending
      end
    end
  end
  return names
end

describe("names of files", function()
  local folders = "runtime kernels lua repl"

  it("finds those in the comments of a text", function()
    assert.same({"alloc.c", "ops.def"}, files_in_comments [[
/* See memory/alloc.c, p.c and <assert.h>. */
#include "here.h"
/* What ops.def
 * says. */]])
  end)

  it("have endings that the other specs read", function()
    local known = tree.files(folders, ".c", ".h", ".def", ".cu", ".cuh", ".lua", ".json")
    local all = tree.files(folders, "")
    assert(#all > 500, #all)
    local known_one = {}
    for _, path in ipairs(known) do known_one[path] = true end
    for _, path in ipairs(all) do
      assert(known_one[path], path .. ": a kind of source that no spec reads")
    end
  end)

  it("in comments are files", function()
    local exists, missing, count = {}, {}, 0
    for _, name in ipairs {"lua.h", "cuda_fp16.h", "op_slots.h", "cuda_sources.c"} do
      exists[name] = true -- Lua's, CUDA's, and what the build generates
    end
    for _, path in ipairs(tree.files("runtime kernels lua repl stdlib spec bench cmake examples",
      ".c", ".h", ".def", ".cu", ".cuh", ".lua")) do
      exists[path:match "[^/]+$"] = true
    end
    for _, path in ipairs(tree.files(folders, ".c", ".h", ".def", ".cu", ".cuh")) do
      for _, name in ipairs(files_in_comments(tree.read(path))) do
        count = count + 1
        if not exists[name] and not name:find "^%u*_typed%.c$" then -- any of these files
          missing[#missing + 1] = path .. ": " .. name
        end
      end
    end
    assert(count > 300, count)
    assert(#missing == 0, "\n  " .. table.concat(missing, "\n  "))
  end)
end)
