--- A data set of the lines of text files, which stay on the disk: memory holds 8 bytes for a line.
--
-- The files are the shards of one sequence of lines, so a loader shuffles it, divides it among
-- workers and ranks, and goes on from a saved state as with any data set.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local kind = require "flare.io.kind"
local options = require "flare.options"

local M = {}
local Lines = class("Lines")
Lines.__keeps = true
M.Lines = Lines

local CHUNK, OPEN = 1 << 20, 64
local NEWLINE, RETURN = 10, 13

-- Where lines begin in a file, from 0; those that are empty are left out if `full`.
local function starts_of(file, size, full)
  local list, before = {}, "\n"
  local at = file:read(0, 3) == "\xef\xbb\xbf" and 3 or 0
  while at < size do
    local text, message = file:read(at, math.min(CHUNK, size - at))
    if not text then return nil, message end
    if #text == 0 then return nil, "it became shorter while it was read" end
    if at < CHUNK and text:find("\0", 1, true) then
      return nil, "not a text: it has zero bytes" .. kind.hint(text:sub(1, kind.BYTES), "")
    end
    local bytes = core.from_bytes(before .. text, "u8", {#text + 1})
    local first = bytes:narrow(1, 1, #text):eq(NEWLINE)
    if full then
      local own = bytes:narrow(1, 2, #text)
      first = first & own:ne(NEWLINE) & own:ne(RETURN)
    end
    list[#list + 1] = first:nonzero():view(-1) + (at - 1)
    at, before = at + #text, text:sub(-1)
  end
  if #list == 0 then return core.zeros({0}, {dtype = "i64"}) end
  return core.cat(list, 1)
end

-- The files that a path stands for: itself or, of a folder, all with one of the endings.
local function expand(path, endings, out)
  local stat, message = core.file.stat(path)
  if not stat then return nil, message end
  if stat.kind ~= "directory" then
    out[#out + 1] = path
    return true
  end
  local names
  names, message = core.file.list(path)
  if not names then return nil, message end
  table.sort(names)
  local count = #out
  for _, name in ipairs(names) do
    if endings[(name:match "%.(%w+)$" or ""):lower()] then out[#out + 1] = path .. "/" .. name end
  end
  if #out == count then
    local all = {}
    for ending in pairs(endings) do all[#all + 1] = "." .. ending end
    table.sort(all)
    return nil, ("%s: there is no file in it that ends in %s"):format(path,
                                                                    table.concat(all, ", "))
  end
  return true
end

--- Finds the lines of files: what `open` of this module and of data.jsonl share.
-- @return the fields of a data set, or nil and a message
function M.index(where, paths, endings, full)
  if type(paths) == "string" then paths = {paths} end
  if type(paths) ~= "table" or #paths == 0 then
    fail("%s: a path or a list of paths is expected, got %s", where,
         type(paths) == "table" and "an empty list" or options.kind(paths))
  end
  local files = {}
  for _, path in ipairs(paths) do
    local ok, message = expand(options.text(where, "a path", path), endings, files)
    if not ok then return nil, message end
  end
  local starts, ends, sizes, total = {}, {}, {}, 0
  for k, path in ipairs(files) do
    local file, message = core.file.open(path)
    if not file then return nil, message end
    local _ <close> = file
    sizes[k] = core.file.stat(path).size
    starts[k], message = starts_of(file, sizes[k], full)
    if not starts[k] then return nil, ("%s: %s"):format(path, message) end
    total = total + #starts[k]
    ends[k] = total
  end
  return {paths = files, starts = core.cat(starts, 1), ends = ends, sizes = sizes}
end

--- The lines of text files, in order: a data set of strings.
-- @param paths a path, or a list of paths: files, or folders of .txt files
-- @param opts {empty = false}: whether lines without a character count
-- @return a data set, or nil and a message
function M.open(paths, opts)
  local o = options.check("lines.open", opts, {empty = false})
  local set, message = M.index("lines.open", paths, {txt = true, text = true}, not o.empty)
  if not set then return nil, message end
  return M.from(set.paths, set.starts, set.ends, set.sizes)
end

--- Makes a data set from the arguments that describe gave.
function M.from(paths, starts, ends, sizes)
  return Lines(paths, starts, ends, sizes)
end

function Lines:init(paths, starts, ends, sizes)
  if type(paths) ~= "table" or not core.is_tensor(starts) or type(ends) ~= "table"
     or type(sizes) ~= "table" then
    fail("%s: data sets of lines are made by open", getmetatable(self).__name)
  end
  self.paths, self.starts, self.ends, self.sizes = paths, starts, ends, sizes
  self.open, self.count = {}, 0
end

function Lines:size() return #self.starts end
Lines.__len = Lines.size

function Lines:__tostring()
  return ("%s: %d lines of %d files"):format(getmetatable(self).__name, #self.starts, #self.paths)
end

-- The number of the file that has line i.
local function file_of(self, i)
  local low, high = 1, #self.ends
  while low < high do
    local middle = (low + high) // 2
    if i <= self.ends[middle] then high = middle else low = middle + 1 end
  end
  return low
end

-- An open file; not more than OPEN are kept.
local function opened(self, k)
  local file = self.open[k]
  if file then return file end
  if self.count >= OPEN then
    for _, other in pairs(self.open) do other:close() end
    self.open, self.count = {}, 0
  end
  local path = self.paths[k]
  local problem
  file, problem = core.file.open(path)
  if not file then fail("lines: %s", problem) end
  if core.file.stat(path).size ~= self.sizes[k] then
    fail("lines: %s: its size has changed since the data set was opened", path)
  end
  self.open[k], self.count = file, self.count + 1
  return file
end

--- Line i without its end.
-- @return a string, and where it is, for messages: a function that returns "path: line n"
function Lines:line(i)
  local n = math.tointeger(i)
  if not n or n < 1 or n > #self.starts then
    fail("lines: position %s is out of range 1..%d", tostring(i), #self.starts)
  end
  local k = file_of(self, n)
  local first = self.starts:narrow(1, n, 1):item()
  local last = n < self.ends[k] and self.starts:narrow(1, n + 1, 1):item() or self.sizes[k]
  local text, message = opened(self, k):read(first, last - first)
  if not text or #text < last - first then
    fail("lines: %s: %s", self.paths[k], message or "it became shorter")
  end
  local function place()
    local count, at = 1, 0
    while at < first do
      local part = self.open[k]:read(at, math.min(CHUNK, first - at)) or ""
      if #part == 0 then break end
      count, at = count + select(2, part:gsub("\n", "")), at + #part
    end
    return ("%s: line %d"):format(self.paths[k], count)
  end
  return text:match "^(.-)[\r\n]*$", place
end

--- Line i, a string.
function Lines:get(i) return (self:line(i)) end

--- The module and arguments from which a worker thread makes this data set again.
function Lines:describe()
  return "flare.data.lines", self.paths, self.starts, self.ends, self.sizes
end

return M
