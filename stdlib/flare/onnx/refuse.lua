--- Refusals of the importer: errors that carry a message unchanged, so that `load` returns nil and
-- the message. A message begins with the class of the reason: strings, sequences, ...
local Refusal = {__name = "flare.onnx refusal"}
Refusal.__tostring = function(self) return self.message end

local M = {}

--- Raises the refusal `format` filled with the arguments.
function M.raise(format, ...)
  error(setmetatable({message = format:format(...)}, Refusal), 0)
end

--- The message of an error: of a refusal or a string; other values are returned unchanged.
function M.text(problem)
  if getmetatable(problem) == Refusal then return problem.message end
  if type(problem) ~= "string" then error(problem, 0) end
  return problem
end

--- f(...), or nil and the message of the refusal that it raised; other errors are raised again.
function M.catch(f, ...)
  local results = table.pack(pcall(f, ...))
  if results[1] then return table.unpack(results, 2, results.n) end
  if getmetatable(results[2]) == Refusal then return nil, results[2].message end
  error(results[2], 0)
end

return M
