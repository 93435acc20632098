-- Random calls of the string and table functions of a state of flare's, and of Lua's own in
-- `stock`: the same results and messages. spec/c/lua_strings.c runs it.
-- luacheck: globals stock cases seed restart
local random, own = math.random, {string = string, table = table}
math.randomseed(tonumber(seed))

local function pick(list) return list[random(#list)] end

-- Few letters, so that things match; bytes that mean something to patterns or to C.
local letters = {"a", "a", "a", "b", "b", "A", "1", "0", " ", "(", ")", "x", "\n", "\0", "\255",
                 "]", "%", "-", "^", "_"}
local function subject()
  local parts = {}
  for k = 1, random(0, random() < 0.05 and 300 or 14) do parts[k] = pick(letters) end
  local text = stock.table.concat(parts)
  return random() < 0.1 and stock.string.rep(text, random(0, 6)) or text
end

local classes = {"%a", "%c", "%d", "%g", "%l", "%p", "%s", "%u", "%w", "%x", "%A", "%C", "%D", "%G",
                 "%L", "%P", "%S", "%U", "%W", "%X", "%%", "%.", "%]", "%-", "%z", "%Z", "%\0",
                 "%(", "%\255", "%\128"}
local function set()
  local parts = {"[", random() < 0.3 and "^" or ""}
  for _ = 1, random(0, 4) do
    local r = random()
    parts[#parts + 1] = r < 0.3 and pick(classes)
      or r < 0.5 and pick(letters) .. "-" .. pick(letters)
      or r < 0.55 and "-" or r < 0.6 and "]" or r < 0.65 and "^" or r < 0.7 and "[" or pick(letters)
  end
  parts[#parts + 1] = random() < 0.97 and "]" or ""
  return stock.table.concat(parts)
end

local sequence
local function item(depth)
  local r = random()
  if r < 0.3 then return pick(letters) .. pick {"", "", "", "*", "+", "-", "?"} end
  if r < 0.42 then return "." .. pick {"", "*", "+", "-", "?"} end
  if r < 0.55 then return pick(classes) .. pick {"", "*", "+", "-", "?"} end
  if r < 0.68 then return set() .. pick {"", "*", "+", "-", "?"} end
  if r < 0.80 and depth < 4 then
    return (random() < 0.97 and "(" or "") .. sequence(depth + 1) .. (random() < 0.97 and ")" or "")
  end
  if r < 0.84 then return "()" end
  if r < 0.88 then return "%b" .. pick {"()", "ab", "aa", "a", "", "(\0", "%%"} end
  if r < 0.92 then return "%f" .. (random() < 0.95 and set() or pick(letters)) end
  if r < 0.96 then return "%" .. random(0, 9) end
  return pick {"$", "^", "%", "[", "]", "(", ")", "%f[%z]", "%1", "[%a-z]", "[a-]", "[]", "[^]",
               "[%", "[a", "[%a", "*", "+", "-", "?"}
end

function sequence(depth)
  local parts = {}
  for k = 1, random(0, depth == 0 and 6 or 3) do parts[k] = item(depth) end
  return stock.table.concat(parts)
end

local function pattern()
  local r = random()
  if r < 0.02 then
    local many = pick {"a?", "(", "()", "(a)", "a*", ".-", "(.-)", "[ab]"}
    return stock.string.rep(many, pick {31, 32, 33, 198, 199, 200, 201, 220}) .. sequence(0)
  end
  if r < 0.1 then return subject() end
  return (random() < 0.15 and "^" or "") .. sequence(0) .. (random() < 0.12 and "$" or "")
end

local function place()
  return random() < 0.5 and random(-6, 8) or pick {0, -1, 1, 400, -400, math.maxinteger,
    math.mininteger, math.mininteger + 1, 1.0, 1.5, "2", "x", false, {}, 2^53, -0.0}
end

local function replacement()
  local r = random()
  if r < 0.35 then
    local parts = {}
    for k = 1, random(0, 4) do
      parts[k] = pick {"%0", "%1", "%2", "%3", "%9", "%%", "%", "%a", "x", "<", "\0", "%1", "%0"}
    end
    return stock.table.concat(parts)
  elseif r < 0.55 then
    return setmetatable({a = "A", b = 7, x = false, ["1"] = 1.5, [1] = "one", [2] = true, aa = {}},
      random() < 0.3 and {__index = function(_, k) return k == "b" and "B" or nil end} or nil)
  elseif r < 0.9 then
    local kind = random(8)
    return function(...)
      local first = ...
      if kind == 1 then return nil end
      if kind == 2 then return false end
      if kind == 3 then return stock.string.rep("<", select("#", ...)) .. tostring(first) end
      if kind == 4 then return 12 end
      if kind == 5 then return {} end
      if kind == 6 then error "on purpose" end
      if kind == 7 then return coroutine.yield(first) end
      error({}, 2)
    end
  end
  return pick {false, true, 12, 1.5, {}, rawlen, "", io.stdout}
end

-- Tables and functions have addresses: only their types are compared.
local anonymous = {table = true, ["function"] = true, userdata = true}
local function show(list)
  local parts = {}
  for k = 1, list.n do
    local v = list[k]
    local text = anonymous[type(v)] and "" or stock.string.format("%q", v)
    parts[k] = (math.type(v) or type(v)) .. ":" .. text
  end
  return stock.table.concat(parts, " ")
end

local function run(f, ...) return show(stock.table.pack(pcall(f, ...))) end

local function iterate(library, s, p, i)
  local results, n = {}, 0
  local next_match = library.string.gmatch(s, p, i)
  repeat
    local r = stock.table.pack(next_match())
    n = n + 1
    results[n] = show(r)
  until r[1] == nil or n > 100
  return stock.table.concat(results, "\n")
end

-- A chunk that calls the function, so that the message names a line.
local caller = load "local f = ... return function(...) return (f(...)) end"
local function sorted(library, list, order)
  local log, t = {}, stock.table.move(list, 1, #list, 1, {})
  local ok, why = pcall(library.table.sort, t, order and function(a, b)
    log[#log + 1] = tostring(a) .. "<" .. tostring(b)
    return order(a, b)
  end)
  for k = 1, #t do t[k] = math.type(t[k]) and stock.string.format("%q", t[k]) or tostring(t[k]) end
  return tostring(ok) .. tostring(why) .. stock.table.concat(t, " ") .. "|"
    .. stock.table.concat(log, " ")
end

local kinds = {}
for _, name in ipairs {"find", "match"} do
  kinds[name] = function()
    local args = {subject(), pattern(), n = random(2, 4)}
    if args.n > 2 then args[3] = place() end
    if args.n > 3 then args[4] = random() < 0.3 end
    if random() < 0.01 then args[random(2)] = pick {12, 1.5, {}, false} end
    return args, function(library)
      return run(library.string[name], stock.table.unpack(args, 1, args.n))
        .. run(caller(library.string[name]), stock.table.unpack(args, 1, args.n))
    end
  end
end
function kinds.gmatch()
  local args = {subject(), pattern()}
  if random() < 0.3 then args[3] = place() end
  if random() < 0.01 then args[random(2)] = pick {12, 1.5, {}, false} end
  return args, function(library)
    return run(iterate, library, args[1], args[2], args[3])
  end
end
function kinds.gsub()
  local r = replacement()
  local args = {subject(), pattern(), r, n = random(3, 4)}
  if args.n == 4 then args[4] = place() end
  if random() < 0.01 then args[random(2)] = pick {12, 1.5, {}, false} end
  return args, function(library)
    return run(library.string.gsub, stock.table.unpack(args, 1, args.n))
      .. run(coroutine.wrap(library.string.gsub), stock.table.unpack(args, 1, args.n))
  end
end
function kinds.rep()
  local times = pick {-1, 0, 1, 2, 3, 7, 1000, 0.0, 1.5, "3", "x", math.maxinteger, 1 << 31, false}
  local args = {random() < 0.8 and subject() or pick {12, 1.5, {}, false}, times,
                random() < 0.5 and subject() or nil}
  if args[1] == "" and (args[3] or "") == "" then args[1] = "a" end -- Lua's own would count on
  return args, function(library)
    return run(library.string.rep, args[1], args[2], args[3])
  end
end
for _, name in ipairs {"lower", "upper", "reverse"} do
  kinds[name] = function()
    local args = {random() < 0.9 and subject() or pick {12, 1.5, {}, false}}
    if random() < 0.02 then args[1] = stock.string.rep("aB\0\200", 20000) end
    return args, function(library) return run(library.string[name], args[1]) end
  end
end
function kinds.concat()
  local list = {}
  for k = 1, random(0, 12) do
    list[k] = random() < 0.97 and pick {"a", "", 1, 1.5, "\0"} or pick {{}, true}
  end
  local function with(length, index)
    return setmetatable({}, {__len = function() return length end, __index = index})
  end
  local t = random() < 0.9 and list
    or pick {with(5, function(_, k) return k end), 12, "text", io.stdout, with "5", with(1.5)}
  local args = {t, n = random(1, 4)}
  args[2] = args.n > 1 and pick {"", ", ", 1, false, {}, subject()} or nil
  args[3] = args.n > 2 and pick {0, 1, 2, 5, "2", 1.5, math.maxinteger} or nil
  args[4] = args.n > 3 and pick {-1, 1, 3, 7, "2", math.maxinteger} or nil
  if args[4] == math.maxinteger and args[3] ~= args[4] and getmetatable(t) then args[4] = 3 end
  return args, function(library)
    return run(library.table.concat, stock.table.unpack(args, 1, args.n))
  end
end
function kinds.sort()
  local list, shape = {}, random(6)
  for k = 1, random(0, random() < 0.1 and 400 or 20) do
    list[k] = shape == 1 and random(5) or shape == 2 and random() or shape == 3 and k
      or shape == 4 and -k or shape == 5 and pick {1, 1.0, 2, 0.0, -0.0} or subject()
  end
  if #list > 0 and random() < 0.05 then list[random(#list)] = pick {"x", 1, true, {}} end
  local orders = {nil, function(a, b) return a < b end, function(a, b) return a > b end,
    function(a, b) return a <= b end, function() return true end, function() return false end,
    function(a, b) return tostring(a) < tostring(b) end}
  local order = orders[random(7)]
  if random() < 0.02 then
    local args = {pick {12, "x", list}, pick {1, {}, "x", true}}
    return args, function(library) return run(library.table.sort, args[1], args[2]) end
  end
  for k = 1, #list do if type(list[k]) == "table" then list[k] = true end end
  return list, function(library) return sorted(library, list, order) end
end

-- Messages name a function as the loaded library has it.
local function within(library, f)
  package.loaded.string, package.loaded.table = library.string, library.table
  return f(library)
end

local names = {"find", "find", "match", "match", "match", "gmatch", "gsub", "gsub", "gsub", "rep",
               "lower", "upper", "reverse", "concat", "sort"}
local started, matched, failed, late = os.clock(), 0, 0, 0
for case = 1, tonumber(cases) do
  local name = pick(names)
  local args, f = kinds[name]()
  restart()
  local got = within(own, f)
  local given_up = got:find("interrupted!", 1, true)
  local expected = given_up and got or within(stock, f)
  late = late + (given_up and 1 or 0)
  local fine = expected:sub(1, 12) == "boolean:true"
  if fine and not expected:find("nil:nil", 1, true) then matched = matched + 1 end
  if expected:sub(1, 13) == "boolean:false" then failed = failed + 1 end
  if expected ~= got then
    for k, v in pairs(args) do
      print(k, type(v) == "string" and stock.string.format("%q", v) or v)
    end
    error(("case %d, %s\nLua's: %s\nours:  %s"):format(case, name, expected:sub(1, 1500),
      got:sub(1, 1500)))
  end
end
assert(string.find ~= stock.string.find and table.sort ~= stock.table.sort, "nothing was compared")
print(("%s cases in %.1f s, %d with results, %d errors, %d too long"):format(cases,
  os.clock() - started, matched, failed, late))
assert(late < cases / 20, "too many are too long")
