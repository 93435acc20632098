--- Hooks of modules. Loaded when a module gets its first hook.
local fail = require "flare.fail"
local core = require "flare.core"
local options = require "flare.options"

local M = {}

-- Removes the first hook for which `matches` is true.
local function take(module, hooks, where, matches)
  for i, entry in ipairs(hooks[where]) do
    if matches(entry) then table.remove(hooks[where], i) break end
  end
  if #hooks.before + #hooks.after + #hooks.backward == 0 and rawget(module, "_hooks") == hooks then
    rawset(module, "_hooks", nil)
  end
end

--- Removes a hook by its function, which clones of the module have as well.
function M.remove(module, where, f)
  take(module, module._hooks, where, function(entry) return entry.f == f end)
end

--- Adds a hook; the object returned has remove().
function M.add(module, where, f)
  if type(f) ~= "function" then fail("a hook must be a function, got %s", options.kind(f)) end
  local hooks = rawget(module, "_hooks")
  if not hooks then
    hooks = {before = {}, after = {}, backward = {}}
    rawset(module, "_hooks", hooks)
  end
  local entry = {f = f}
  table.insert(hooks[where], entry)
  return {
    remove = function()
      take(module, hooks, where, function(other) return other == entry end)
    end,
  }
end

-- A copy, since a hook may remove itself.
local function each(list)
  return ipairs(table.move(list, 1, #list, 1, {}))
end

--- Calls forward with the hooks before and after it.
function M.call(module, ...)
  local hooks = module._hooks
  local inputs = table.pack(...)
  for _, entry in each(hooks.before) do
    local replaced = table.pack(entry.f(module, table.unpack(inputs, 1, inputs.n)))
    if replaced.n > 0 and replaced[1] ~= nil then inputs = replaced end
  end
  local outputs = table.pack(module:forward(table.unpack(inputs, 1, inputs.n)))
  for _, entry in each(hooks.after) do
    local replaced = entry.f(module, inputs[1], outputs[1])
    if replaced ~= nil then outputs[1] = replaced end
  end
  local y = outputs[1]
  if #hooks.backward > 0 and core.is_tensor(y) and y.requires_grad then
    for _, entry in each(hooks.backward) do
      y:register_hook(function(gradient) return entry.f(module, gradient) end)
    end
  end
  return table.unpack(outputs, 1, outputs.n)
end

return M
