-- Help out of the rows and the library's comments, and the definitions for editors.
local flare = require "flare"
local core = flare.core
local rows = require "flare.help.rows"
local tree = require "spec.support.tree"

local function has(text, ...)
  for _, part in ipairs{...} do
    assert(text:find(part, 1, true), ("no %q in:\n%s"):format(part, text))
  end
end

describe("flare.help", function()
  it("says how a part of the library is called that is a function as well", function()
    for _, text in ipairs{flare.help "class", flare.help "flare.class"} do
      assert.matches("^flare%.class%(name, parent%)\n  Makes a class", text)
    end
    assert.matches("^flare%.profile%(f, %.%.%.%)\n  Profiles a call", flare.help "profile")
    assert.matches("^it%(f, %.%.%.%)\n  Profiles a call.*has: start", flare.help(flare.profile))
  end)

  it("tells an operator's call, arguments, dtypes, gradient and an example", function()
    local text = flare.help "softmax"
    has(text, "softmax(x, dim = -1)\n", "divided by their sum", "x    a tensor: floats",
        "dim  a dim; -1 if left out", "gives: the dtype of x", "gradient: yes", "x:softmax(...)",
        "x:softmax_(...) in place", "flare.softmax(flare.randn(2, 3), 2)  --> f32 (2, 3)")
    assert.equal(text, flare.help "flare.softmax")
    assert.equal(text, flare.help "x:softmax_")
    assert.equal(text, flare.help(flare.softmax))
    has(flare.help "max_dim", "values, the dtype of x; indices, i64", "f32 (3), i64 (3)")
    has(flare.help "eq", "gradient: none")
    has(flare.help "cat", "xs   a list of tensors", "dim  a dim; 1 if left out")
    has(flare.help "linear", '"none", "relu"', "bias    a tensor: floats; may be left out")
  end)

  it("knows functions and classes by name and by themselves", function()
    has(flare.help "vmap", "flare.vmap(f, opts)", "in_dims", "gives: a function")
    has(flare.help(flare.vmap), "M.vmap(f, opts)")
    has(flare.help "nn.Linear", "Affine map", 'bias = true, act = "none"', ":forward(x)")
    has(flare.help "optim.AdamW", "Adam with decoupled weight decay")
    has(flare.help "io", "npz", "safetensors")
    has(flare.help(), 'flare.help "softmax"')
  end)

  it("knows functions in C that are not operators", function()
    has(flare.help "zeros", "flare.zeros(2, 3, {dtype", "A tensor of zeros")
    has(flare.help "backward", "flare.backward({y, ...}")
    has(flare.help "x:backward", "x:backward({gradient", "a loss")
    has(flare.help "shape", "x.shape\n  The sizes")
    has(flare.help "x:reduce", 'x:reduce("b (c p) t')
    has(flare.help "flare.reduce", "flare.reduce(inputs, output")
    has(flare.help "x:union1d", "flare.union1d(a, b)")
    local told = {} -- public names with an entry, and methods
    for _, path in ipairs(tree.files("README.md docs", ".md")) do
      for name in tree.read(path):gmatch "flare%.([%a_][%w_]*)" do
        if type(rawget(flare, name) or core[name]) == "function" then told[name] = true end
      end
    end
    for name in pairs(core.methods()) do told["x:" .. name] = true end
    for _, row in ipairs(core.ops()) do -- other tests' subject
      for _, name in ipairs {row.name, table.unpack(row.aliases)} do
        told[name], told["x:" .. name], told["x:" .. name .. "_"] = nil, nil, nil
      end
    end
    for name in pairs(told) do
      local text = flare.help(name)
      assert(not text:find "^nothing is" and not text:find "^there is no",
        text .. ": say it in stdlib/flare/help/words.lua")
    end
  end)

  it("tells how everything in the library's parts is called", function()
    for _, part in ipairs{"nn", "optim", "data", "io", "log", "metrics", "train",
                         "distributions", "dist", "models", "dataflow"} do
      for name, value in pairs(flare[part]) do
        local path = part .. "." .. name
        local text = flare.help(path)
        assert(not text:find "^nothing is", text)
        if type(value) == "function" or rawget(value, "__name") and rawget(value, "init") then
          assert(text:find(path .. "%f[({]"), text)
        end
      end
    end
    has(flare.help "nn.LeakyReLU", "nn.LeakyReLU({slope = 0.01})", "slope times x")
    has(flare.help "nn.CrossEntropyLoss", "label_smoothing = 0", 'reduction = "mean"', "weight =")
    has(flare.help "optim.AdamW", "optim.AdamW(parameters, {lr = 1e-3", ":zero_grad()", ":step(")
    has(flare.help "optim.StepLR", "{every =, gamma = 0.1}", "gamma every `every` steps", ":step()")
    has(flare.help "nn.LSTM", ":forward(x, h0, c0, opts)")
    assert(not flare.help "nn.LSTM":find ":parameters", "methods of all layers are listed once")
  end)

  it("tells how classes are made that share a file", function()
    for name, value in pairs(flare.metrics) do
      local path = "metrics." .. name
      if type(value) == "table" then assert.matches(path .. "%f[({]", flare.help(path)) end
    end
    has(flare.help "metrics.ConfusionMatrix", "{classes = n, normalize", "(rows) was predicted")
    assert(not flare.help "metrics.R2":find "log%-probabilities", "of the file's other classes")
  end)

  it("explains methods of classes, and names of parts of parts by themselves", function()
    assert.equal(flare.help "metrics.Accuracy.update", flare.help "flare.metrics.Accuracy:update")
    has(flare.help "optim.SGD:step", "closure  a function that computes the loss")
    assert.equal(flare.help "data.transforms.RandomCrop", flare.help "RandomCrop")
    assert.equal(flare.help "nn.functional.ctc_loss", flare.help "ctc_loss")
    assert.equal("there is no RandomCorp: do you mean RandomCrop?", flare.help "RandomCorp")
  end)

  it("keeps the lines that describe an argument together", function()
    has(flare.help "text.train_bpe", "special tokens, which\n     get the first ids")
    has(flare.help "compile", "tensors; false\n        by default: what stays inside a kernel")
  end)

  it("points from the name of a command to the command", function()
    local flare_help = tree.build .. "/flare help "
    assert.equal("launch is a command: flare launch --help\n", tree.output(flare_help .. "launch"))
    assert.equal("there is no lanch\n", tree.output(flare_help .. "lanch"))
  end)

  it("looks for a name in the parts of the library, too", function()
    assert.equal(flare.help "nn.Sequential", flare.help "Sequential")
    assert.equal(flare.help "optim.AdamW", flare.help "AdamW")
    assert.equal(flare.help(), flare.help "flare")
    assert.equal("there is no nn.Linaer: do you mean nn.Linear?", flare.help "nn.Linaer")
    assert.equal("there is no Sequental: do you mean Sequential?", flare.help "Sequental")
  end)

  it("explains every public name, and no other is public", function()
    local missing, count, seen = {}, 0, {[core] = true}
    local function visit(part, path)
      if seen[part] then return end
      seen[part] = true
      for name, value in pairs(part) do
        if type(name) == "string" and not name:find "^_" and value ~= core then
          count = count + 1
          local text = flare.help(path .. name)
          if text:find "^nothing is" or text:find "^there is no" then
            missing[#missing + 1] = path .. name
          end
          local is_class = type(value) == "table" and rawget(value, "__index")
          if type(value) == "table" and not is_class and select(2, path:gsub("%.", "")) < 2 then
            visit(value, path .. name .. ".")
          end
        end
      end
    end
    visit(flare, "")
    table.sort(missing)
    assert.same({}, missing)
    assert(count > 900)
    for name in ([[raw_new raw_run lend held place collect collector profile_push profile_start
        vmap_in vmap_out on_ready op_register method methods library raise hint nearest secret comm
        json file net protobuf deflate gunzip png_decode jpeg_decode crc32
        xxh64 custom stand_in interruptible]])
        :gmatch "%S+" do
      assert(core[name] ~= nil, name)
      assert.is_false(pcall(function() return flare[name] end), name)
    end
    assert.is_false(pcall(function() return flare.memory.fail end))
  end)

  it("explains collectives, initializers, memory and parts with an operator's name", function()
    has(flare.help "dist.all_reduce", "dist.all_reduce(x, {reduce")
    has(flare.help(flare.nn.init.kaiming_), "nn.init.kaiming_(x, {act")
    has(flare.help "memory.stats", "flare.memory.stats(device)", "peak")
    has(flare.help "dist", "flare.dist has: ", "dist(a, b, p = 2)")
    has(flare.help "x:dist", "The p-norm of a - b")
    has(flare.help "memory", "holders, limit")
  end)

  it("explains each argument of the functions and classes of dist", function()
    local source, count = require "flare.help.source", 0
    for name, value in pairs(flare.dist) do
      local f = type(value) == "function" and value or type(value) == "table" and value.init
      local doc = f and source.of(f)
      if f then assert(doc and doc.text[1], name) end
      local params = {}
      for _, p in ipairs(doc and doc.params or {}) do params[p.name:match "^%w+"] = p.text end
      for argument in (doc and doc.args or ""):gmatch "[%w_]+" do
        assert(params[argument], ("dist.%s: no @param %s"):format(name, argument))
        count = count + 1
      end
      if name ~= "send" and name ~= "barrier" and name ~= "close" then
        assert(type(value) ~= "function" or doc.returns, ("dist.%s: no @return"):format(name))
      end
    end
    assert(count > 40, count)
    has(flare.help "dist.ZeRO", "arXiv:1910.02054", "o.stage")
  end)

  it("explains functions of one's own by the comment above them", function()
    -- Twice as much.
    local function double(a, b) return a * 2, b end
    has(flare.help(double), "function(a, b)  spec/help_spec.lua:", "\n  Twice as much.")
    has(flare.help(has), "function(text, ...)  spec/help_spec.lua:")
  end)

  it("suggests the nearest name, or says that nothing is known", function()
    assert.equal("there is no softmx: do you mean softmax?", flare.help "softmx")
    has(flare.help "clip", "clamp(x, min", "other names: clip")
    has(flare.help(flare.mm), "matmul(a, b)", "other names: mm, bmm, mv, dot")
    has(flare.help(flare.zeros(1).sum), "sum(x, dims?")
    has(flare.help(flare.zeros(1).exp_), "exp(x)")
    has(flare.help(print), "nothing is written about this function")
    has(flare.help(3), "nothing is written about this number")
  end)

  it("has an example of every operator, and it runs and gives numbers", function()
    local without = {}
    for _, row in ipairs(core.ops()) do
      local text = rows.example(row)
      local inner = rows.is_inner(row)
      if not inner or text then
        if text then
          local r = table.pack(pcall(load("local flare = ... return " .. text), flare))
          assert(r[1], text .. ": " .. tostring(r[2]))
          for i = 2, r.n do
            local x = r[i]
            if not inner and flare.is_tensor(x) and x.dtype:find "^b?f%d" then
              assert(x:numel() > 0 and not x:isnan():any():item(), text)
            end
          end
        elseif not row.name:find "_step$" and not row.name:find "^comm_" then
          without[#without + 1] = row.name -- those write, or talk to others
        end
        has(rows.describe(row), row.name .. "(", "gradient: ", "gives: ")
      end
    end
    assert.same({}, without, "give examples in stdlib/flare/help/examples.lua")
  end)

  it("shows arguments in the order of a call and results that are returned", function()
    has(flare.help "cat", "cat(xs, dim = 1)\n", "\n  xs   a list", "flare.cat({")
    has(flare.help "stack", "stack(xs, dim = 1)\n")
    has(flare.help "randint", 'dtype = "i64"')
    has(flare.help "attention", "flare.attention(flare.randn(2, 4, 10, 16), ")
    for _, row in ipairs(core.ops()) do
      local text = flare.help(row.name)
      for _, hidden in ipairs {"lse", "rstd", "act", "pre"} do
        local found = text:find("%f[%w_]" .. hidden .. "%f[^%w_]")
        assert(not found or rows.is_inner(row) or row.name == "linear", row.name)
      end
      for i, name in ipairs(row.positional) do
        if i > 1 and not rows.is_inner(row) then
          local call = rows.call(row)
          local before = call:find("%f[%w_]" .. row.positional[i - 1] .. "%f[^%w_]", #row.name + 1)
          assert(before < call:find("%f[%w_]" .. name .. "%f[^%w_]", #row.name + 1), call)
        end
      end
    end
  end)

  it("offers an in-place form only where it exists", function()
    for _, name in ipairs {"topk", "unique", "sum", "conv", "svd", "cov"} do
      assert.is_nil(flare.help(name):find "in place", name)
    end
    local methods = core.methods()
    for _, row in ipairs(core.ops()) do
      local said = flare.help(row.name):find("(...) in place", 1, true) ~= nil
      assert.equal(row.method and methods[row.name .. "_"] ~= nil, said, row.name)
    end
    has(flare.help "argsort", "gradient: none")
    has(flare.help "isclose", "gradient: none")
  end)
end)
