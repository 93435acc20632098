--- Reads CSV files: columns of numbers as tensors, other columns as lists of strings.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local text = require "flare.data.text"

local Table = class("Table")
Table.__word = "set"

-- The fields of the line that begins at `at`, and where the next begins. Quotes may hold
-- delimiters, line ends and, doubled, themselves.
local function fields(source, at, delimiter)
  local list, plain = {}, "^([^" .. delimiter .. "\r\n]*)()"
  while true do
    local value, after
    if source:byte(at) == 34 then
      local close = at
      repeat
        close = source:find('"', close + 1, true)
        if not close then return nil, "a quote is not closed" end
        local doubled = source:byte(close + 1) == 34
        if doubled then close = close + 1 end
      until not doubled
      value, after = source:sub(at + 1, close - 1):gsub('""', '"'), close + 1
    else
      value, after = source:match(plain, at)
    end
    list[#list + 1] = value
    local mark = source:sub(after, after)
    if mark == "" then return list, nil end
    if mark == "\r" or mark == "\n" then
      after = source:match("^\r?\n?()", after)
      return list, after <= #source and after or nil
    end
    if not mark:find("^" .. delimiter) then return nil, "text behind a closing quote" end
    at = after + 1
  end
end

-- A column as numbers, with NaN for empty fields and NA; nil if a field is another text.
local function numbers(column)
  local list = {}
  for i, field in ipairs(column) do
    local word = field:lower():match "^%s*(.-)%s*$"
    local missing = word == "" or word == "na" or word == "nan" or word == "null"
    -- tonumber takes a locale's decimal comma, too
    local number = not word:find(",", 1, true) and tonumber(word)
    list[i] = missing and 0 / 0 or number or word:match "^[+-]?inf$" and
      (word:byte() == 45 and -math.huge or math.huge)
    if not list[i] then return nil end
  end
  return list
end

--- data.csv(path, {header = true, delimiter = ",", dtype = "f32"}): a table whose fields are the
-- columns, tensors of numbers or lists of strings, under the names in the first line, or c1, c2,
-- ... without a header. `columns` lists the names; #t is the number of rows. Empty fields, NA and
-- NaN become NaN.
-- @return the table, or nil and a message with the line
local function read(path, opts)
  local o = options.check("data.csv", opts, {header = true, delimiter = ",", dtype = "f32"})
  if #o.delimiter ~= 1 or o.delimiter:find '["\r\n]' then
    fail("data.csv: the delimiter must be one character, got %q", o.delimiter)
  end
  local source, message = text.read(path)
  if not source then return nil, message end
  local delimiter = o.delimiter:gsub("%W", "%%%0")
  local at = source:sub(1, 3) == "\xef\xbb\xbf" and 4 or 1
  local names, columns, line, rows = nil, {}, 0, 0
  while at do
    local list, next_at = fields(source, at, delimiter)
    line = line + 1
    if not list then return nil, ("%s: line %d: %s"):format(path, line, next_at) end
    if #list > 1 or list[1] ~= "" then
      if not names then
        names = {}
        for c, name in ipairs(list) do names[c], columns[c] = o.header and name or "c" .. c, {} end
      end
      if #list ~= #names then
        return nil, ("%s: line %d has %d fields, the first has %d"):format(path, line, #list,
                                                                          #names)
      end
      if line > 1 or not o.header then
        rows = rows + 1
        for c, field in ipairs(list) do columns[c][rows] = field end
      end
    end
    at = next_at
  end
  if not names then return nil, ("%s: there are no columns"):format(path) end
  local out = setmetatable({}, Table)
  for c, name in ipairs(names) do
    if Table[name] or name == "columns" or name == "rows" or rawget(out, name) then
      name = name .. "_" .. c
      names[c] = name
    end
    local list = numbers(columns[c])
    rawset(out, name, list and core.tensor(list, {dtype = o.dtype}) or columns[c])
  end
  out.columns, out.rows = names, rows
  return out
end

-- The column of a name.
local function column(self, where, name)
  local value = rawget(self, name)
  if value == nil then
    local all = {}
    for _, known in ipairs(self.columns) do all[known] = true end
    fail("csv:%s: there is no column '%s'%s", where, tostring(name), options.hint(name, all))
  end
  return value
end

--- A matrix (rows, columns) of the named columns, or of all columns of numbers without names.
function Table:matrix(...)
  local names, list = {...}, {}
  if #names == 0 then
    for _, name in ipairs(self.columns) do
      if core.is_tensor(self[name]) then names[#names + 1] = name end
    end
  end
  for i, name in ipairs(names) do
    list[i] = column(self, "matrix", name)
    if not core.is_tensor(list[i]) then fail("csv:matrix: column '%s' has words", name) end
  end
  if #list == 0 then fail "csv:matrix: no column has only numbers" end
  return core.stack(list, {dim = 2})
end

--- A column as class labels from 1, in sorted order of its values.
-- @return labels (rows), and the list of values by label
function Table:classes(name)
  local values = column(self, "classes", name)
  if core.is_tensor(values) then values = values:totable() end
  local number, all = {}, {}
  for _, value in ipairs(values) do
    if not number[value] then
      number[value] = true
      all[#all + 1] = value
    end
  end
  table.sort(all)
  for k, value in ipairs(all) do number[value] = k end
  local list = {}
  for i, value in ipairs(values) do list[i] = number[value] end
  return core.tensor(list, {dtype = "i64"}), all
end

function Table:__len() return self.rows end

function Table:__tostring()
  return ("csv: %d rows of %s"):format(self.rows, table.concat(self.columns, ", "))
end

return read
