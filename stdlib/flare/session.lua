--- Going back: marks of a model, its optimizer and whatever else a program has, at the cost of the
-- bytes that change afterwards. See docs/debugging.md.
--
--     local s = flare.session{model = model, optimizer = optimizer}
--     local mark = s:mark()
--     step()                 -- worse than before
--     s:back(mark)           -- weights, states, step counts, random numbers are as they were
--
-- `flare.session.mark()`, `back`, `at`, `fork` and `compare` do so for all global variables.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

-- --- what a mark has ---

-- Tables that are no state: Lua's libraries and flare's, and classes.
local function outside()
  local seen = {}
  for name, value in next, package.loaded do
    if type(value) == "table" and name ~= "_G"
      and (name:find "^flare" or _G[name] == value) then
      seen[value] = true
    end
  end
  return seen
end

local function is_generator(x)
  return type(x) == "userdata" and pcall(core.default_generator().state, x)
end

-- A tensor: its memory, its gradient, and whether it wants one.
local function tensor_part(x, path)
  local part = {x = x, path = path, kept = core.keep_memory(x)}
  if x.is_leaf then part.leaf, part.grad, part.wants = true, x.grad, x.requires_grad end
  return part
end

local function closed(x) return not pcall(function() return x.id end) end

-- Walks from the roots: copies of tables, tensors, generators.
local function take(roots)
  local seen, tables, tensors, generators = outside(), {}, {}, {}
  local list = {{roots, ""}}
  local function add(value, path)
    local kind = type(value)
    if (kind ~= "table" and kind ~= "userdata") or seen[value] then return end
    seen[value] = true
    list[#list + 1] = {value, path}
  end
  local at = 0
  while list[at + 1] do -- the nearest first, so that paths are short
    at = at + 1
    local value, path = table.unpack(list[at])
    if core.is_tensor(value) then
      if not closed(value) then
        local part = tensor_part(value, path)
        tensors[#tensors + 1] = part
        add(part.grad, path .. ".grad")
      end
    elseif type(value) == "table" then
      local meta = debug.getmetatable(value)
      local weak = type(meta) == "table" and rawget(meta, "__mode")
      if rawget(value, "__index") == nil and not weak then
        local copy = {}
        tables[#tables + 1] = {value, copy, path}
        for k, v in next, value do
          copy[k] = v
          add(k, path)
          add(v, (path == "" and "" or path .. ".") .. tostring(k))
        end
      end
    elseif is_generator(value) then
      generators[#generators + 1] = {value, {value:state()}}
    end
  end
  local default = core.default_generator()
  generators[#generators + 1] = {default, {default:state()}}
  return tables, tensors, generators
end

local Mark = class "Mark"

--- The bytes of copies that this mark needs; other marks may need them as well.
function Mark:bytes()
  local sum, seen = 0, {}
  for _, part in ipairs(self.tensors) do
    local bytes, number = 0, nil
    if part.kept then bytes, number = part.kept:bytes() end
    if number and not seen[number] then sum, seen[number] = sum + bytes, true end
  end
  return sum
end

-- Puts everything where it was.
local function put(mark)
  for _, part in ipairs(mark.tensors) do
    if closed(part.x) then
      fail("session: %s was closed after the mark", part.path == "" and "a tensor" or part.path)
    end
    if part.kept then part.kept:restore(part.x) end
  end
  for _, part in ipairs(mark.tensors) do
    if part.leaf then
      part.x.requires_grad = part.wants
      part.x.grad = part.grad
    end
  end
  for _, entry in ipairs(mark.tables) do
    local value, copy = entry[1], entry[2]
    for k in next, value do
      if copy[k] == nil then rawset(value, k, nil) end
    end
    for k, v in next, copy do rawset(value, k, v) end
  end
  for _, entry in ipairs(mark.generators) do
    entry[1]:set_state(table.unpack(entry[2]))
  end
end

function Mark:__tostring()
  return ("Mark %d%s: %.1f MiB"):format(self.number,
    self.step and (", step %s"):format(self.step) or "", self:bytes() / (1 << 20))
end

-- --- a session ---

local Session = class "Session"

--- flare.session(roots): a session for the tensors, tables and generators that are reached from
-- `roots`, a table such as {model = model, optimizer = optimizer}. Objects are tables: modules,
-- optimizers, schedules and loaders are included. Variables that a function has captured, files and
-- Lua's math.random are not.
function Session:init(roots)
  if type(roots) ~= "table" then
    fail("session: a table such as {model = model, optimizer = optimizer} is expected, got %s",
         options.kind(roots))
  end
  self.roots, self.marks, self.count, self.base = roots, {}, 0, nil
end

--- Makes a mark of now. It takes no memory until something that it has is written; then a copy of
-- that is made.
-- @param step a number for :at, by default how many marks there were
-- @return the mark
function Session:mark(step)
  local mark = Mark()
  self.count = self.count + 1
  mark.number, mark.step, mark.parent = self.count, step or self.count, self.base
  mark.tables, mark.tensors, mark.generators = take(self.roots)
  self.marks[#self.marks + 1], self.base = mark, mark
  return mark
end

local function check(self, where, mark)
  if class.is(mark, Mark) then
    for _, one in ipairs(self.marks) do
      if one == mark then return mark end
    end
    fail("session:%s: the mark was dropped, or is another session's", where)
  end
  fail("session:%s: a mark is expected, got %s", where, options.kind(mark))
end

--- Goes back to a mark; marks that were made after it stay.
-- @param mark by default the one that was made, or gone back to, last
-- @return the mark
function Session:back(mark)
  if mark == nil then mark = self.base end
  if mark == nil then fail "session:back: there is no mark; :mark() makes one" end
  put(check(self, "back", mark))
  self.base = mark
  return mark
end

--- Goes back to the last mark whose step is at most `step`.
-- @return the mark
function Session:at(step)
  if type(step) ~= "number" then
    fail("session:at: a step is expected, got %s", options.kind(step))
  end
  local found
  for _, mark in ipairs(self.marks) do
    if mark.step <= step and (not found or mark.step >= found.step) then found = mark end
  end
  if not found then fail("session:at: no mark has a step of at most %s", tostring(step)) end
  return self:back(found)
end

--- Begins another branch: makes a mark of now, the end of this branch, and goes back to the mark
-- before it.
-- @return the mark of this branch's end
function Session:fork()
  local base = self.base
  if not base then fail "session:fork: there is no mark to begin from; :mark() makes one" end
  local tip = self:mark()
  self:back(base)
  return tip
end

--- Forgets a mark, and with it the copies that no other mark needs.
function Session:drop(mark)
  check(self, "drop", mark)
  for k, one in ipairs(self.marks) do
    if one == mark then table.remove(self.marks, k) end
  end
  for _, part in ipairs(mark.tensors) do
    if part.kept then part.kept:close() end
  end
  if self.base == mark then self.base = nil end
  mark.tensors, mark.tables, mark.generators = {}, {}, {}
end

--- The bytes of all copies that the session's marks need.
function Session:bytes()
  local sum, seen = 0, {}
  for _, mark in ipairs(self.marks) do
    for _, part in ipairs(mark.tensors) do
      if part.kept then
        local bytes, number = part.kept:bytes()
        if not seen[number] then sum, seen[number] = sum + bytes, true end
      end
    end
  end
  return sum
end

-- --- comparing ---

local Difference = class "Difference"

function Difference:__tostring()
  if #self == 0 then return "no difference" end
  local lines = {}
  for k, d in ipairs(self) do
    lines[k] = d.most and ("%-40s %.4g at most"):format(d.path, d.most)
      or ("%-40s %s, %s"):format(d.path, tostring(d.first), tostring(d.second))
  end
  return table.concat(lines, "\n")
end

local function largest(a, b)
  if a.shape ~= b.shape or a.dtype ~= b.dtype then return math.huge end
  if a:numel() == 0 or a:eq(b):all():item() then return 0 end
  local d = (a:to "f64" - b:to "f64"):abs():nan_to_num {nan = math.huge}
  return d:max():item()
end

local function compare_tensors(out, a, b)
  local there = {}
  for _, part in ipairs(a.tensors) do there[part.x] = part end
  for _, part in ipairs(b.tensors) do
    local other = there[part.x]
    if other and part.kept and other.kept and not closed(part.x) then
      local most = largest(other.kept:value(part.x), part.kept:value(part.x))
      if most > 0 then out[#out + 1] = {path = part.path, most = most} end
    end
  end
end

local plain = {number = true, string = true, boolean = true, ["nil"] = true}

local function compare_tables(out, a, b)
  local there = {}
  for _, entry in ipairs(a.tables) do there[entry[1]] = entry[2] end
  for _, entry in ipairs(b.tables) do
    local first, second = there[entry[1]], entry[2]
    local keys = {}
    for k in next, first or {} do keys[k] = true end
    for k in next, first and second or {} do keys[k] = true end
    for k in next, keys do
      local x, y = first[k], second[k]
      if x ~= y and plain[type(x)] and plain[type(y)] and (x == x or y == y) then
        local path = (entry[3] == "" and "" or entry[3] .. ".") .. tostring(k)
        out[#out + 1] = {path = path, first = x, second = y}
      end
    end
  end
end

--- Compares two marks, such as the ends of two branches.
-- @return a list, which can be printed: {path =, most = the largest absolute difference} for each
-- tensor that differs, {path =, first =, second =} for each number, string and boolean
function Session:compare(a, b)
  check(self, "compare", a)
  check(self, "compare", b)
  local _ <close> = core.no_grad()
  local out = Difference()
  compare_tensors(out, a, b)
  compare_tables(out, a, b)
  table.sort(out, function(x, y) return x.path < y.path end)
  return out
end

--- The marks, one a line.
function Session:__tostring()
  local lines = {}
  for k, mark in ipairs(self.marks) do
    lines[k] = ("%s%s%s"):format(mark == self.base and "> " or "  ", tostring(mark),
      mark.parent and (", after %d"):format(mark.parent.number) or "")
  end
  return #lines > 0 and table.concat(lines, "\n") or "no marks"
end

-- --- of all globals ---

local M = {}
local own

for name in ("mark back at fork drop compare bytes"):gmatch "%S+" do
  M[name] = function(...)
    own = own or Session(_G)
    return own[name](own, ...)
  end
end

return setmetatable(M, {
  __name = "flare.session",
  __call = function(_, roots) return Session(roots) end,
})
