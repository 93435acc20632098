-- Names of functions: a static of one word stands in few files, so that a breakpoint, a profile or
-- a search for it finds one place.
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
