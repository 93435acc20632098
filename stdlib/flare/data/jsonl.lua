--- A data set of files with a JSON value in each line, which stay on the disk.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local lines = require "flare.data.lines"
local options = require "flare.options"

local M = {}
local Values = class("JsonLines", lines.Lines)

--- The values in the lines of .jsonl files, in order; empty lines are skipped. A line that is no
-- JSON is an error, with its number, when its sample is read.
-- @param paths a path, or a list of paths: files, or folders of .jsonl files
-- @param opts {fields = {"text", "label"}}: a sample is these fields of an object, one value each;
--   left out, it is the whole value
-- @return a data set, or nil and a message
function M.open(paths, opts)
  local where = "jsonl.open"
  local o = options.check(where, opts, {fields = options.none})
  if o.fields ~= nil and (type(o.fields) ~= "table" or #o.fields == 0) then
    fail("%s: fields must be a list of names, got %s", where, options.kind(o.fields))
  end
  for _, name in ipairs(o.fields or {}) do options.text(where, "a name in fields", name) end
  local set, message = lines.index(where, paths, {jsonl = true, ndjson = true}, true)
  if not set then return nil, message end
  return M.from(o.fields or false, set.paths, set.starts, set.ends, set.sizes)
end

--- Makes a data set from the arguments that describe gave.
function M.from(fields, ...)
  local set = Values(...)
  set.fields = fields or nil
  return set
end

--- Sample i: the value in its line, or the values of its fields.
function Values:get(i)
  local text, place = self:line(i)
  local value, message = core.json.decode(text)
  if value == nil then fail("jsonl: %s: %s", place(), message or "there is no value") end
  if not self.fields then return value end
  local out = {}
  for k, name in ipairs(self.fields) do
    out[k] = type(value) == "table" and value[name]
    if type(value) ~= "table" or value[name] == nil then
      fail("jsonl: %s has no field '%s'%s", place(), name,
           type(value) == "table" and options.hint(name, value) or "")
    end
  end
  return table.unpack(out, 1, #self.fields)
end

--- The module and arguments from which a worker thread makes this data set again.
function Values:describe()
  return "flare.data.jsonl", self.fields or false, self.paths, self.starts, self.ends, self.sizes
end

return M
