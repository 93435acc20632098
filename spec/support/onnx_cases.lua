-- Cases of the ONNX project: OPERATOR/CASE/model.onnx with test_data_set_K/{input,output}_K.pb.
-- Finds them below a folder, runs one, and compares.
local flare = require "flare"
local core = flare.core

local M = {}

local function lines(command)
  local list = {}
  local pipe <close> = assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  return list
end

--- The folders of all cases below one that has them, or archives of them, in order. `scratch`
-- is where archives are unpacked.
function M.find(folder, scratch)
  for _, archive in ipairs(lines(("find '%s' -maxdepth 1 -name '*.tar.gz'"):format(folder))) do
    assert(os.execute(("tar -xzf '%s' -C '%s'"):format(archive, scratch)))
  end
  local found = lines(("find -L '%s' '%s' -name model.onnx | sort"):format(folder, scratch))
  for k, path in ipairs(found) do found[k] = path:match "^(.*)/" end
  return found
end

-- Upstream's tolerance, with what the types can hold.
local tolerance = {
  f16 = {1e-3, 2e-3}, bf16 = {1e-2, 1.6e-2}, [""] = {1e-7, 1e-3},
}

--- Whether two tensors are close, or what differs.
function M.close(got, want)
  if got.dtype ~= want.dtype then return nil, ("%s, not %s"):format(got.dtype, want.dtype) end
  if got.shape ~= want.shape then return nil, ("shape %s, not %s"):format(got.shape, want.shape) end
  if want:numel() == 0 then return true end
  local a, b = got:to("cpu"):to("f64"):reshape(-1), want:to("f64"):reshape(-1)
  local t = tolerance[want.dtype] or tolerance[""]
  local near = (a - b):abs():le(b:abs() * t[2] + t[1])
  near = near:logical_or(a:eq(b)):logical_or(a:isnan():logical_and(b:isnan()))
  if near:all():item() then return true end
  local at = near:logical_not():nonzero():reshape(-1)[1]:item()
  return nil, ("%d of %d differ, element %d is %s, not %s"):format(
    (near:logical_not()):sum():item(), want:numel(), at, a[at]:item(), b[at]:item())
end

local function load_all(folder, kind, count)
  local list = {}
  for k = 0, count - 1 do
    local path = ("%s/%s_%d.pb"):format(folder, kind, k)
    if core.file.exists(path) then
      list[k + 1] = assert(flare.onnx.load_tensor(path))
    end
  end
  return list
end

--- Runs a case: "passed", "refused" or "failed", and why.
function M.run(case, device)
  local model, message = flare.onnx.load(case .. "/model.onnx", {device = device})
  if not model then return "refused", message end
  local ok, problem = pcall(function()
    for set = 0, 99 do
      local folder = ("%s/test_data_set_%d"):format(case, set)
      if set > 0 and not core.file.exists(folder) then break end
      local results = model:run(load_all(folder, "input", #model.inputs))
      local wanted = load_all(folder, "output", #model.outputs)
      for k = 1, #model.outputs do
        assert(wanted[k], "there is nothing to compare with")
        local fine, why = M.close(results[k], wanted[k])
        if not fine then error(("output %d: %s"):format(k, why), 0) end
      end
    end
  end)
  if ok then return "passed" end
  return "failed", tostring(problem)
end

return M
