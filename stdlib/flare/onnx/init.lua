--- flare.onnx: models and tensors of ONNX files.
--
--     local model = assert(flare.onnx.load("model.onnx"))
--     local y = model:run({x})[1]
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local refuse = require "flare.onnx.refuse"

local M = {}

local function check_path(where, path)
  if type(path) ~= "string" then
    fail("%s: the path must be a string, got %s", where, options.kind(path))
  end
end

--- Reads a model.
-- @param opts device: the model's device, by default that of new tensors; dtype: a dtype that
--   replaces f32, such as "f16"; random = true: allows random operators, whose results differ from
--   those of other programs
-- @return a model with `inputs`, `outputs` and `run`, or nil and a message
function M.load(path, opts)
  check_path("load", path)
  local o = options.check("load", opts, {device = options.none, dtype = options.none,
                                        random = false})
  if o.dtype and not require("flare.onnx.types").is_float(o.dtype) then
    fail("load: dtype must be f64, f32, f16 or bf16, got %s", tostring(o.dtype))
  end
  o.device = core.zeros({0}, {device = o.device}).device
  return require("flare.onnx.model").load(path, o)
end

--- Reads one tensor, of a file with a TensorProto.
-- @return a tensor on the CPU, or nil and a message
function M.load_tensor(path)
  check_path("load_tensor", path)
  local files, message = require("flare.onnx.files").open(path)
  if not files then return nil, message end
  local _ <close> = files
  local proto
  proto, message = core.protobuf(files.main, require("flare.onnx.schema").Tensor)
  if not proto then return nil, files:explain(message) end
  local x, problem = refuse.catch(require("flare.onnx.tensor").read, proto, files)
  if x then return x end
  return nil, path .. ": " .. problem
end

--- The names of the supported operators, in alphabetical order.
function M.operators()
  return require("flare.onnx.operators").names()
end

return require "flare.lazy"("flare.onnx", M, {})
