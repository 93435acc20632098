-- Operators against NumPy and SciPy: values in f64 that spec/support/peers_rows.py has made.
local core = require "flare.core"
local peers = require "spec.support.peers_rows"
local rows = require "spec.support.rows"

local function tensor(v, device)
  local dtype, shape, list = v[1], v[2], v[3]
  if #list == 0 then return core.zeros(shape, {dtype = dtype, device = device}) end
  if dtype == "bool" then
    for k, b in ipairs(list) do list[k] = b == true or b == 1 end
  end
  return core.tensor(list, {dtype = dtype}):reshape(shape):to(device)
end

local function arguments(list, device)
  local args = {}
  for name, v in pairs(list) do
    args[name] = type(v) == "table" and type(v[1]) == "string" and tensor(v, device) or v
  end
  if device ~= "cpu" and next(args) and not args.x and not args.a and not args.y
      and not args.s then
    args.device = device
  end
  return args
end

local function same(got, want, how)
  local shape = {table.unpack(got.shape, 1, got:dim())}
  assert.same(want[2], shape, how)
  local list = got:to("f64"):reshape(-1):totable()
  for k, w in ipairs(want[3]) do
    if w == true then w = 1 end
    local v = list[k]
    local near = v == w or v ~= v and w ~= w
      or math.abs(v - w) <= 1e-12 + 1e-11 * math.abs(w)
    assert(near, ("%s: element %d is %.17g, there %.17g"):format(how, k, v, w))
  end
end

describe("as NumPy and SciPy do it", function()
  local seen, names = {}, {}
  for _, case in ipairs(peers) do
    if not seen[case[1]] then names[#names + 1] = case[1] end
    seen[case[1]] = seen[case[1]] or {}
    table.insert(seen[case[1]], case)
  end

  for _, name in ipairs(names) do
    it(name, function()
      for _, device in ipairs(rows.devices) do
        for number, case in ipairs(seen[name]) do
          local out = rows.call(rows.rows[name], arguments(case[2], device))
          for k, want in ipairs(case[3]) do
            same(out[k], want, ("%s, case %d, result %d, %s"):format(name, number, k, device))
          end
        end
      end
    end)
  end

  it("for most of the rows that they have, too", function() assert.is_true(#names >= 150) end)
end)
