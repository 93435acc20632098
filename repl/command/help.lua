--- flare help NAME: what an operator, function or class takes, gives and does; without a name
-- all operators. flare help --luacats [FILE]: the definitions for editors.
return function(arguments)
  if arguments[1] == "--luacats" then
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
    print(text)
    return text:find "^there is no " and 1 or 0
  end
  for _, row in ipairs(require("flare.core").ops()) do
    if row.family ~= "backward" then print(("%-22s %s"):format(row.name, row.doc or "")) end
  end
  return 0
end
