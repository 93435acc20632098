--- The concatenation of several data sets.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local fetch = require "flare.data.fetch"
local options = require "flare.options"
local positions = require "flare.data.positions"

local Concat = class("Concat")
Concat.__word = "set"

--- data.Concat(a, b, ...): data sets whose samples have the same form
function Concat:init(...)
  self.sets, self.ends, self.total = {...}, {}, 0
  if #self.sets == 0 then fail("data.Concat: at least one data set is needed") end
  for i, set in ipairs(self.sets) do
    if type(set) ~= "table" or not set.size then
      fail("data.Concat: argument %d must be a data set, got %s", i, options.kind(set))
    end
    self.total = self.total + set:size()
    self.ends[i] = self.total
  end
end

function Concat:size() return self.total end
Concat.__len = Concat.size

function Concat:__tostring()
  local parts = {}
  for i, set in ipairs(self.sets) do parts[i] = "  " .. tostring(set) end
  return ("Concat: %d rows\n%s"):format(self.total, table.concat(parts, "\n"))
end

--- The samples at positions, a tensor or a list of them. Each part is asked once for its samples.
function Concat:fetch(index)
  index = positions("Concat:fetch", index)
  if #index > 0 then
    local low, high = index:amin():item(), index:amax():item()
    if low < 1 or high > self.total then
      fail("Concat:fetch: position %d is out of range 1..%d", low < 1 and low or high, self.total)
    end
  end
  local found, places, n = {}, {}, 0
  for i, set in ipairs(self.sets) do
    local before = self.ends[i] - set:size()
    local mine = (index:gt(before) & index:le(self.ends[i])):nonzero():view(-1)
    if #mine > 0 then
      local part = table.pack(fetch(set, index:index_select(1, mine) - before))
      n = part.n
      for c = 1, n do
        found[c] = found[c] or {}
        table.insert(found[c], part[c])
      end
      places[#places + 1] = mine
    end
  end
  if #places == 0 then return fetch(self.sets[1], index) end
  local order = core.cat(places, 1):argsort()
  for c = 1, n do
    if core.is_tensor(found[c][1]) then
      found[c] = core.cat(found[c], 1):index_select(1, order)
    else
      local all, list = {}, {}
      for _, part in ipairs(found[c]) do table.move(part, 1, #part, #all + 1, all) end
      for k, at in ipairs(order:totable()) do list[k] = all[at] end
      found[c] = list
    end
  end
  return table.unpack(found, 1, n)
end

--- The module and arguments from which a worker thread makes this data set again.
function Concat:describe()
  local parts = {}
  for i, set in ipairs(self.sets) do
    if not set.describe then
      fail("data.Concat: data set %d has no method describe, which workers need", i)
    end
    parts[i] = {set:describe()}
  end
  return "flare.data.concat", parts
end

--- Makes a data set from the arguments that describe gave.
function Concat.from(parts)
  local sets = {}
  for i, part in ipairs(parts) do
    local inner = require(part[1])
    sets[i] = (inner.from or inner)(table.unpack(part, 2))
  end
  return Concat(table.unpack(sets))
end

return Concat
