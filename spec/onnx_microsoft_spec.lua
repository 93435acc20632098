-- Operators of com.microsoft: what they give is worked out by hand, or from the rows that each of
-- them puts into one, written out in full.
local flare = require "flare"
local cases = require "spec.support.onnx_cases"
local operators = require "flare.onnx.operators"
local w = require "spec.support.onnx_write"
local core = flare.core

local function near(want, got)
  local fine, why = cases.close(got, core.is_tensor(want) and want
                                     or core.tensor(want, {dtype = got.dtype}))
  assert(fine, why)
end

describe("an operator of com.microsoft", function()
  local path = os.tmpname()
  teardown(function() os.remove(path) end)

  -- inputs: tensors, or false for those left out; outputs: booleans, or nil for one
  local function run(op, inputs, attributes, outputs, domain)
    local graph, names, values, given = {input = {}, output = {}}, {}, {}, {}
    for k, x in ipairs(inputs) do
      names[k] = x and "x" .. k or ""
      if x then
        values[#values + 1] = x
        graph.input[#values] = w.value(names[k], x.dtype, table.move(x.shape, 1, x:dim(), 1, {}))
      end
    end
    for k, there in ipairs(outputs or {true}) do
      given[k] = there and "y" .. k or ""
      if there then graph.output[#graph.output + 1] = {name = given[k]} end
    end
    graph.node = {w.node(op, names, given, attributes, domain or "com.microsoft")}
    assert(core.file.write_atomic(path, w.model(graph, 17, {
      opset_import = {{version = 17}, {domain = "com.microsoft", version = 1}}})))
    return table.unpack(assert(flare.onnx.load(path)):run(values))
  end

  local generator = flare.generator(3)
  local function some(...) return flare.randn({...}, {generator = generator}) end
  local function ints(values, dtype) return flare.tensor(values, {dtype = dtype or "i32"}) end
  local x, skip, scale, bias, more = some(2, 3, 8), some(2, 3, 8), some(8), some(8), some(8)

  it("is found by its domain", function()
    for name in ("FusedMatMul QLinearAdd Gelu"):gmatch "%S+" do
      assert.is_function(operators.find("com.microsoft", name))
      assert.is_nil(operators.find("com.acme", name))
    end
    assert.is_nil(operators.find("", "FusedMatMul"))
    for _, name in ipairs(operators.names "com.microsoft") do
      assert.is_function(operators.find("com.microsoft", name), name)
    end
  end)

  it("activates", function()
    near(x:gelu(), run("Gelu", {x}))
    near((x + bias):gelu(), run("BiasGelu", {x, bias}))
    near(x:gelu "tanh", run("FastGelu", {x}))
    near((x + bias):gelu "tanh", run("FastGelu", {x, bias}))
    near(x * (x * 1.702):sigmoid(), run("QuickGelu", {x}))
  end)

  it("multiplies", function()
    local a, b = some(2, 4, 3), some(2, 5, 4)
    near(a:transpose(2, 3):matmul(b:transpose(2, 3)) * 0.5,
         run("FusedMatMul", {a, b}, {transA = {"i", 1}, transB = {"i", 1}, alpha = {"f", 0.5}}))
    a, b = some(3, 2, 4), some(2, 4, 5)
    near(a:permute(2, 1, 3):matmul(b), run("FusedMatMul", {a, b}, {transBatchA = {"i", 1}}))
    near({{0, 9}}, run("FusedGemm", {flare.tensor{{1, 2}}, flare.tensor{{-1, 1}, {-1, 1}},
         flare.tensor{-1, 1}}, {activation = {"s", "Relu"}, beta = {"f", 6}}))
    local image, kernel = some(1, 2, 5, 5), some(3, 2, 3, 3)
    local y = image:conv(kernel, {bias = bias:narrow(1, 1, 3)})
    near((y + 1):clamp(-0.5, 0.5), run("FusedConv", {image, kernel, bias:narrow(1, 1, 3),
         flare.ones(1, 3, 3, 3)}, {activation = {"s", "Clip"},
         activation_params = {"floats", {-0.5, 0.5}}}))
    assert.has_error(function()
      run("FusedConv", {image, kernel}, {activation = {"s", "Frob"}})
    end, path .. ": there is no activation 'Frob' (in node 1, FusedConv)")
  end)

  it("normalises sums", function()
    near(x:rms_norm{weight = scale, eps = 1e-5}, run("SimplifiedLayerNormalization", {x, scale},
         {axis = {"i", -1}, epsilon = {"f", 1e-5}}, nil, ""))
    local sum = x + skip + more
    local y, seen = run("SkipLayerNormalization", {x, skip, scale, bias, more}, {},
                        {true, false, false, true})
    near(sum:layer_norm{weight = scale, bias = bias, eps = 1e-12}, y)
    near(sum, seen)
    near((x + skip):layer_norm{weight = scale, eps = 1e-12},
         run("SkipLayerNormalization", {x, skip, scale}))
    near(sum:rms_norm{weight = scale, eps = 1e-12},
         run("SkipSimplifiedLayerNormalization", {x, skip, scale, more}))
    local words, places = some(9, 8), some(5, 8)
    local z, counts = run("EmbedLayerNormalization", {ints{{0, 8, 2}}, ints{{0, 0, 1}}, words,
      places, some(2, 8) * 0, scale, bias, ints{{1, 1, 0}}}, {}, {true, true})
    near((words[ints{1, 9, 3}] + places[{{1, 3}}]):unsqueeze(1)
         :layer_norm{weight = scale, bias = bias, eps = 1e-12}, z)
    near({2}, counts)
  end)

  local function heads(t) return t:reshape(2, t.shape[2], 2, -1):transpose(2, 3) end
  local function back(t) return t:transpose(2, 3):reshape(2, t.shape[3], -1) end
  local two = {num_heads = {"i", 2}}

  it("attends", function()
    local weight, b = some(8, 24), some(24)
    local q, k, v = table.unpack((x:matmul(weight) + b):chunk(3, 3))
    q, k, v = heads(q), heads(k), heads(v)
    near(back(flare.attention(q, k, v)), run("Attention", {x, weight, b}, two))
    near(back(flare.attention(q, k, v, {causal = true})),
         run("Attention", {x, weight, b}, {num_heads = {"i", 2}, unidirectional = {"i", 1}}))
    local seen = flare.tensor{{{{1, 1, 0}}}, {{{0, 1, 1}}}}
    local masked = back(flare.attention(q, k, v, {mask = (1 - seen) * -10000}))
    near(masked, run("Attention", {x, weight, b, ints{{1, 1, 0}, {0, 1, 1}}}, two))
    near(masked, run("Attention", {x, weight, b, ints{2, 3, 0, 1}}, two)) -- ends, then starts
    local past = some(2, 2, 2, 4, 4)
    local k2, v2 = flare.cat({past[1], k}, 3), flare.cat({past[2], v}, 3)
    local y, present = run("Attention", {x, weight, b, false, past}, two, {true, true})
    near(back(flare.attention(q, k2, v2)), y)
    near(flare.stack({k2, v2}, 1), present)
  end)

  it("attends to a separate memory", function()
    local k, v, b = some(2, 5, 8), some(2, 5, 8), some(24)
    near(back(flare.attention(heads(x), heads(k), heads(v))),
         run("MultiHeadAttention", {x, k, v}, two))
    near(back(flare.attention(heads(x), heads(k), heads(v))),
         run("MultiHeadAttention", {x, heads(k), heads(v)}, two))
    near(back(flare.attention(heads(x), heads(k), heads(v))), run("MultiHeadAttention",
         {x, flare.stack({k:reshape(2, 5, 2, 4), v:reshape(2, 5, 2, 4)}, 4)}, two))
    local function part(n) return b:narrow(1, n * 8 + 1, 8) end
    near(back(flare.attention(heads(x + part(0)), heads(k + part(1)), heads(v + part(2)))),
         run("MultiHeadAttention", {x, k, v, b}, two))
    local past = some(2, 2, 4, 4)
    local y, keys = run("MultiHeadAttention", {x, k, v, false, false, false, past, past}, two,
                        {true, true, true})
    near(flare.cat({past, heads(k)}, 3), keys)
    near(back(flare.attention(heads(x), keys, flare.cat({past, heads(v)}, 3))), y)
  end)

  it("turns by positions", function()
    local cos, sin = flare.tensor{{1}, {0}, {-1}}, flare.tensor{{0}, {1}, {0}}
    local t = flare.tensor{{{1, 2}, {3, 4}}}
    near({{{1, 2}, {-4, 3}}}, run("RotaryEmbedding", {t, ints({0}, "i64"), cos, sin}))
    near({{{-2, 1}, {-3, -4}}}, run("RotaryEmbedding", {t, ints({{1, 2}}, "i64"), cos, sin}))
  end)

  local function u8(values) return flare.tensor(values, {dtype = "u8"}) end
  local function s(value) return flare.tensor(value) end

  it("adds and multiplies quantized tensors", function()
    near({17, 255, 0}, run("QLinearAdd", {u8{11, 250, 0}, s(1), u8(10), u8{20, 250, 0}, s(0.5),
         u8(10), s(1), u8(11)}))
    near({4, 6}, run("QLinearMul", {u8{3, 4}, s(1), u8(1), u8{2, 2}, s(0.5), u8(0), s(0.5), u8(0)}))
    near({1, 4}, run("QLinearWhere", {flare.tensor({true, false}, {dtype = "bool"}), u8{2, 2}, s(1),
         u8(0), u8{2, 4}, s(2), u8(0), s(2), u8(0)}))
    near({1, 2, 6}, run("QLinearConcat", {s(1), u8(0), u8{1, 2}, s(1), u8(0), u8{3}, s(2), u8(0)},
         {axis = {"i", 0}}))
  end)

  it("takes functions and means of it", function()
    near({128, 255}, run("QLinearSigmoid", {u8{5, 200}, s(1), u8(5), s(1 / 256), u8(0)}))
    near({5, 12}, run("QLinearLeakyRelu", {u8{0, 12}, s(1), u8(10), s(1), u8(10)},
         {alpha = {"f", 0.5}}))
    near({{128, 128}}, run("QLinearSoftmax", {u8{{7, 7}}, s(1), u8(0), s(1 / 256), u8(0)},
         {axis = {"i", -1}, opset = {"i", 13}}))
    near({{{{4}}}}, run("QLinearGlobalAveragePool", {u8{{{{1, 7}}}}, s(1), u8(0), s(1), u8(0)}))
    near({{{4, 8}}}, run("QLinearAveragePool", {u8{{{1, 7, 9}}}, s(1), u8(0), s(1), u8(0)},
         {kernel_shape = {"ints", {2}}}))
  end)

  it("multiplies matrices of it", function()
    local a, b = u8{{3, 5}}, u8{{2, 1}, {4, 1}}
    near({{2.5, 0}}, run("MatMulIntegerToFloat", {a, b, s(0.5), flare.tensor{1, 3}, u8(4), u8(1),
         flare.tensor{1.5, 0}}))
    near({{36, 18}}, run("QGemm", {a, s(1), u8(0), b, s(1), u8(0), ints{10, 10}, s(1), u8(0)}))
    near({{18, 9}}, run("QGemm", {a, s(1), u8(0), b:t():contiguous(), s(0.5), u8(0), ints{10, 10}},
         {transB = {"i", 1}}))
    near({{255 * 2 + 1}}, run("DynamicQuantizeMatMul", {flare.tensor{{0, 255}}, u8{{7}, {3}}, s(1),
         u8(1), flare.tensor{1}}))
  end)

  it("multiplies by weights of 4 and 8 bits", function()
    local size = {K = {"i", 2}, N = {"i", 2}, block_size = {"i", 16}, bits = {"i", 4}}
    local packed = flare.zeros({2, 1, 8}, {dtype = "u8"})
    packed[{1, 1, 1}], packed[{2, 1, 1}] = 0x9a, 0x0f -- 10 and 9; 15 and 0
    local ones, scales = flare.tensor{{1, 10}}, flare.tensor{2, 1}
    near({{2 * (2 + 10), 7 - 80}}, run("MatMulNBits", {ones, packed, scales}, size))
    near({{2 * (9 + 80), 15 + 1}}, run("MatMulNBits", {ones, packed, scales, u8{1, 0}, false,
         flare.tensor{0, 1}}, size))
    size.bits = {"i", 8}
    local bytes = flare.full({2, 1, 16}, 129, {dtype = "u8"})
    near({{22, 11}}, run("MatMulNBits", {ones, bytes, scales}, size))
  end)
end)
