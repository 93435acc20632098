--- What specs of functions beside the operators expect: values near a list of numbers, and
-- refusals that say why.
local assert = require "luassert"
local flare = require "flare"

local M = {}

function M.f64(list) return flare.tensor(list, {dtype = "f64"}) end

function M.i64(list) return flare.tensor(list, {dtype = "i64"}) end

--- The shape and, to 1e-12, the values of a tensor are those of a list or of another tensor.
function M.close(got, want)
  want = flare.is_tensor(want) and want or M.f64(want)
  assert.equal(tostring(want.shape), tostring(got.shape))
  assert.is_true(flare.allclose(got:to "f64", want:to "f64",
    {atol = 1e-12, equal_nan = true}):item(), tostring(got) .. "\n" .. tostring(want))
end

-- With FLARE_COMPILE=all values are refused when the launches that wait run.
local waits = (os.getenv "FLARE_COMPILE" or ""):find("all", 1, true)

--- What f(...) says when it fails, as it must.
function M.message(f, ...)
  local ok, why = pcall(f, ...)
  if ok and waits then
    local result = why
    ok, why = pcall(flare.synchronize)
    if ok and flare.is_tensor(result) then ok, why = pcall(result.totable, result) end
  end
  assert.is_false(ok, "it did not fail")
  return tostring(why)
end

--- f(...) raises an error that the pattern matches.
-- @return what it says
function M.fails(pattern, f, ...)
  local why = M.message(f, ...)
  assert.match(pattern, why)
  return why
end

--- f(...) raises an error in which there is what `says` says.
function M.refused(says, f, ...)
  local why = M.message(f, ...)
  assert.is_truthy(why:find(says, 1, true), why)
end

return M
