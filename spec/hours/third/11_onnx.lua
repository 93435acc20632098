-- ONNX models that others have made: run, compared with their own test data, differentiated.
local flare = require "flare"
local o = flare.args(arg, "Runs test cases of ONNX.", {cases = "onnx-cases.tar.gz"})
local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))
assert(os.execute(("tar -xzf %s -C %s"):format(o.cases, folder)))
local find = io.popen(("find %s -name model.onnx | sort"):format(folder))
local paths = {}
for path in find:lines() do paths[#paths + 1] = path end
find:close()
print(#paths .. " models")

local ran, right, refused = 0, 0, 0
for k = 1, #paths, 10 do
  local case = paths[k]:match "^(.*)/"
  local model, problem = flare.onnx.load(paths[k], {random = true})
  if not model then
    refused = refused + 1
    print(case:match "[^/]*$", (problem:match "[^\n]*$"))
  else
    local inputs, ok = {}, true
    for j = 1, #model.inputs do
      local x = flare.onnx.load_tensor(("%s/test_data_set_0/input_%d.pb"):format(case, j - 1))
      ok = ok and x
      inputs[j] = x
    end
    local wanted = flare.onnx.load_tensor(case .. "/test_data_set_0/output_0.pb")
    if ok and wanted then
      ran = ran + 1
      local y = model:run(inputs)[1]
      local same = y:to("f64"):allclose(wanted:to("f64"),
        {rtol = 1e-3, atol = 1e-5, equal_nan = true})
      right = right + (same and 1 or 0)
      if not same then print("differs", case:match "[^/]*$") end
    end
  end
end
print(ran, right, refused)
assert(ran > 50 and right >= ran - 3)

local path
for _, p in ipairs(paths) do if p:find "/test_gemm_transposeB/" then path = p end end
local model = assert(flare.onnx.load(path))
local list = {}
for j, input in ipairs(model.inputs) do
  local shape = {}
  for d, n in ipairs(input.shape) do shape[d] = n end
  list[j] = flare.rand(shape, {requires_grad = true})
end
model:run(list)[1]:sum():backward()
print(model.inputs[1].name, list[1].grad.shape)
assert(list[1].grad)
os.execute("rm -r " .. folder)
