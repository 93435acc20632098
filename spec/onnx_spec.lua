-- Models and tensors of ONNX files: hand-made ones, and the cases of the ONNX project that
-- FLARE_ONNX_CASES names a folder of.
local flare = require "flare"
local cases = require "spec.support.onnx_cases"
local w = require "spec.support.onnx_write"
local core = flare.core

local devices = {}
for name in (os.getenv "FLARE_SPEC_DEVICES" or "cpu,sim:0"):gmatch "[^,]+" do
  devices[#devices + 1] = name
end

local folder

setup(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(core.file.mkdir(folder))
end)

teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

local function file(bytes, name)
  local path = folder .. "/" .. (name or "file")
  assert(core.file.write_atomic(path, bytes))
  return path
end

local function load(graph, version, more, o)
  return flare.onnx.load(file(w.model(graph, version or 17, more)), o)
end

local function refused(message, graph, version, more)
  local model, why = load(graph, version, more)
  assert.is_nil(model)
  assert.is_truthy(why:find(message, 1, true), why)
end

-- One node from inputs a, b, ... to y.
local function single(op, inputs, attributes)
  local names = {}
  for k, input in ipairs(inputs) do names[k] = input.name end
  return {node = {w.node(op, names, {"y"}, attributes)}, input = inputs, output = {{name = "y"}}}
end

describe("a tensor's file", function()
  local function read(...) return assert(flare.onnx.load_tensor(file(w.tensor_file(...)))) end

  it("has its data in the field of its type", function()
    assert.same({{1, 2.5}, {-3, 4}}, read("", "f32", {2, 2}, {1, 2.5, -3, 4}):totable())
    assert.same({1, -1 / 3}, read("", "f64", {2}, {1, -1 / 3}):totable())
    assert.same({-1, 1 << 62}, read("", "i64", {2}, {-1, 1 << 62}):totable())
    assert.same({-7, 7}, read("", "i32", {2}, {-7, 7}):totable())
    assert.same({200, 0}, read("", "u8", {2}, {200, 0}):totable())
    assert.same({true, false}, read("", "bool", {2}, {1, 0}):totable())
    assert.same({1.5, -2}, read("", "f16", {2}, {0x3e00, 0xc000}):totable())
    assert.equal(3, read("", "f32", {}, {3}):item())
    assert.equal("(0, 3)", tostring(read("", "f32", {0, 3}).shape))
  end)

  it("has them as bytes, too, or in another file", function()
    local proto = {dims = {2}, data_type = 1, raw_data = string.pack("<ff", 1, 2)}
    local schema = require "flare.onnx.schema"
    assert.same({1, 2},
      assert(flare.onnx.load_tensor(file(w.encode(schema.Tensor, proto)))):totable())
    file("...." .. string.pack("<ff", 3, 4), "data.bin")
    proto = {dims = {2}, data_type = 1, data_location = 1, external_data = {
      {key = "location", value = "data.bin"}, {key = "offset", value = "4"}}}
    assert.same({3, 4}, flare.onnx.load_tensor(file(w.encode(schema.Tensor, proto))):totable())
    proto.external_data[1].value = "../data.bin"
    local x, why = flare.onnx.load_tensor(file(w.encode(schema.Tensor, proto)))
    assert.is_nil(x)
    assert.is_truthy(why:find("not below the model's folder", 1, true), why)
  end)

  it("has data outside of the model's folder is refused, by links too", function()
    local schema = require "flare.onnx.schema"
    local inside = folder .. "/inside"
    assert(flare.core.file.mkdir(inside .. "/real"))
    file(string.pack("<ff", 3, 4), "secret")
    file(string.pack("<ff", 5, 6), "inside/data.bin")
    os.execute(("cd '%s' && ln -s ../secret link && ln -s .. up && ln -s data.bin alias"
      .. " && ln -s link chain && ln -s '%s/secret' far"):format(inside, folder))
    local function tensor(location, name)
      local proto = {dims = {2}, data_type = 1, data_location = 1,
                     external_data = {{key = "location", value = location}}}
      return flare.onnx.load_tensor(file(w.encode(schema.Tensor, proto), name or "inside/t.pb"))
    end
    assert.same({5, 6}, tensor("data.bin"):totable())
    assert.same({5, 6}, tensor("alias"):totable())
    for _, location in ipairs {"link", "up/secret", "chain", "far", "real/../../secret",
                               "../secret", folder .. "/secret", "", "up/inside/../secret"} do
      local x, why = tensor(location)
      assert.is_nil(x, location)
      assert.is_truthy(why:find("not below the model's folder", 1, true), why)
    end
    local x, why = tensor("data.bin\0x")
    assert.is_nil(x)
    assert.is_truthy(why:find("name has a zero byte: 'data.bin\\0x'", 1, true), why)
    x, why = tensor("real")
    assert.is_nil(x)
    assert.match("is a directory, not a file", why)
    -- a model that is a link finds its data beside itself, as in a cache of downloads
    assert(flare.core.file.mkdir(folder .. "/blobs"))
    file(string.pack("<ff", 8, 9), "blobs/d")
    tensor("model.data", "blobs/m")
    os.execute(("cd '%s' && ln -sf ../blobs/m model && ln -sf ../blobs/d model.data")
      :format(inside))
    assert.same({8, 9}, flare.onnx.load_tensor(inside .. "/model"):totable())
  end)

  it("is refused with a reason", function()
    local function fails(message, bytes)
      local x, why = flare.onnx.load_tensor(file(bytes))
      assert.is_nil(x)
      assert.is_truthy(why:find(message, 1, true), why)
    end
    local schema = require "flare.onnx.schema"
    local function proto(fields) return w.encode(schema.Tensor, fields) end
    fails("strings: the tensor is of strings", proto{data_type = 8, dims = {1}})
    fails("element types: tensor 'x' is of u64", proto{data_type = 13, name = "x"})
    fails("element types: the tensor is of type 99", proto{data_type = 99})
    fails("(3) has 2 elements", w.tensor_file("", "f32", {3}, {1, 2}))
    fails("has a size of -1", proto{data_type = 1, dims = {-1}})
    fails("is too large", proto{data_type = 1, dims = {1 << 40, 1 << 40}})
    fails("has 9 dims", proto{data_type = 1, dims = {1, 1, 1, 1, 1, 1, 1, 1, 1}})
    fails("needs 8 bytes, the file has 3", proto{data_type = 1, dims = {2}, raw_data = "abc"})
    fails("not a good protobuf file", "\xff\xff\xff")
    fails("a field makes no sense (byte 1)", "\x10")
    fails("longer than what holds it", "\x4a\x05ab")
    assert.is_nil(flare.onnx.load_tensor(folder .. "/nothing"))
    assert.has_error(function() flare.onnx.load_tensor(1) end,
                     "load_tensor: the path must be a string, got number")
  end)
end)

describe("a model", function()
  it("says what it takes and gives", function()
    local g = single("Add", {w.value("a", "f32", {2, "n"}), w.value("b", "f32", {})})
    g.output = {w.value("y", "f32", {2, "n"})}
    local model = assert(load(g))
    assert.equal("a", model.inputs[1].name)
    assert.equal("f32", model.inputs[1].dtype)
    assert.same({2, "n"}, model.inputs[1].shape)
    assert.equal("y", model.outputs[1].name)
    assert.is_truthy(tostring(model):find("input a: f32 (2, n)", 1, true))
  end)

  it("takes a list, a table by name, plain numbers, or the only tensor", function()
    local model = assert(load(single("Sub", {w.value("a", "f32", {"n"}), w.value("b", "f32", {})})))
    local a = flare.tensor{5, 6}
    assert.same({3, 4}, model:run({a, 2})[1]:totable())
    assert.same({3, 4}, model:run({b = flare.tensor(2), a = a})[1]:totable())
    model = assert(load(single("Neg", {w.value("a", "f32", {"n"})})))
    assert.same({-5, -6}, model:run(a)[1]:totable())
  end)

  it("has several nodes, constants and outputs", function()
    local model = assert(load{
      node = {
        w.node("MatMul", {"x", "weight"}, {"z"}),
        w.node("Constant", {}, {"axes"}, {value_ints = {"ints", {1}}}),
        w.node("ReduceSum", {"z", "axes"}, {"sum"}, {keepdims = {"i", 0}}),
        w.node("Relu", {"z"}, {"y"}),
      },
      initializer = {w.tensor("weight", "f32", {2, 2}, {1, -1, 2, -2})},
      input = {w.value("x", "f32", {"n", 2})}, output = {{name = "y"}, {name = "sum"}},
    })
    local results = model:run{flare.tensor{{1, 1}, {0, 3}}}
    assert.same({{3, 0}, {6, 0}}, results[1]:totable())
    assert.same({0, 0}, results[2]:totable())
  end)

  it("does not take what a caller has changed for what it was", function()
    local shape_of = assert(load(single("Shape", {w.value("a", "f32", {"n"})})))
    local zeros = assert(load(single("ConstantOfShape", {w.value("s", "i64", {1})})))
    local s = shape_of:run{flare.zeros(3)}[1]
    assert.equal(3, zeros:run{s}[1]:numel())
    s[1] = 5
    assert.equal(5, zeros:run{s}[1]:numel())
  end)

  it("keeps its constants from those who write in its outputs", function()
    local model = assert(load{
      node = {w.node("Reshape", {"w", "shape"}, {"y"})}, input = {}, output = {{name = "y"}},
      initializer = {w.tensor("w", "f32", {4}, {1, 2, 3, 4}),
                     w.tensor("shape", "i64", {2}, {2, 2})},
    })
    assert.has_error(function() model:run{}[1]:add_(1) end,
                     "add_: the tensor lies in memory that may only be read: clone() it first")
    model:run{}[1]:clone():add_(1)
    assert.same({{1, 2}, {3, 4}}, model:run{}[1]:totable())
  end)

  it("lets gradients pass to its inputs", function()
    local model = assert(load(single("Mul", {w.value("a", "f32", {2}), w.value("b", "f32", {2})})))
    local a = flare.tensor({1, 2}, {requires_grad = true})
    model:run{a, flare.tensor{5, 7}}[1]:sum():backward()
    assert.same({5, 7}, a.grad:totable())
  end)

  it("has inputs that need not be given", function()
    local g = single("Add", {w.value("a", "f32", {1}), w.value("b", "f32", {1})})
    g.initializer = {w.tensor("b", "f32", {1}, {10})}
    local model = assert(load(g))
    assert.equal(1, #model.inputs)
    assert.same({11}, model:run{{1}}[1]:totable())
    assert.same({3}, model:run{a = {1}, b = {2}}[1]:totable())
  end)

  it("has functions of its own", function()
    local g = single("Twice", {w.value("a", "f32", {1})}, {by = {"f", 4}})
    g.node[1].domain = "local"
    local model = assert(load(g, 17, {functions = {{
      name = "Twice", domain = "local", input = {"v"}, output = {"r"}, attribute = {"by"},
      opset_import = {{version = 17}},
      node = {{op_type = "Constant", output = {"c"},
               attribute = {{name = "value_float", ref = "by", type = 1}}},
              w.node("Mul", {"v", "c"}, {"r"})},
    }}}))
    assert.same({12}, model:run{{3}}[1]:totable())
  end)

  it("has inner graphs, which see outer values", function()
    local function branch(op)
      return {"g", {node = {w.node(op, {"a", "one"}, {"r"})}, output = {{name = "r"}}}}
    end
    local g = single("If", {w.value("c", "bool", {})},
                     {then_branch = branch "Add", else_branch = branch "Sub"})
    g.input[2] = w.value("a", "f32", {1})
    g.initializer = {w.tensor("one", "f32", {}, {1})}
    local model = assert(load(g))
    assert.same({6}, model:run{true, {5}}[1]:totable())
    assert.same({4}, model:run{false, {5}}[1]:totable())
  end)

  it("loops, and stacks what each round gives", function()
    local body = {
      node = {w.node("Add", {"v", "v"}, {"double"}), w.node("Identity", {"go"}, {"on"}),
              w.node("Identity", {"double"}, {"seen"})},
      input = {w.value("k", "i64", {}), w.value("go", "bool", {}), w.value("v", "f32", {1})},
      output = {{name = "on"}, {name = "double"}, {name = "seen"}},
    }
    local model = assert(load{
      node = {w.node("Loop", {"trips", "", "x"}, {"last", "all"}, {body = {"g", body}})},
      input = {w.value("trips", "i64", {}), w.value("x", "f32", {1})},
      output = {{name = "last"}, {name = "all"}},
    })
    local results = model:run{3, {1}}
    assert.same({8}, results[1]:totable())
    assert.same({{2}, {4}, {8}}, results[2]:totable())
  end)

  it("scans, with a batch in front in version 8", function()
    local body = {
      node = {w.node("Add", {"sum", "next"}, {"total"}), w.node("Identity", {"total"}, {"seen"})},
      input = {w.value("sum", "f32", {}), w.value("next", "f32", {})},
      output = {{name = "total"}, {name = "seen"}},
    }
    local function graph(inputs)
      return {
        node = {w.node("Scan", inputs, {"last", "all"},
                       {body = {"g", body}, num_scan_inputs = {"i", 1}})},
        input = {w.value("s", "f32", {"b"}), w.value("x", "f32", {"b", "n"})},
        output = {{name = "last"}, {name = "all"}},
      }
    end
    local old = graph{"", "s", "x"}
    local results = assert(load(old, 8)):run{{0, 10}, {{1, 2}, {3, 4}}}
    assert.same({3, 17}, results[1]:totable())
    assert.same({{1, 3}, {13, 17}}, results[2]:totable())
    local new = graph{"s", "x"}
    new.input = {w.value("s", "f32", {}), w.value("x", "f32", {"n"})}
    results = assert(load(new, 9)):run{1, {2, 3}}
    assert.equal(6, results[1]:item())
    assert.same({3, 6}, results[2]:totable())
  end)

  it("uses sequences inside", function()
    local model = assert(load{
      node = {w.node("SplitToSequence", {"x"}, {"s"}),
              w.node("SequenceAt", {"s", "k"}, {"one"}),
              w.node("SequenceInsert", {"s", "one"}, {"t"}),
              w.node("ConcatFromSequence", {"t"}, {"y"}, {axis = {"i", 0}})},
      initializer = {w.tensor("k", "i64", {}, {-1})},
      input = {w.value("x", "f32", {3})}, output = {{name = "y"}},
    })
    assert.same({1, 2, 3, 3}, model:run{{1, 2, 3}}[1]:totable())
  end)

  it("moves to a device", function()
    local function branch(value)
      local constant = {value = {"t", w.tensor("", "f32", {}, {value})}}
      return {"g", {node = {w.node("Constant", {}, {"c"}, constant),
                            w.node("Add", {"x", "c"}, {"r"})}, output = {{name = "r"}}}}
    end
    local model = assert(load{
      node = {w.node("Mul", {"a", "w"}, {"x"}),
              w.node("If", {"yes"}, {"y"}, {then_branch = branch(1), else_branch = branch(2)})},
      initializer = {w.tensor("w", "f32", {}, {3}), w.tensor("yes", "bool", {}, {1})},
      input = {w.value("a", "f32", {1})}, output = {{name = "y"}},
    })
    for _, device in ipairs(devices) do
      local y = model:to(device):run{{2}}[1]
      assert.equal(device, y.device)
      assert.same({7}, y:totable())
    end
  end)

  it("computes in another dtype if asked to", function()
    local g = single("Add", {w.value("a", "f32", {1})})
    g.node[1].input[2] = "w"
    g.initializer = {w.tensor("w", "f32", {1}, {1})}
    local model = assert(load(g, 17, nil, {dtype = "f16"}))
    assert.equal("f16", model:run{{2}}[1].dtype)
  end)

  it("is refused by name", function()
    local x = {w.value("x", "f32", {1})}
    refused("operators: there is no Frobnicate (ai.onnx, version 17)", single("Frobnicate", x))
    local many = single("Frobnicate", x)
    many.node[2] = w.node("Frobnicate", {"y"}, {"z"})
    many.node[3] = w.node("Grumble", {"z"}, {"w"})
    refused("there is no Frobnicate (ai.onnx, version 17), no Grumble (ai.onnx, version 17)", many)
    local g = single("Frobnicate", x)
    g.node[1].domain = "com.microsoft"
    refused("operators: there is no Frobnicate (com.microsoft, version 1)", g, 17,
            {opset_import = {{version = 17}, {domain = "com.microsoft", version = 1}}})
    refused("image decoding: ImageDecoder (ai.onnx, version 20)", single("ImageDecoder", x), 20)
    refused("random numbers: Bernoulli (ai.onnx, version 17)", single("Bernoulli", x))
    g = single("Identity", {{name = "x", type = {sequence = {}}}})
    refused("sequences: input 'x' of Identity (ai.onnx, version 17) is a sequence", g)
    g = single("Identity", {{name = "x", type = {tensor = {elem_type = 8}}}})
    refused("strings: input 'x' of Identity (ai.onnx, version 17) is of strings", g)
    g = single("Identity", {{name = "x", type = {tensor = {elem_type = 12}}}})
    refused("element types: input 'x' of Identity (ai.onnx, version 17) is of u32", g)
    g = single("Neg", {})
    g.node[1].input = {"gone"}
    refused("node 1, Neg uses 'gone', which no node before it defines", g)
    local _, why = flare.onnx.load(file(w.tensor_file("", "f32", {1}, {1})))
    assert.is_truthy(why)
  end)

  it("is not nested without end", function()
    local graph = {node = {w.node("Neg", {"x"}, {"y"})}}
    for _ = 1, 40 do graph = {node = {w.node("If", {"x"}, {"y"}, {then_branch = {"g", graph}})}} end
    refused("messages are nested too deep", graph)
  end)

  it("does not unfold without end", function()
    local function twice(k) -- calls the next function two times
      local name = "F" .. k
      return {name = name, domain = "local", input = {"v"}, output = {"r"}, node = {
        w.node("F" .. k + 1, {"v"}, {"u"}, nil, "local"),
        w.node("F" .. k + 1, {"u"}, {"r"}, nil, "local")}}
    end
    local functions = {}
    for k = 1, 30 do functions[k] = twice(k) end
    local g = single("F1", {w.value("x", "f32", {1})})
    g.node[1].domain = "local"
    refused("graph: it has more than 131072 nodes", g, 17, {functions = functions})
    refused("graph: graphs are nested too deep", g, 17, {functions = {
      {name = "F1", domain = "local", input = {"v"}, output = {"r"},
       node = {w.node("F1", {"v"}, {"r"}, nil, "local")}}}})
  end)

  it("says what is wrong with its inputs", function()
    local model = assert(load(single("Neg", {w.value("x", "f32", {2, "n"})})))
    local function fails(message, ...)
      local ok, why = pcall(model.run, model, ...)
      assert.is_false(ok)
      assert.is_truthy(why:find(message, 1, true), why)
    end
    fails("input 'x' is missing: f32 (2, n)", {})
    fails("there is no input 'z' (there are: x)", {z = flare.zeros(2, 2)})
    fails("input 'x' must be f32 (2, n), got shape (3, 2)", {flare.zeros(3, 2)})
    fails('must be f32 (2, n), got i64: x:to("f32") converts',
          {flare.zeros({2, 2}, {dtype = "i64"})})
    fails("there is no input 2: the model takes 1", {flare.zeros(2, 2), flare.zeros(1)})
    fails("input 'x' must be a tensor, got string", {"text"})
    fails("the inputs must be a table of tensors, got number", 1)
  end)

  it("names the node that fails", function()
    local model = assert(load(single("MatMul", {w.value("a", "f32", {"n", "m"}),
                                                w.value("b", "f32", {"p", "q"})})))
    local ok, why = pcall(model.run, model, {flare.zeros(2, 3), flare.zeros(2, 3)})
    assert.is_false(ok)
    assert.is_truthy(why:find("in node 1, MatMul", 1, true), why)
    assert.is_truthy(why:find("matmul", 1, true), why)
  end)
end)

describe("the cases of the ONNX project", function()
  local given = os.getenv "FLARE_ONNX_CASES"
  for _, device in ipairs(devices) do
    it("pass on " .. device .. ", at least nine of ten, and none fails", function()
      if not given then return pending "FLARE_ONNX_CASES names no folder of cases" end
      local counts = {passed = 0, failed = 0, refused = 0}
      local bad, reasons = {}, {}
      local found = cases.find(given, folder)
      for _, case in ipairs(found) do
        local result, why = cases.run(case, device)
        counts[result] = counts[result] + 1
        local name = case:match "[^/]*$"
        if result == "failed" then bad[#bad + 1] = ("  %s: %s"):format(name, why) end
        if result == "refused" then
          local class = why:match "model%.onnx: ([%w ]+):" or why
          reasons[class] = (reasons[class] or 0) + 1
        end
      end
      local shown = {}
      for class, count in pairs(reasons) do shown[#shown + 1] = ("%d %s"):format(count, class) end
      table.sort(shown)
      print(("\nONNX cases on %s: passed %d, failed %d, refused %d (%s), all %d"):format(
        device, counts.passed, counts.failed, counts.refused, table.concat(shown, ", "), #found))
      assert(#found > 0, "no cases below " .. given)
      assert(#bad == 0, "\n" .. table.concat(bad, "\n"))
      assert(counts.passed >= 0.9 * #found, table.concat(shown, ", "))
    end)
  end
end)
