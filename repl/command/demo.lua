--- flare demo NAME: what a part of flare does, in figures: time, memory, and what was computed.
local args = require "flare.args"
local core = require "flare.core"
local words = require "flare.repl.words"

local names = {"attention", "moe"}

local function complain(format, ...)
  io.stderr:write("flare demo: ", format:format(...), "\n")
  return 1
end

-- What all demos can do: {options, meanings}.
local common = {
  device = {"cpu", "where to compute: cpu, cuda, cuda:1"}, dtype = {"f32", "f32, bf16 or f16"},
  seed = {1, "of random numbers"}, profile_memory = {false, "show where memory goes, by line"},
}

return function(arguments)
  local list = table.concat(names, ", ")
  local name = table.remove(arguments, 1)
  if name == "--help" or name == "-h" then
    print(("usage: flare demo NAME [options]; there are: %s; NAME --help lists the options")
      :format(list))
    return 0
  elseif not name or name:find "^%-" then
    return complain("usage: flare demo NAME [options]; there are: %s", list)
  end
  local known = false
  for _, other in ipairs(names) do known = known or other == name end
  if not known then
    local near = core.nearest(name, names)
    return complain("there is no demo %s%s; there are: %s", name,
                    near and (" (did you mean '%s'?)"):format(near) or "", list)
  end
  local demo = require("flare.repl.demo." .. name)
  local all, defaults = {}, {}
  for _, options in ipairs{common, demo.options} do
    for key, value in pairs(options) do all[key], defaults[key] = value, value[1] end
  end
  if words.asks_help(arguments) then
    -- --config is for scripts
    print((args.usage("demo " .. name, demo.about, all):gsub("\n  %-%-config[^\n]*", "")
      :gsub("%-%-[%w_]+", function(option) return (option:gsub("_", "-")) end)))
    return 0
  end
  local o, message = args.read(arguments, defaults)
  if not o then return complain("%s: %s", name, message) end
  local ok, problem = pcall(demo.run, o)
  return ok and 0 or complain("%s: %s", name, (tostring(problem):gsub("^<flare>[^:]*:%d+: ", "")))
end
