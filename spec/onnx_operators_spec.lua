-- Operators of ONNX that no case of the project has, or not in that version; what they give was
-- worked out by hand from their definitions.
local flare = require "flare"
local cases = require "spec.support.onnx_cases"
local w = require "spec.support.onnx_write"
local core = flare.core

describe("an operator", function()
  local path = os.tmpname()
  teardown(function() os.remove(path) end)

  local function f(values) return {"f32", values} end
  local function i(values) return {"i64", values} end

  -- {operator, version, attributes, inputs, output, further outputs, their dtypes}; inputs are
  -- {dtype, values}
  local rows = {
    {"Add", 6, {broadcast = {"i", 1}, axis = {"i", 0}}, {f{{1, 2}, {3, 4}}, f{10, 20}},
     {{11, 12}, {23, 24}}},
    {"Cast", 1, {to = {"s", "INT32"}}, {f{-1.5, 2}}, {-1, 2}},
    {"BatchNormalization", 7, {spatial = {"i", 0}, epsilon = {"f", 0}}, {
      f{{{1, 2}}, {{3, 4}}}, f{{1, 2}}, f{{0, 1}}, f{{1, 2}}, f{{1, 4}}}, {{{0, 1}}, {{2, 3}}}},
    {"BatchNormalization", 9, {epsilon = {"f", 0}, momentum = {"f", 0.5}}, {
      f{{1}, {3}}, f{2}, f{1}, f{4}, f{9}}, {{-1}, {3}}, {{3}, {5}, {2}, {1}}},
    {"LayerNormalization", 17, {epsilon = {"f", 0}}, {{"f64", {1, 3}}, {"f64", {1, 1}}}, {-1, 1},
     {{2}, {1}}, {"f32", "f32"}},
    -- aligned at the upper left: the first query sees the first key alone
    {"Attention", 23, {is_causal = {"i", 1}}, {f{{{{0}, {0}}}}, f{{{{0}, {0}, {0}}}},
      f{{{{1}, {2}, {3}}}}}, {{{{1}, {1.5}}}}},
    {"Softmax", 11, {axis = {"i", 1}}, {f{{{0, 0}, {0, 0}}}}, {{{0.25, 0.25}, {0.25, 0.25}}}},
    {"Softmax", 13, {}, {f{{{0, 0}, {0, 0}}}}, {{{0.5, 0.5}, {0.5, 0.5}}}},
    {"Hardmax", 11, {}, {f{{3, 3}, {1, 2}}}, {{1, 0}, {0, 1}}},
    {"Clip", 6, {min = {"f", -1}, max = {"f", 1}}, {f{-3, 0, 3}}, {-1, 0, 1}},
    {"Slice", 1, {starts = {"ints", {1}}, ends = {"ints", {-1}}, axes = {"ints", {0}}},
     {f{1, 2, 3, 4}}, {2, 3}},
    {"Slice", 13, {}, {f{1, 2, 3, 4}, i{-1}, i{math.mininteger}, i{0}, i{-2}}, {4, 2}},
    {"Slice", 13, {}, {f{1, 2, 3, 4}, i{0}, i{math.maxinteger}, i{0}, i{math.maxinteger}}, {1}},
    {"Slice", 13, {}, {f{1, 2, 3}, i{-9}, i{math.mininteger}, i{0}, i{-1}}, {1}},
    {"Squeeze", 11, {axes = {"ints", {-1}}}, {f{{1}, {2}}}, {1, 2}},
    {"Unsqueeze", 11, {axes = {"ints", {0, 2}}}, {f{1, 2}}, {{{1}, {2}}}},
    {"ReduceSum", 11, {axes = {"ints", {0}}, keepdims = {"i", 0}}, {f{{1, 2}, {3, 4}}}, {4, 6}},
    {"ReduceMax", 18, {noop_with_empty_axes = {"i", 1}}, {f{1, 2}}, {1, 2}},
    {"ReduceSumSquare", 18, {noop_with_empty_axes = {"i", 1}}, {f{2, 3}}, {4, 9}},
    {"TopK", 9, {k = {"i", 2}}, {f{1, 3, 2}}, {3, 2}},
    {"Pad", 2, {pads = {"ints", {1, -1}}, value = {"f", 7}}, {f{1, 2, 3}}, {7, 1, 2}},
    {"Pad", 19, {mode = {"s", "reflect"}}, {f{1, 2, 3}, i{4, 1}}, {1, 2, 3, 2, 1, 2, 3, 2}},
    {"Tile", 1, {}, {f{1, 2}, f(2), f(0)}, {1, 2, 1, 2}},
    {"Upsample", 7, {scales = {"floats", {2}}}, {f{1, 2}}, {1, 1, 2, 2}},
    {"Resize", 10, {mode = {"s", "linear"}}, {f{1, 2}, f{2}}, {1, 1.5, 2, 2}},
    {"Resize", 10, {}, {f{1, 2, 3, 4}, f{0.6}}, {1, 3}},
    {"Resize", 13, {mode = {"s", "linear"}}, {f{1, 2}, f{}, f{0.25}}, {}},
    {"Reshape", 13, {}, {f{{1, 2}, {3, 4}}, i{0, -1, 1}}, {{{1}, {2}}, {{3}, {4}}}},
    {"Gather", 13, {}, {f{1, 2, 3}, i{-1, 0}}, {3, 1}},
    {"GatherElements", 13, {}, {f{1, 2, 3}, i{-1, -3}}, {3, 1}},
    {"ScatterND", 18, {reduction = {"s", "mul"}}, {f{1, 2}, i{{-1}, {1}}, f{3, 5}}, {1, 30}},
    {"Div", 14, {}, {i{7, -7, 7}, i{2, 2, -2}}, {3, -3, -3}},
    {"Mod", 13, {}, {i{7, -7, 7}, i{3, 3, -3}}, {1, 2, -2}},
    {"Mod", 13, {fmod = {"i", 1}}, {i{7, -7, 7}, i{3, 3, -3}}, {1, -1, 1}},
    {"Pow", 15, {}, {i{2, 3}, f{0.5, 2}}, {1, 9}},
    {"Dropout", 6, {is_test = {"i", 1}}, {f{1, 2}}, {1, 2}},
    {"PRelu", 6, {}, {f{{{-1}, {-1}}}, f{2, 3}}, {{{-2}, {-3}}}},
    {"Split", 11, {}, {f{1, 2}}, {1, 2}},
    {"MaxPool", 12, {kernel_shape = {"ints", {2}}, strides = {"ints", {2}}, ceil_mode = {"i", 1}},
     {f{{{1, 2, 3}}}}, {{{2, 3}}}},
    {"AveragePool", 11, {kernel_shape = {"ints", {2}}, pads = {"ints", {1, 0}},
     count_include_pad = {"i", 1}}, {f{{{2, 4}}}}, {{{1, 3}}}},
    {"Unique", 11, {}, {f{0 / 0, 1, 0 / 0, -1}}, {-1, 1, 0 / 0}},
    {"Einsum", 12, {equation = {"s", "ij,jk"}}, {f{{1, 2}}, f{{3}, {4}}}, {{11}}},
    {"Range", 11, {}, {f(1), f(2), f(0.5)}, {1, 1.5}},
    {"GlobalLpPool", 2, {p = {"i", 2}}, {f{{{3, 4}}}}, {{{5}}}},
    {"MaxRoiPool", 1, {pooled_shape = {"ints", {1, 2}}}, {
      f{{{{1, 2, 3}, {4, 5, 6}}}}, f{{0, 0, 0, 2, 1}, {0, 1, 0, 1, 0}}}, {{{{5, 6}}}, {{{2, 2}}}}},
    {"Attention", 23, {softcap = {"f", 2}}, {f{{{{1, 0}, {0, 1}}}}, f{{{{1, 0}, {0, 1}}}},
     f{{{{3, 4}, {5, 6}}}}, {"bool", {{true, false}, {false, false}}}}, {{{{3, 4}, {0, 0}}}}},
    {"Attention", 25, {left_window_size = {"i", 0}, right_window_size = {"i", 1}}, {
      f{{{{0}, {0}, {0}}}}, f{{{{0}, {0}, {0}}}}, f{{{{2}, {4}, {8}}}}}, {{{{3}, {6}, {8}}}}},
    {"SpaceToDepth", 28, {blocksize = {"i", 2}, mode = {"s", "CRD"}},
     {f{{{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}}},
     {{{{1}}, {{2}}, {{3}}, {{4}}, {{5}}, {{6}}, {{7}}, {{8}}}}},
    {"SwiGLU", 28, {}, {f{0, 1e4}, f{5, 3}}, {0, 3e4}},
    {"BitShift", 28, {direction = {"s", "RIGHT"}}, {i{-8, 8, -8}, i{-1, -1, 64}}, {-1, 0, -1}},
    {"BitShift", 28, {direction = {"s", "LEFT"}}, {i{-8, 8, -8}, i{-1, -1, 64}}, {0, 0, 0}},
    {"RandomNormal", 1, {shape = {"ints", {2}}, scale = {"f", 0}, mean = {"f", 3}}, {}, {3, 3}},
    {"RandomUniform", 1, {shape = {"ints", {2}}, low = {"f", 4}, high = {"f", 4}}, {}, {4, 4}},
    {"RandomNormalLike", 1, {scale = {"f", 0}}, {f{1, 2}}, {0, 0}},
    {"RandomUniformLike", 1, {low = {"f", 2}, high = {"f", 2}}, {f{1, 2}}, {2, 2}},
    {"Multinomial", 7, {sample_size = {"i", 3}}, {f{{-1e9, 0}, {0, -1e9}}}, {{1, 1, 1}, {0, 0, 0}}},
    {"Bernoulli", 15, {}, {f{0, 1}}, {0, 1}},
    {"STFT", 17, {onesided = {"i", 1}}, {f{{1, 2, 3, 4}}, i(2), f{1, 1}},
     {{{{3, 0}, {-1, 0}}, {{7, 0}, {-1, 0}}}}},
    {"QuantizeLinear", 13, {}, {f{-1 / 0, 0, 1 / 0, 0 / 0}, f(1 / 0), {"i8", 3}},
     {-128, 3, -128, -128}},
    {"InstanceNormalization", 6, {epsilon = {"f", 0}}, {f{{{1, 3}, {2, 6}}}, f{1, 2}, f{0, 5}},
     {{{-1, 1}, {3, 7}}}},
    {"GroupNormalization", 21, {epsilon = {"f", 0}, num_groups = {"i", 1}},
     {f{{{1, 1}, {3, 3}}}, f{1, 2}, f{0, 5}}, {{{-1, -1}, {7, 7}}}},
    {"LayerNormalization", 17, {epsilon = {"f", 0}}, {f{{1, 3}, {2, 6}}, f{1, 2}, f{0, 5}},
     {{-1, 7}, {-1, 7}}},
    {"LayerNormalization", 17, {epsilon = {"f", 0}, axis = {"i", 0}},
     {f{{1, 3}, {1, 3}}, f{1, 2}, f{0, 5}}, {{-1, 7}, {-1, 7}}},
    {"RMSNormalization", 23, {epsilon = {"f", 0}}, {f{{3, 3}, {-2, 2}}, f{1, 2}},
     {{1, 2}, {-1, 2}}},
    {"Shape", 15, {start = {"i", -1}}, {f{{1, 2, 3}}}, {3}},
    {"ArgMax", 12, {select_last_index = {"i", 1}, keepdims = {"i", 0}}, {f{2, 2, 1}}, 1},
  }

  local function case(row)
    local op, version, attributes, inputs = table.unpack(row, 1, 4)
    local graph, values = {node = {}, input = {}, output = {{name = "y"}}}, {}
    local names, outputs = {}, {"y"}
    for k, input in ipairs(inputs) do
      local x = core.tensor(input[2], {dtype = input[1]})
      names[k], values[k] = "x" .. k, x
      graph.input[k] = w.value(names[k], input[1], table.move(x.shape, 1, x:dim(), 1, {}))
    end
    for k in ipairs(row[6] or {}) do
      outputs[k + 1] = "y" .. k
      graph.output[k + 1] = {name = outputs[k + 1]}
    end
    graph.node[1] = w.node(op, names, outputs, attributes)
    assert(core.file.write_atomic(path, w.model(graph, version)))
    return assert(flare.onnx.load(path, {random = true})):run(values)
  end

  for number, row in ipairs(rows) do
    it(("is what version %d says: %s (%d)"):format(row[2], row[1], number), function()
      for k, y in ipairs(case(row)) do
        local expected = k == 1 and row[5] or row[6][k - 1]
        local dtype = k > 1 and row[7] and row[7][k - 1] or y.dtype
        local fine, why = cases.close(y, core.tensor(expected, {dtype = dtype}))
        assert(fine, why)
      end
    end)
  end

  it("of recurrence gives by a row what it gives step by step", function()
    local g = flare.generator(1)
    local function values(...) return {"f32", flare.randn({...}, {generator = g}):totable()} end
    for _, kind in ipairs{{"LSTM", 4}, {"GRU", 3}} do
      local inputs = {values(5, 2, 3), values(2, kind[2] * 4, 3), values(2, kind[2] * 4, 4),
                      values(2, kind[2] * 8)}
      local function give(attributes)
        attributes.direction, attributes.hidden_size = {"s", "bidirectional"}, {"i", 4}
        attributes.linear_before_reset = {"i", 1}
        return case{kind[1], 14, attributes, inputs, nil, {0}}
      end
      local whole, steps = give{}, give{clip = {"f", 1e9}} -- no row clips
      for k = 1, 2 do assert(cases.close(whole[k], steps[k])) end
      assert.same({5, 2, 2, 4}, table.move(whole[1].shape, 1, 4, 1, {}))
    end
  end)
end)
