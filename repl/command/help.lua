--- flare help NAME: what an operator, function or class takes, gives and does; without a name
-- all operators. flare help --luacats [FILE]: the definitions for editors.
local groups = {
  {"one input, by element", "unary test"},
  {"several inputs, by element", "binary compare ternary"},
  {"views", "view"}, {"others", "op compose"},
}

-- What can be asked for: the parts of the library and the names of operators, without those that
-- other operators are made of.
local function overview()
  local rows, source = require "flare.help.rows", require "flare.help.source"
  local out = {require("flare.help").help()}
  for _, group in ipairs(groups) do
    local names = {}
    for _, row in ipairs(require("flare.core").ops()) do
      local inner = rows.is_inner(row) or row.name:find "^comm_" or row.name:find "_step$"
                    or row.name:find "^gamma_d" or row.name:find "_cell$"
      if (" " .. group[2] .. " "):find(" " .. row.family .. " ", 1, true) and not inner then
        names[#names + 1] = row.name
      end
    end
    table.sort(names)
    out[#out + 1] = "\n" .. group[1] .. ":"
    out[#out + 1] = source.wrapped("  ", table.concat(names, " "))
  end
  return table.concat(out, "\n")
end

local usage = "usage: flare help [NAME] | --luacats [FILE]"

return function(arguments)
  local option = arguments[1] and arguments[1]:match "^%-.*"
  if option == "--help" or option == "-h" then
    print(usage)
    return 0
  elseif option and option ~= "--luacats" or (arguments[2] or ""):find "^%-" then
    io.stderr:write(usage, "\n")
    return 1
  end
  if option then
    local text = require("flare.help.luacats").text()
    local file, problem = io.stdout, nil
    if arguments[2] then file, problem = io.open(arguments[2], "w") end
    if not file then
      io.stderr:write("flare help: ", problem, "\n")
      return 1
    end
    file:write(text)
    return file:flush() and 0 or 1
  end
  if arguments[1] then
    local text = require("flare.help").help(arguments[1])
    local unknown = text:find "^there is no "
    if unknown and pcall(require, "flare.repl.command." .. arguments[1]) then
      text, unknown = ("%s is a command: flare %s --help"):format(arguments[1], arguments[1]), nil
    end
    print(text)
    return unknown and 1 or 0
  end
  print(overview())
  return 0
end
