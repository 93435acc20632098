--- What every row must do with its samples, but for gradients: values, dtypes, strides, shapes
-- without values, writing in place.
local A = require "spec.support.array"
local dtypes = require "spec.support.dtypes"
local flare = require "flare"
local rows = require "spec.support.rows"

local M = {}

M.devices = rows.devices
M.layouts = {"turned", "sliced", "backwards"}

function M.values(row, samples, reference)
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(samples) do
      if s._refused then rows.refuse(row, s, device)
      else rows.run(row, s, reference, device, nil, device) end
    end
  end
end

function M.dtypes(row, samples, reference)
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(rows.accepted(samples)) do
      for _, group in ipairs {A.floats, A.integers} do
        for _, d in ipairs(group) do
          local other = d ~= "f64" and rows.retyped(row, s, d)
          if other then
            rows.run(row, other, reference, device, nil, device .. " " .. d)
          end
        end
      end
    end
  end
end

function M.strides(row, samples, reference)
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(rows.accepted(samples)) do
      for _, layout in ipairs(M.layouts) do
        for _, d in ipairs {"f64", "f32", "i32"} do
          local other = not s._contiguous and rows.retyped(row, s, d)
          if other and (d ~= "i32" or layout == "turned") then
            rows.run(row, other, reference, device, layout, device .. " " .. d .. " " .. layout)
          end
        end
      end
    end
  end
end

--- Shapes and dtypes without values are those with values.
function M.meta(row, samples)
  for _, s in ipairs(rows.accepted(samples)) do
    local real = rows.guarded(row, s, "cpu", rows.call, row,
      rows.with_options(row, s, rows.tensors(s), nil, true))
    local ok, blank = pcall(function()
      local _ <close> = flare.meta()
      return rows.call(row, rows.with_options(row, s, rows.tensors(s), nil, true))
    end)
    if not ok and not tostring(blank):find "depends on values" then
      rows.fail(row, s, "meta", "%s", tostring(blank))
    end
    for k = 1, ok and real.n or 0 do
      if flare.is_tensor(real[k]) and (tostring(real[k].shape) ~= tostring(blank[k].shape)
          or real[k].dtype ~= blank[k].dtype) then
        rows.fail(row, s, "meta", "shape %s and dtype %s, with values %s and %s", blank[k].shape,
          blank[k].dtype, real[k].shape, real[k].dtype)
      end
    end
  end
end

-- --- in place ---

local kind = dtypes.kind

local function fits(to, from)
  return kind[from] <= kind[to] or kind[from] < 3 and kind[to] > 0
end

local function identical(got, want)
  return got == want or got ~= got and want ~= want
end

--- x:op_(...) gives what x:op(...) gives, converted to x's dtype, or is refused where that
-- cannot be.
function M.inplace(row, samples)
  local first = row.positional[1]
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(rows.accepted(samples)) do
      for _, d in ipairs {"f64", "f32", "i32"} do
        local other = A.is(s[first]) and rows.retyped(row, s, d)
        for _, layout in ipairs {"contiguous", "sliced"} do
          if other then
            local how = ("%s %s %s in place"):format(device, d, layout)
            local want = rows.guarded(row, s, how, rows.call, row,
              rows.with_options(row, s, rows.tensors(other, device)))[1]
            local args = rows.with_options(row, s, rows.tensors(other, device, layout))
            local x = args[first]
            local ok, y = pcall(rows.call_over, row, args)
            local possible = tostring(want.shape) == tostring(x.shape) and fits(x.dtype, want.dtype)
            if ok ~= possible then
              rows.fail(row, s, how, ok and "was not refused" or "%s", tostring(y))
            end
            if ok then
              if y ~= x then rows.fail(row, s, how, "does not return its tensor") end
              rows.compare(row, s, how, x, rows.read(want:to(x.dtype)), x.dtype,
                layout == "contiguous" and identical or nil)
            end
          end
        end
      end
    end
  end
end

return M
