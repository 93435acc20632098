--- Options of a script: on the command line `--name value`, `--name=value`, or `--name` for a
-- switch, and in the file that `--config FILE` names. --top-k is --top_k.
--
--     local o = flare.args(arg, "Fits a line to noisy points.", {
--       steps = {200, "training steps"}, device = {"cpu", "where to compute"}, quiet = false})
local core = require "flare.core"
local options = require "flare.options"

local M = {}

local function quoted(name) return "--" .. name end

-- " (did you mean '--steps'?)", or the list of options.
local function hint(name, defaults)
  local all = {help = true, config = true}
  for key in pairs(defaults) do all[key] = true end
  local near = options.nearest(name, all)
  if near then return (" (did you mean '%s'?)"):format(quoted(near)) end
  local names = {}
  for key in pairs(all) do names[#names + 1] = quoted(key) end
  table.sort(names)
  return " (there are: " .. table.concat(names, ", ") .. ")"
end

-- The value of an option, converted to the type of its default; nil and a message.
local function convert(key, default, text)
  if type(default) ~= "number" then return text end
  local number = tonumber(text)
  if not number then return nil, ("--%s needs a number, got '%s'"):format(key, text) end
  if math.type(default) == "float" then return number end
  number = math.tointeger(number)
  if not number then return nil, ("--%s needs a whole number, got '%s'"):format(key, text) end
  return number
end

--- Reads options from a list of words.
-- @param argv the words, as in `arg`
-- @param defaults names and default values; the type of a default is the type of the option, and a
-- boolean is a switch
-- @return the options and the set of names that were given, or nil and a message
function M.read(argv, defaults)
  local o, given, i = {}, {}, 1
  for key, value in pairs(defaults) do o[key] = value end
  while argv[i] do
    local key, text = argv[i]:match "^%-%-([%w_][%w_%-]*)=(.*)$"
    key = key or argv[i]:match "^%-%-([%w_][%w_%-]*)$"
    key = key and key:gsub("%-", "_")
    local default = key and defaults[key]
    if default == nil then
      return nil, key and ("unknown option '--%s'%s"):format(key, hint(key, defaults))
        or ("unexpected argument '%s'%s"):format(argv[i], hint(argv[i], defaults))
    elseif type(default) == "boolean" then
      if text and text ~= "true" and text ~= "false" then
        return nil, ("--%s is a switch, =true or =false, got '%s'"):format(key, text)
      end
      o[key] = text ~= "false"
    else
      if not text then
        i = i + 1
        text = argv[i]
        if text and text:find "^%-%-" then
          return nil, ("--%s needs a value, got '%s'; a value that begins with -- is given as "
            .. "--%s=%s"):format(key, text, key, text)
        end
      end
      if not text then return nil, ("--%s needs a value"):format(key) end
      local value, message = convert(key, default, text)
      if value == nil then return nil, message end
      o[key] = value
    end
    given[key] = true
    i = i + 1
  end
  return o, given
end

-- path:line of the first place in a text that sets a key, or the path if none is found.
local function place_of(path, text, key)
  local name, first = tostring(key):gsub("%p", "%%%0"), nil
  for _, pattern in ipairs {'()["\']' .. name .. '["\']%s*:', '()["\']' .. name .. '["\']%s*%]%s*=',
                            "%f[%w_]()" .. name .. "%s*=[^=]"} do
    local at = text:match(pattern)
    if at and (not first or at < first) then first = at end
  end
  if not first then return path end
  return ("%s:%d"):format(path, select(2, text:sub(1, first):gsub("\n", "")) + 1)
end

-- What the text of a file of options has: a JSON object, or the table that Lua code returns, which
-- sees `math` and nothing else; nil and a message.
local function values_of(path, text)
  local message
  if text:find "^%s*{" then
    local values, problem = core.json.decode(text)
    if type(values) == "table" then return values end
    return nil, ("%s: %s"):format(path, problem or "no JSON object")
  end
  local chunk
  chunk, message = load(text, "@" .. path, "t", {math = math})
  if not chunk then return nil, message end
  local ok, values = pcall(chunk)
  if not ok then return nil, tostring(values) end
  if type(values) == "table" then return values end
  return nil, ("%s: it returns a %s, not a table of options"):format(path, type(values))
end

--- Reads options from a file, in Lua (`return {steps = 100}`) or JSON.
-- @param path of the file
-- @param defaults names and default values, as of `read`
-- @return the options and the set of names that the file has, or nil and a message
function M.file(path, defaults)
  local text, problem = core.file.read(path)
  if not text then return nil, problem end
  local values, message = values_of(path, text)
  if not values then return nil, message end
  local o, given = {}, {}
  for key, value in pairs(defaults) do o[key] = value end
  for key, value in pairs(values) do
    local default = defaults[key]
    if default == nil then
      return nil, ("%s: unknown option '%s'%s"):format(place_of(path, text, key), key,
                                                       options.hint(key, defaults))
    elseif type(value) ~= type(default) then
      return nil, ("%s: %s must be a %s, got a %s"):format(place_of(path, text, key), key,
                                                           type(default), type(value))
    elseif math.type(default) == "integer" then
      local whole = math.tointeger(value)
      if not whole then
        return nil, ("%s: %s must be a whole number, got %s"):format(place_of(path, text, key),
                                                                     key, value)
      end
      value = whole
    end
    o[key], given[key] = value, true
  end
  return o, given
end

-- The words without `--config FILE`, and that file; nil and a message.
local function take_config(argv)
  local rest, path, i = {}, nil, 1
  while argv[i] do
    local file = argv[i]:match "^%-%-config=(.*)$"
    if argv[i] == "--config" then
      i = i + 1
      file = argv[i]
      if not file then return nil, "--config needs a value" end
    end
    if file then path = file else rest[#rest + 1] = argv[i] end
    i = i + 1
  end
  return rest, path
end

-- Options are given as a default, or as {default, "what it means"}.
local function split(list)
  local defaults, meanings = {}, {}
  for key, value in pairs(list or {}) do
    if type(value) == "table" then value, meanings[key] = value[1], value[2] end
    defaults[key] = value
  end
  return defaults, meanings
end

local function option_text(key, default)
  if type(default) == "boolean" then return quoted(key) end
  local value = type(default) == "string" and "TEXT" or math.type(default) == "float" and "X" or "N"
  return quoted(key) .. " " .. value
end

--- The text that --help prints: a line of usage, what the script does, and a line for each option
-- with its default.
function M.usage(script, about, list)
  local defaults, meanings = split(list)
  local names, lines = {}, {}
  for key in pairs(defaults) do names[#names + 1] = key end
  table.sort(names)
  for _, key in ipairs(names) do
    local default = defaults[key]
    local shown = default ~= "" and type(default) ~= "boolean"
      and ("default %s"):format(type(default) == "number" and ("%.14g"):format(default) or default)
    local parts = {meanings[key]}
    parts[#parts + 1] = shown and (meanings[key] and "(" .. shown .. ")" or shown) or nil
    lines[#lines + 1] = ("  %-18s %s"):format(option_text(key, default), table.concat(parts, " "))
      :gsub("%s+$", "")
  end
  if defaults.config == nil then
    lines[#lines + 1] = ("  %-18s %s"):format("--config FILE", "options, in Lua or JSON")
  end
  lines[#lines + 1] = ("  %-18s %s"):format("--help", "print this and exit")
  return ("usage: flare %s%s\n%s\n\n%s"):format(script, names[1] and " [options]" or "", about,
    table.concat(lines, "\n"))
end

-- Of the ranks of a job, the first one prints the help.
local function is_first() return (os.getenv "RANK" or "0") == "0" end

-- The options of a file, if one is named, and over them those of the command line.
local function read_all(argv, defaults)
  if defaults.config ~= nil then return M.read(argv, defaults) end
  local rest, path = take_config(argv)
  if not rest then return nil, path end
  if not path then return M.read(rest, defaults) end
  local from_file, in_file = M.file(path, defaults)
  if not from_file then return nil, in_file end
  local o, given = M.read(rest, from_file)
  if not o then return nil, given end
  for key in pairs(in_file) do given[key] = true end
  return o, given
end

--- Reads the options of a script. For --help it prints the usage and exits with status 0; for an
-- unknown option, or a value of the wrong type, it prints a message that names the option and the
-- nearest one, and exits with status 2. `--config FILE` reads options from a file in Lua or JSON;
-- those of the command line take precedence.
-- @param argv the words of the command line: `arg`; nil for none
-- @param about what the script does, in a sentence
-- @param list names with default values, or with {default, meaning}; the type of a default is the
-- type of the option, and a boolean is a switch
-- @return a table of the options, and the set of names that were given
function M.args(argv, about, list)
  argv = argv or {}
  if type(argv) ~= "table" then
    require("flare.fail")("args: the words of the command line (arg) are expected, got %s",
                          options.kind(argv))
  end
  local script = argv[0] or "script.lua"
  for i = 1, #argv do
    options.text("args", "each word", argv[i])
    if argv[i] == "--help" then
      if is_first() then io.stdout:write(M.usage(script, about, list), "\n") end
      os.exit(0)
    end
  end
  local o, given = read_all(argv, (split(list)))
  if o then
    require("flare.log.observers").tell("options", o)
    return o, given
  end
  local name = script:match "([^/]*)$":gsub("%.lua$", "")
  io.stderr:write(name, ": ", given, "\n")
  os.exit(2)
end

return M
