--- How the importer says no: an error that carries its message as it is, so that `load` gives
-- it as nil and a message. A refusal begins with its class: strings, sequences, ...
local Refusal = {__name = "flare.onnx refusal"}
Refusal.__tostring = function(self) return self.message end

local M = {}

--- Raises the refusal `format` filled with the arguments.
function M.raise(format, ...)
  error(setmetatable({message = format:format(...)}, Refusal), 0)
end

--- What an error says: a refusal's message; anything but that and strings passes.
function M.text(problem)
  if getmetatable(problem) == Refusal then return problem.message end
  if type(problem) ~= "string" then error(problem, 0) end
  return problem
end

--- f(...), or nil and the message of the refusal that it raised; other errors pass.
function M.catch(f, ...)
  local results = table.pack(pcall(f, ...))
  if results[1] then return table.unpack(results, 2, results.n) end
  if getmetatable(results[2]) == Refusal then return nil, results[2].message end
  error(results[2], 0)
end

return M
