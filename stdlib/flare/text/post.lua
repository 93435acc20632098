--- What happens to ids after the model: truncation, special tokens around them, padding.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- A part is {ids =, flat =, text =}: flat has the first and the last byte of each id in turn, or is
-- nil. This is what stands at positions [first, last] of it.
local function cut(part, first, last)
  return {ids = table.move(part.ids, first, last, 1, {}), text = part.text,
          flat = part.flat and table.move(part.flat, 2 * first - 1, 2 * last, 1, {})}
end

-- Shortens a part to `n` ids; what goes is kept in windows of n that overlap by `stride`.
local function shorten(part, n, o)
  local count = #part.ids
  if count <= n then return end
  local whole = cut(part, 1, count)
  local windows = {}
  if n == 0 then
    windows[1], windows[2] = cut(whole, 1, 0), whole
  else
    local step = n - o.stride
    if step < 1 then
      fail("encode: truncate: stride must be less than the length of a part, %d", n)
    end
    local at = o.side == "left" and count or 1
    repeat
      local first = o.side == "left" and math.max(at - n + 1, 1) or at
      local last = o.side == "left" and at or math.min(at + n - 1, count)
      windows[#windows + 1] = cut(whole, first, last)
      at = o.side == "left" and at - step or at + step
    until first == 1 and o.side == "left" or last == count and o.side ~= "left"
  end
  part.ids, part.flat = windows[1].ids, windows[1].flat
  part.more = table.move(windows, 2, #windows, 1, {})
end

--- Truncates a text and its pair, or nil, to a length together.
-- @param added how many special tokens will be added
function M.truncate(a, b, o, added)
  local most = o.length - added
  if most < 0 then
    fail("encode: truncate: the length is %d, and there are %d special tokens alone", o.length,
      added)
  end
  local n, m = #a.ids, b and #b.ids or 0
  local over = n + m - most
  if over <= 0 then return end
  if o.strategy == "longest_first" then
    if not b then return shorten(a, most, o) end
    local less = math.min(n, m)
    local more = less > most and less or math.max(less, most - less)
    if less + more > most then
      less = most // 2
      more = less + most % 2
    end
    if n > m then less, more = more, less end
    shorten(a, less, o)
    return shorten(b, more, o)
  end
  local target = o.strategy == "only_first" and a or b
  if not target then fail "encode: truncate: there is no pair to truncate" end
  if #target.ids <= over then
    fail("encode: truncate: the text is too short to make both fit %d", o.length)
  end
  return shorten(target, #target.ids - over, o)
end

-- A table from a user's option, the file's settings, or nil.
local function settings(where, given, default, known)
  if given == false then return nil end
  if given == nil then return default end
  if given == true then return default or options.check(where, nil, known) end
  if math.type(given) == "integer" then given = {length = given} end
  if type(given) ~= "table" then
    fail("%s: a length or a table is expected, got %s", where, options.kind(given))
  end
  local o = {}
  for key, value in pairs(default or {}) do o[key] = value end
  for key, value in pairs(given) do o[key] = value end
  return options.check(where, o, known)
end

local strategies = {longest_first = true, only_first = true, only_second = true}

--- The settings of a truncation, or nil for none.
function M.truncation(given, default)
  local o = settings("encode: truncate", given, default,
    {length = 512, strategy = "longest_first", stride = 0, side = "right"})
  if o and not strategies[o.strategy] then
    fail("encode: truncate: there is no strategy '%s'%s", o.strategy,
      options.hint(o.strategy, strategies))
  end
  return o
end

--- The settings of padding, or nil for none; length 0: to the longest.
function M.padding(given, default)
  return settings("encode: pad", given, default,
    {length = 0, multiple = 1, side = "right", id = 0, type = 0})
end

local fillers = {
  ids = function(o) return o.id end, types = function(o) return o.type end,
  mask = function() return 0 end, special = function() return 1 end,
  offsets = function() return {1, 0} end,
}

local function pad_one(one, n, o)
  local missing, all = n - #one.ids, {}
  for name in pairs(fillers) do all[name] = one[name] end -- as they are before padding
  if missing <= 0 then return end
  for name, filler in pairs(fillers) do
    local list = all[name]
    if list and o.side == "left" then
      table.move(list, 1, #list, missing + 1)
      for i = 1, missing do list[i] = filler(o) end
    elseif list then
      for i = #list + 1, n do list[i] = filler(o) end
    end
  end
end

--- Pads encodings, in place, to one length.
function M.pad(all, o)
  local n = o.length
  if n == 0 then
    for _, one in ipairs(all) do n = math.max(n, #one.ids) end
  end
  n = (n + o.multiple - 1) // o.multiple * o.multiple
  for _, one in ipairs(all) do
    pad_one(one, n, o)
    for _, more in ipairs(one.more or {}) do pad_one(more, n, o) end
  end
end

--- What is put around a text, or a text and its pair: a list of {ids =, type =} and of
-- {part = 1 or 2, type =}.
local Processor = class("Processor")

function Processor:init(o)
  self.single, self.double = o.single, o.double
  self.trim, self.prefix = o.trim, o.prefix
  self.plain = o.plain -- types of the parts where no special tokens are added, or nil
end

--- How many special tokens are added.
function Processor:added(pair)
  local n = 0
  for _, piece in ipairs(pair and self.double or self.single) do n = n + #(piece.ids or {}) end
  return n
end

local function spaces(token, pattern)
  local n = 0
  while true do
    local rest = token:match(pattern)
    if not rest then return n end
    token, n = rest, n + 1
  end
end

-- Offsets of byte-level tokens without the spaces around a word, each a character of the text.
local function trim(tokenizer, part, prefix)
  local flat, text = part.flat, part.text
  for i, id in ipairs(part.ids) do
    local token = (tokenizer:token(id) or ""):gsub("\u{120}", " ")
    local leading, trailing = spaces(token, "^%s(.*)$"), spaces(token, "^(.*)%s$")
    local from, to = flat[2 * i - 1] - 1, flat[2 * i]
    if leading == 1 and prefix and (i == 1 or from == 0) then leading = 0 end
    for _ = 1, leading do
      from = math.min(text:find("[^\x80-\xbf]", from + 2) or to + 1, to + 1) - 1
    end
    for _ = 1, trailing do
      repeat to = to - 1 until to <= from or not text:find("^[\x80-\xbf]", to + 1)
    end
    flat[2 * i - 1], flat[2 * i] = from + 1, math.max(from, to)
  end
end

-- Ids and, made when they are first asked for, the lists that belong to them. `layout` says what
-- the ids are, in order: {n =, type =, special =, flat =}.
local Encoding = class("Encoding")

local function fill(self, value_of)
  local out = {}
  for _, run in ipairs(self.layout) do
    local value = value_of(run)
    for _ = 1, run.n do out[#out + 1] = value end
  end
  return out
end

local lists = {
  types = function(self) return fill(self, function(run) return run.type end) end,
  mask = function(self) return fill(self, function() return 1 end) end,
  special = function(self) return fill(self, function(run) return run.special end) end,
  offsets = function(self)
    if not self.located then return nil end
    local out = {}
    for _, run in ipairs(self.layout) do
      local flat = run.flat
      for i = 1, run.n do
        out[#out + 1] = flat and {flat[2 * i - 1], flat[2 * i]} or {1, 0}
      end
    end
    return out
  end,
}

function Encoding.__index(self, name)
  local make = lists[name]
  if not make then return Encoding[name] end
  local list = make(self)
  self[name] = list
  return list
end

-- A text in the order of a template.
local function join(template, parts, special)
  local layout, ids = {}, nil
  for _, piece in ipairs(template) do
    local part = piece.part and parts[piece.part]
    local more = part and part.ids or special and piece.ids
    if more then
      layout[#layout + 1] = {n = #more, type = piece.type, special = part and 0 or 1,
                             flat = part and part.flat}
      if not ids and part then
        ids = more
      else
        ids = table.move(more, 1, #more, #(ids or {}) + 1, ids or {})
      end
    end
  end
  local out = setmetatable({}, Encoding)
  out.ids, out.layout, out.located = ids or {}, layout, parts[1].flat ~= nil
  return out
end

--- The lists of a text and its pair, or nil, with special tokens or without.
function Processor:apply(tokenizer, a, b, special)
  if self.trim and a.flat then
    for _, part in ipairs {a, b} do
      trim(tokenizer, part, self.prefix)
      for _, more in ipairs(part.more or {}) do trim(tokenizer, more, self.prefix) end
    end
  end
  local template = b and self.double or self.single
  if not special and self.plain then
    template = {{part = 1, type = self.plain[1]}, {part = 2, type = self.plain[2]}}
  end
  local out = join(template, {a, b}, special)
  if a.more or b and b.more then
    out.more = {}
    local firsts, seconds = {a, table.unpack(a.more or {})}, {b, table.unpack(b and b.more or {})}
    for i, first in ipairs(firsts) do
      for j = 1, math.max(#seconds, 1) do
        if i > 1 or j > 1 then
          out.more[#out.more + 1] = join(template, {first, seconds[j]}, special)
        end
      end
    end
  end
  return out
end

M.Processor = Processor
M.default = Processor {single = {{part = 1, type = 0}},
                       double = {{part = 1, type = 0}, {part = 2, type = 1}}}

return M
