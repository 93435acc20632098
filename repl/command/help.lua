--- flare help NAME: what an operator takes, gives and does; without a name all of them.
return function(arguments)
  if arguments[1] then
    require("flare.repl.help").show(arguments[1])
    return 0
  end
  for _, row in ipairs(require("flare.core").ops()) do
    if row.family ~= "backward" then print(("%-22s %s"):format(row.name, row.doc or "")) end
  end
  return 0
end
