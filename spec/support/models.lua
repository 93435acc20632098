--- Folders of small published models, with weights that spec/support/models_data.py computes as
-- well, and what transformers makes of them.
local flare = require "flare"
local core = flare.core

local M = {}

local PATH = "spec/data/models.safetensors"
local tensors, metadata

local function read()
  if not tensors then tensors, metadata = assert(flare.io.safetensors.load(PATH)) end
end

--- The names of all models in the data, in alphabetical order.
function M.names()
  read()
  local list = {}
  for name in pairs(metadata) do
    if name ~= "versions" then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- {config =, tensors = a list of {name, shape}, grads = names} of a model.
function M.about(name)
  read()
  return assert(core.json.decode(metadata[name]))
end

--- A result of transformers, such as "logits".
function M.expected(name, what)
  read()
  return tensors[name .. "." .. what]
end

--- numbers() of models_data.py.
function M.numbers(name, shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local k = flare.arange(0, n)
  local h = (k * k * 2654435761 + k * 1013904223 + core.crc32(name)):remainder(4294967296)
  return (h:to "f64" / 4294967296 - 0.5):to("f32"):view(shape)
end

local function weight(name, shape)
  local x = M.numbers(name, shape)
  if #shape > 1 then
    local fan = 1
    for k = 2, #shape do fan = fan * shape[k] end
    return x * (12 / fan) ^ 0.5
  end
  local factor = name:find "weight$" or name:find "running_var$" or name:find "gamma$"
  return x * 0.2 + (factor and 1 or 0)
end

--- The tensors of a model's file by name.
function M.weights(about)
  local out = {}
  for _, e in ipairs(about.tensors) do
    local name, shape = e[1], table.move(e[2], 1, #e[2], 1, {})
    out[name] = name:find "num_batches_tracked$" and flare.zeros(shape, {dtype = "i64"})
      or weight(name, shape)
  end
  return out
end

--- A new folder with config.json and, unless `bare`, model.safetensors, or another file's name.
function M.folder(about, bare, file)
  local path = os.tmpname()
  os.remove(path)
  assert(core.file.mkdir(path))
  assert(core.file.write_atomic(path .. "/config.json", core.json.encode(about.config)))
  if not bare then
    assert(flare.io.safetensors.save(path .. "/" .. (file or "model.safetensors"),
                                     M.weights(about), {format = "pt"}))
  end
  return path
end

--- Removes a folder of files.
function M.remove(path)
  for _, file in ipairs(core.file.list(path) or {}) do os.remove(path .. "/" .. file) end
  os.remove(path)
end

--- A model of the data, loaded from a folder that is removed again.
function M.load(name, opts)
  local path = M.folder(M.about(name))
  local model = assert(flare.models.load(path, opts))
  M.remove(path)
  return model
end

--- ids() of models_data.py.
function M.ids(vocabulary)
  local k = flare.arange(0, 80)
  return ((k * k * 7 + k * 5 + 3):remainder(vocabulary - 3) + 3):view(2, 40)
end

--- Sums of squares and of products with known numbers of gradients, as models_data.py has them.
-- @param by_name gradients by published names; none is zero
function M.sums(by_name, names)
  local squares, products = {}, {}
  for k, name in ipairs(names) do
    local g = (by_name[name] or flare.zeros(1)):to "f64"
    squares[k] = (g * g):sum():item()
    products[k] = (g * M.numbers("grad." .. name, g.shape)):sum():item()
  end
  return flare.tensor(squares, {dtype = "f64"}), flare.tensor(products, {dtype = "f64"})
end

--- The largest difference of two tensors, relative to the largest number in the second.
function M.off(a, b)
  return (a:to "f64" - b:to "f64"):abs():max():item() / b:to("f64"):abs():max():item()
end

return M
