--- Who hears of what a run logs: log.report. An observer has functions row, text, image, options.
local M = {}

local list = {}

function M.add(observer) list[#list + 1] = observer end

function M.remove(observer)
  for k, one in ipairs(list) do
    if one == observer then return table.remove(list, k) end
  end
end

--- Tells the observers: tell("row", row).
function M.tell(event, ...)
  for _, observer in ipairs(list) do observer[event](observer, ...) end
end

return M
