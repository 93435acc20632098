-- The C programs that pass NULL and numbers out of range to every public function: they pass, and
-- they leave out no function and no pointer of the headers.
local tree = require "spec.support.tree"
local headers = require "spec.support.headers"

-- Functions that Lua or a backend calls, never a host.
local inner = {luaopen_flare_core = true}

-- The arguments of each call of a function in C text: f(a, g(b, c)) gives {"a", "g(b, c)"}.
local function calls_of(name, text)
  local found = {}
  for rest in text:gmatch("%f[%w_]" .. name .. "(%b())") do
    local args, depth, from = {}, 0, 2
    for at = 2, #rest do
      local c = rest:sub(at, at)
      if c == "(" or c == "{" then depth = depth + 1 end
      if at == #rest or (c == "," and depth == 0) then
        args[#args + 1] = rest:sub(from, at - 1):match "^%s*(.-)%s*$"
        from = at + 1
      end
      if c == ")" or c == "}" then depth = depth - 1 end
    end
    found[#found + 1] = args
  end
  return found
end

describe("bad arguments", function()
  for _, program in ipairs{"bad_arguments", "lua_bad_arguments"} do
    it("of " .. program .. ".c end no process", function()
      local found = tree.output(("'%s/spec/%s' 2>&1; echo"):format(tree.build, program))
      assert(found:find(program .. ": %d+ checks, 0 failed"), found)
    end)
  end

  it("are tried for every pointer of every public function", function()
    local text = tree.read "spec/c/bad_arguments.c" .. tree.read "spec/c/lua_bad_arguments.c"
    local missing, n = {}, 0
    for _, f in ipairs(headers.functions()) do
      local calls = inner[f.name] and {} or calls_of(f.name, text)
      for k, p in ipairs(inner[f.name] and {} or f.params) do
        local tried = not p.pointer
        for _, args in ipairs(calls) do tried = tried or args[k] == "NULL" end
        if not tried then missing[#missing + 1] = f.name .. ": " .. p.name end
        n = n + 1
      end
    end
    assert(n > 400, n)
    assert(#missing == 0, "\n  " .. table.concat(missing, "\n  "))
  end)

  it("are named as the headers name them", function()
    local text = tree.read "spec/c/bad_arguments.c" .. tree.read "spec/c/lua_bad_arguments.c"
    local names, wrong = {}, {}
    for _, f in ipairs(headers.functions()) do
      names[f.name] = {}
      for _, p in ipairs(f.params) do names[f.name][p.name] = true end
    end
    for name, arg in text:gmatch 'NEEDS%(([%w_]+)%b(),%s*"([%w_]+)"%)' do
      if not (names[name] and names[name][arg]) then wrong[#wrong + 1] = name .. ": " .. arg end
    end
    assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
  end)
end)
