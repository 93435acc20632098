--- Calls whose kernels choose tiles by the chip: attention, norms, sorting, products, convolutions
-- and LSTMs of many sizes, on the GPU. Prints each call that fails.
local flare = require "flare"
local nn = flare.nn
local function call(name, f)
  local ok, e = pcall(f)
  if not ok then print(name, e) end
end
for _, dtype in ipairs {"f32", "f64", "f16", "bf16"} do
  for _, d in ipairs {8, 32, 64, 65, 96, 97, 100, 128, 129, 192, 256, 300} do
    for _, n in ipairs {1, 4, 63, 128, 300} do
      call(("attention %s d %d n %d"):format(dtype, d, n), function()
        local q = flare.ones({2, 4, n, d}, {dtype = dtype, device = "cuda"}):requires_grad_(true)
        local y = flare.attention(q, q, q, nil, {causal = n > 63})
        y:sum():backward()
      end)
    end
  end
  for _, n in ipairs {1, 100, 1000, 3000, 5000, 10000, 20000, 40000} do
    call(("rows %s %d"):format(dtype, n), function()
      local x = flare.ones({6, n}, {dtype = dtype, device = "cuda"}):requires_grad_(true)
      local w = flare.ones({n}, {dtype = dtype, device = "cuda"}):requires_grad_(true)
      flare.layer_norm(x, w, w):sum():backward()
      flare.rms_norm(x, w):sum():backward()
      x:softmax(2):sum():backward()
      x:detach():sort(2)
      x:detach():topk(math.min(n, 50), 2)
    end)
  end
  for _, n in ipairs {1, 17, 64, 300, 1024, 4096} do
    call(("matmul %s %d"):format(dtype, n), function()
      local a = flare.ones({n, n}, {dtype = dtype, device = "cuda"})
      local _ = {a:matmul(a), a:t():matmul(a), a:matmul(a:t()), a:matmul(a[1])}
    end)
  end
  for _, c in ipairs {1, 3, 8, 64, 256, 520} do
    call(("conv %s %d"):format(dtype, c), function()
      local x = flare.ones({2, c, 33, 33}, {dtype = dtype, device = "cuda"}):requires_grad_(true)
      local w = flare.ones({2 * c, c, 3, 3}, {dtype = dtype, device = "cuda"})
      w:requires_grad_(true)
      flare.conv(x, w):sum():backward()
      local each = flare.ones({c, 1, 5, 5}, {dtype = dtype, device = "cuda"}):requires_grad_(true)
      flare.conv(x, each, nil, {groups = c}):sum():backward()
    end)
  end
  if dtype ~= "f16" then
    for _, h in ipairs {16, 64, 256, 512, 1024} do
      call(("lstm %s %d"):format(dtype, h), function()
        local m = nn.LSTM(h, h):to("cuda"):to(dtype)
        local x = flare.ones({12, 4, h}, {dtype = dtype, device = "cuda"})
        m(x):sum():backward()
      end)
    end
  end
end
print "done"
