-- layer_norm and rms_norm of x and results of different types, and of gradients that come in
-- another type than x's, beside the same in f64.
local flare = require "flare"
local rows = require "spec.support.rows"

-- A last place of each type, of the largest of what is compared. f32: 20000 squares are added up,
-- one after the other where a build has no vectors (5e-6; with vectors 4e-7 at most).
local place = {f64 = 1e-11, f32 = 1e-5, f16 = 2 ^ -10, bf16 = 2 ^ -7}

local function near(got, want, dtype, exact)
  assert.equal(dtype, got.dtype)
  got, want = got:to "cpu":to "f64", want:to "f64"
  local most = math.max(want:abs():max():item(), 1)
  local off = (got - want):abs():max():item()
  assert(off <= most * math.max(place[dtype], place[exact]), ("off by %g of %g"):format(off, most))
end

local function given(g, dtype, ...) return (flare.randn({...}, {generator = g})):to(dtype) end

-- Lines of lanes, of a warp with vectors or without, of blocks, and longer than those.
local shapes = {{3, 5}, {9, 64}, {7, 250}, {37, 768}, {5, 769}, {6, 1000}, {4, 1600}, {2, 20000}}
local pairs_of = {{"f32", "bf16"}, {"f32", "f16"}, {"bf16", "f32"}, {"f16", "bf16"},
  {"f64", "bf16"}, {"f32", "f64"}, {"bf16", "bf16"}}

for _, device in ipairs(rows.devices) do
  describe("norms of lines on " .. device, function()
    for _, p in ipairs(pairs_of) do
      local x_type, y_type = p[1], p[2]
      local exact = x_type == "f64" and "f64" or "f32"
      it(("give %s of %s, and its gradients"):format(y_type, x_type), function()
        local g = flare.generator(7)
        for k, shape in ipairs(shapes) do
          local n = shape[2]
          local w_type = ({"f32", x_type, "bf16"})[k % 3 + 1]
          local x = given(g, x_type, table.unpack(shape)) + 1
          local w, b = given(g, w_type, n), given(g, w_type, n)
          local dy = given(g, y_type, table.unpack(shape))
          if k % 2 == 0 then -- not adjacent
            x = x:t():contiguous():t()
            dy = flare.stack({dy, dy}, 3)[{{}, {}, 2}]
          end
          for _, name in ipairs {"layer_norm", "rms_norm"} do
            local function run(where, cast)
              local leaves = {}
              for i, t in ipairs {x, w, name == "layer_norm" and b or nil} do
                leaves[i] = (cast and t:to(cast) or t):to(where):detach():requires_grad_(true)
              end
              local args = {dtype = cast or y_type, bias = leaves[3]}
              local y = flare[name](leaves[1], leaves[2], args)
              local back = (cast and dy:to(cast) or dy):to(where)
              return y, {flare.grad(y, leaves, {gradient = back})}
            end
            local y, got = run(device)
            local y_want, want = run("cpu", "f64")
            near(y, y_want, y_type, exact)
            near(got[1], want[1], x_type, exact)
            for i = 2, #want do near(got[i], want[i], w_type, exact) end
          end
        end
      end)
    end
  end)
end
