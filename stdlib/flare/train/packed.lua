--- A data set of rows that are filled with whole sequences, without padding.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"
local positions = require "flare.data.positions"
local sequences = require "flare.train.sequences"

local Packed = class("Packed")

-- Puts each example into the row with the least room that it fits into, the longest first (best fit
-- decreasing).
-- @return a list of rows, each a list of positions
local function fill(lengths, most)
  local order, rows = {}, {}
  for k = 1, #lengths do order[k] = k end
  table.sort(order, function(a, b)
    if lengths[a] ~= lengths[b] then return lengths[a] > lengths[b] end
    return a < b
  end)
  local by_room = {} -- rows that have so much room left
  for _, k in ipairs(order) do
    local n, row = lengths[k], nil
    for room = n, most do
      local list = by_room[room]
      if list and #list > 0 then
        row = table.remove(list)
        break
      end
    end
    if not row then
      row = {room = most}
      rows[#rows + 1] = row
    end
    row[#row + 1], row.room = k, row.room - n
    by_room[row.room] = by_room[row.room] or {}
    table.insert(by_room[row.room], row)
  end
  return rows
end

--- train.Packed(examples, {length = tokens of a row})
-- A row of the data set is some of the examples, together at most `length` tokens; longer ones are
-- cut off. `fetch` puts the examples of all its rows one behind the other and returns
-- ids (1, time), targets (1, time) and lengths: what train.loss takes.
-- @param examples a list of {ids = list, labels = list or nil}; a label is the id at its place, or
--   -100 where it does not count
function Packed:init(examples, opts)
  local o = options.check("train.Packed", opts, {length = 2048})
  options.count("train.Packed", "length", o.length)
  sequences.join("train.Packed", examples, o.length) -- checks them
  self.examples, self.length, self.tokens = examples, o.length, 0
  local lengths = {}
  for k, example in ipairs(examples) do
    lengths[k] = math.min(#example.ids, o.length)
    self.tokens = self.tokens + lengths[k]
  end
  self.rows = fill(lengths, o.length)
end

--- The number of rows.
function Packed:size() return #self.rows end
Packed.__len = Packed.size

--- ids, targets, lengths of positions, a tensor or a list of them.
function Packed:fetch(index)
  local list = {}
  for _, k in ipairs(positions("Packed:fetch", index):tolist()) do
    local row = self.rows[k < 0 and #self.rows + 1 + k or k]
    if not row then fail("Packed:fetch: position %d is out of range 1..%d", k, #self.rows) end
    for _, place in ipairs(row) do list[#list + 1] = self.examples[place] end
  end
  return sequences.join("train.Packed", list, self.length)
end

function Packed:__tostring()
  return ("Packed: %d examples in %d rows of %d tokens, %.1f %% full"):format(#self.examples,
    #self.rows, self.length, 100 * self.tokens / math.max(1, #self.rows * self.length))
end

return Packed
