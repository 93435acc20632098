--- Help at the prompt: what flare.help says.
local M = {}

--- Prints what is known of a name.
function M.show(name)
  print(require("flare.help").help(name))
end

return M
