--- The graph of a model's modules, found by calling it with hooks.
local core = require "flare.core"

-- Tensors in values and plain tables.
local function tensors(value, list)
  if core.is_tensor(value) then
    list[#list + 1] = value
  elseif type(value) == "table" and getmetatable(value) == nil then
    for _, inner in pairs(value) do tensors(inner, list) end
  end
  return list
end

-- A name in the scopes of TensorBoard, which a / separates.
local function scoped(root, path)
  return path == "" and root or root .. "/" .. path:gsub("%.", "/")
end

--- @return a list of nodes {name =, op =, inputs =, shape =}
return function(model, ...)
  local root = getmetatable(model).__name
  local nodes, from, kept, taken, removes = {}, {}, {}, {}, {}

  local function add(name, op, inputs, result)
    taken[name] = (taken[name] or 0) + 1 -- a module may be called several times
    if taken[name] > 1 then name = name .. "_" .. taken[name] end
    nodes[#nodes + 1] = {name = name, op = op, inputs = inputs,
                         shape = result and result.shape or nil}
    if result then
      from[result.id] = name
      kept[#kept + 1] = result -- a tensor that is gone could share its id with a new one
    end
    return name
  end

  -- The nodes that made what a module gets; new ones for results of operators.
  local function sources(scope, values)
    local names = {}
    for _, x in ipairs(tensors(values, {})) do
      names[#names + 1] = from[x.id]
        or add(scope .. "/" .. tostring(x.grad_fn or "constant"), tostring(x.grad_fn or "Const"),
               {}, x)
    end
    return names
  end

  for k, x in ipairs(tensors({...}, {})) do
    add("input" .. (k > 1 and k or ""), "Placeholder", {}, x)
  end
  for path, module in model:named_modules() do
    local inside = module:modules()
    if #inside == 1 then
      local name = scoped(root, path)
      local inputs
      removes[#removes + 1] = module:register_forward_pre_hook(function(_, ...)
        inputs = sources(name:match "^(.*)/" or name, {...})
      end)
      removes[#removes + 1] = module:register_forward_hook(function(own, _, result)
        add(name, getmetatable(own).__name, inputs or {}, tensors({result}, {})[1])
      end)
    end
  end
  local was = model.training
  model:eval()
  local results = table.pack(pcall(model, ...))
  if was then model:train() end
  for _, hook in ipairs(removes) do hook:remove() end
  if not results[1] then error(results[2], 0) end
  local made = tensors({table.unpack(results, 2, results.n)}, {})
  for k, name in ipairs(sources(root, made)) do add("output", "Identity", {name}, made[k]) end
  return nodes
end
