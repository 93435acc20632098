-- Calls of operators with arguments that nobody meant, and files with bytes turned over: for
-- spec/fuzz_spec.lua and spec/long/fuzz.sh. What comes back is a result or an error with a
-- message; a crash, a hang or a report of a sanitizer ends the process.
local flare = require "flare"
local core, nn, optim = flare.core, flare.nn, flare.optim
local write = require "spec.support.onnx_write"

local fuzz = {}

local random = math.random
local function any(list) return list[random(#list)] end

local sizes = {0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 17}
local dtypes = {"f32", "f32", "f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool",
                "c64"}
local strange = {0, -1, -2, 99, -99, 1 << 31, -(1 << 31), 1 << 53, math.maxinteger,
                 math.mininteger, 1 << 40}
local reals = {0, 1, -1, 0.5, 0.1, 2, 1e-8, 1e300, -1e300, 1 / 0, -1 / 0, 0 / 0}

local function integer()
  if random(12) == 1 then return any(strange) end
  return random(-2, 5)
end

local function shape(most)
  local list = {}
  for i = 1, random(0, most or 4) do list[i] = any(sizes) end
  return list
end

-- A tensor whose elements may lie anywhere in a larger one, or be the same.
local function tensor(given, dtype)
  local list, x = given or shape()
  dtype = dtype or any(dtypes)
  if dtype:find "^[bf]" and dtype ~= "bool" then
    x = flare.randn(list)
  else
    x = flare.randint(random(8) == 1 and -3 or 0, 6, list)
  end
  x = x:to(dtype)
  local way, n = random(6), #list
  if n > 0 and way == 1 then
    local dim = random(n)
    x = core.cat({x, x, x}, dim):narrow(dim, 1 + x.shape[dim], x.shape[dim])
  elseif n > 1 and way == 2 then
    x = x:transpose(1, n)
  elseif n > 0 and way == 3 then
    x = x:flip(1)
  elseif n < 5 and way == 4 then
    x = x:unsqueeze(1):expand(random(1, 3), table.unpack(x.shape))
  end
  if random(4) == 1 and dtype:find "^f" then x = x:detach():requires_grad_(true) end
  return x
end

local function choice(text)
  local list = {}
  for word in text:gmatch "[^|]+" do list[#list + 1] = word end
  return any(list)
end

local function list_of(f, most)
  local list = {}
  for i = 1, random(0, most) do list[i] = f() end
  return list
end

-- Shapes that often fit each other: the same, its last dims, or another one.
local function related(base)
  local way = random(5)
  if way <= 3 then return {table.unpack(base)} end
  if way == 4 and #base > 0 then return {table.unpack(base, random(#base))} end
  return shape()
end

local function value(p, base)
  if random(40) == 1 then return any {"text", true, {}, 1.5, -7, {1, "a"}, print} end
  if p.kind == "tensor" then
    if p.variadic then
      return list_of(function() return tensor(related(base)) end, 4)
    elseif random(10) == 1 then
      return any(reals)
    end
    local float = p.type == "float" and any {"f32", "f64", "f32", "bf16"}
    local whole = p.type == "index" and any {"i64", "i64", "i32"}
    return tensor(related(base), random(6) > 1 and (float or whole) or nil)
  elseif p.kind == "shape" then
    return random(6) == 1 and list_of(integer, 9) or related(base)
  elseif p.kind == "dims" then
    return random(2) == 1 and integer() or list_of(integer, 4)
  elseif p.kind == "ints" then
    return list_of(integer, 6)
  elseif p.kind == "real" then
    return any(reals)
  elseif p.kind == "flag" then
    return random(2) == 1
  elseif p.kind == "enum" then
    return choice(p.choices)
  elseif p.kind == "dtype" then
    return any(dtypes)
  end
  return integer()
end

local function text(x, depth)
  if core.is_tensor(x) then
    return ("%s(%s)"):format(x.dtype, table.concat(x.shape, ","))
  elseif type(x) == "table" and (depth or 0) < 3 then
    local parts = {}
    for k, v in pairs(x) do parts[#parts + 1] = tostring(k) .. "=" .. text(v, (depth or 0) + 1) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return tostring(x)
end

-- What there is to do with a result.
local function use(x)
  if not core.is_tensor(x) then return end
  assert(x:numel() >= 0)
  if x:numel() > 5000 then return end -- expanded, it may be endless
  x:totable()
  if x.requires_grad and x.dtype:find "^f" then
    x:sum():backward()
  end
end

--- So many calls of operators, from a seed. `note(text)` hears of each before it is made.
-- @return how many gave results
function fuzz.operators(count, seed, note)
  math.randomseed(seed)
  flare.manual_seed(seed)
  local rows, fine = core.ops(), 0
  core.memory.limit(256 << 20)
  for k = 1, count do
    local op = any(rows)
    local base, given, options = shape(), {}, {}
    if random(3) == 1 then -- all by name, or some of them
      for _, p in ipairs(op.params) do
        if not p.optional or random(2) == 1 then options[p.name] = value(p, base) end
      end
    else
      for i, p in ipairs(op.params) do
        if p.optional and random(3) > 1 then
          if random(2) == 1 then options[p.name] = value(p, base) end
        else
          given[i] = value(p, base)
        end
      end
    end
    if random(20) == 1 then options.base = any {0, 1, 2} end
    local arguments, n = {}, 0
    for i = 1, #op.params do
      if given[i] == nil then break end
      n, arguments[i] = i, given[i]
    end
    if next(options) then
      n = n + 1
      arguments[n] = options
    end
    if note then note(("%d of seed %d: %s %s"):format(k, seed, op.name, text(arguments))) end
    local results = table.pack(pcall(core.ops[op.name], table.unpack(arguments, 1, n)))
    if results[1] then
      fine = fine + 1
      for i = 2, results.n do
        local ok, message = pcall(use, results[i])
        assert(ok or type(message) == "string", message)
      end
    else
      assert(type(results[2]) == "string" and #results[2] > 3, results[2])
    end
  end
  core.memory.limit(0)
  core.collect()
  return fine
end

-- A graph with a graph, a function, constants, shapes and windows.
local function onnx_model()
  local function branch(op) return {"g", {node = {write.node(op, {"z"}, {"r"})},
                                          output = {{name = "r"}}}} end
  return write.model({
    node = {
      write.node("Conv", {"x", "w"}, {"c"}, {pads = {"ints", {1, 0, 0, 1}}}),
      write.node("Reshape", {"c", "s"}, {"f"}),
      write.node("Own", {"f"}, {"z"}, {by = {"f", 2}}, "local"),
      write.node("If", {"yes"}, {"y"}, {then_branch = branch "Neg", else_branch = branch "Abs"}),
      write.node("Slice", {"y", "k", "e", "k", "k"}, {"t"}),
    },
    initializer = {
      write.tensor("w", "f32", {2, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
      write.tensor("s", "i64", {2}, {2, -1}), write.tensor("yes", "bool", {}, {1}),
      write.tensor("k", "i64", {1}, {1}), write.tensor("e", "i64", {1}, {4}),
    },
    input = {write.value("x", "f32", {"n", 1, 3, "w"})}, output = {{name = "t"}, {name = "z"}},
  }, 17, {functions = {{
    name = "Own", domain = "local", input = {"v"}, output = {"r"}, attribute = {"by"},
    opset_import = {{version = 17}},
    node = {{op_type = "LeakyRelu", input = {"v"}, output = {"r"},
             attribute = {{name = "alpha", ref = "by", type = 1}}}},
  }}})
end

-- Whatever loads is run, too: results, or an error with a message.
local function run_model(path)
  local model, message = flare.onnx.load(path)
  if not model then return nil, message end
  core.memory.limit(256 << 20)
  local ok, problem = pcall(model.run, model, {flare.zeros(1, 1, 3, 3)})
  core.memory.limit(0)
  assert(ok or type(problem) == "string", problem)
  return model
end

-- Files of every kind that is read.
local function originals(folder)
  local list = {}
  local model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
  local adam = optim.Adam(model:parameters())
  local path = folder .. "/checkpoint"
  assert(flare.save(path, {model = model:state_dict(), optimizer = adam:state_dict(),
                           step = 7, note = "text", list = {1, 2.5, true}}))
  list.checkpoint = {core.file.read(path), flare.load}
  path = folder .. "/safetensors"
  assert(flare.io.safetensors.save(path, {a = core.ones(3, 2), b = core.zeros(5, {dtype = "i64"}),
                                          c = core.ones(2, {dtype = "bf16"})}, {kind = "test"}))
  list.safetensors = {core.file.read(path), flare.io.safetensors.load}
  list["mapped safetensors"] = {list.safetensors[1], function(p)
    return flare.io.safetensors.load(p, {map = true})
  end}
  local idx = string.pack(">I4I4I4I4", 0x803, 3, 4, 5) .. ("\1\2\3"):rep(20)
  list.idx = {idx, flare.data.idx.read}
  list.json = {'{"a": [1, 2.5e3, true, null, "t\\u00e9\\n"], "b": {"c": {}}}', function(p)
    return core.json.decode(core.file.read(p))
  end}
  path = folder .. "/npy"
  assert(flare.io.npy.save(path, core.ones(3, 2)))
  list.npy = {core.file.read(path), flare.io.npy.load}
  list["mapped npy"] = {list.npy[1], function(p) return flare.io.npy.load(p, {map = true}) end}
  path = folder .. "/npz"
  assert(flare.io.npz.save(path, {a = core.ones(3), b = core.zeros(2, {dtype = "i8"})}))
  list.npz = {core.file.read(path), flare.io.npz.load}
  assert(flare.io.npz.save(path, {a = core.ones(99), b = core.ones(2)}, {compress = true}))
  list["deflated npz"] = {core.file.read(path), flare.io.npz.load}
  list["ONNX tensor"] = {write.tensor_file("x", "f32", {2, 2}, {1, 2, 3, 4}),
                         flare.onnx.load_tensor}
  list["ONNX model"] = {onnx_model(), run_model}
  local pipe = assert(io.popen("gzip -c > '" .. folder .. "/idx.gz'", "w"))
  pipe:write(idx)
  pipe:close()
  list["idx.gz"] = {core.file.read(folder .. "/idx.gz"), flare.data.idx.read}
  return list
end

local function spoiled(bytes)
  local way = random(6)
  for _ = 1, way == 1 and 1 or random(8) do
    local n = #bytes
    local at = random(way == 2 and math.min(n, 300) or n)
    if way == 3 then
      bytes = bytes:sub(1, at)
    elseif way == 4 then
      local length = random(0, 20)
      bytes = bytes:sub(1, at) .. bytes:sub(at + length)
    elseif way == 5 then
      local from = random(n)
      bytes = bytes:sub(1, at) .. bytes:sub(from, from + random(0, 30)) .. bytes:sub(at + 1)
    else
      local new = any {string.char(random(0, 255)), "\0", "\255", "-", "9", "[", "{", '"'}
      bytes = bytes:sub(1, at - 1) .. new .. bytes:sub(at + 1)
    end
    if #bytes == 0 then break end
  end
  return bytes
end

local function same(a, b)
  if core.is_tensor(a) then
    return core.is_tensor(b) and a.dtype == b.dtype and a.shape == b.shape
           and a:bytes() == b:bytes()
  elseif type(a) ~= "table" then
    return a == b
  end
  for key, v in pairs(a) do if not same(v, b[key]) then return false end end
  for key in pairs(b) do if a[key] == nil then return false end end
  return true
end

--- So many spoiled files, from a seed. A checkpoint that loads has to be what was saved.
-- @param only a pattern that the kinds of files match, or nil
-- @return how many were read nevertheless
function fuzz.files(count, seed, note, only)
  math.randomseed(seed)
  flare.manual_seed(seed)
  local folder = os.tmpname()
  os.remove(folder)
  assert(core.file.mkdir(folder))
  local files, names, fine = originals(folder), {}, 0
  for name in pairs(files) do
    if name:find(only or "") then names[#names + 1] = name end
  end
  table.sort(names)
  local whole = assert(flare.load(folder .. "/checkpoint"))
  local path = folder .. "/spoiled"
  for k = 1, count do
    local name = any(names)
    local bytes = spoiled(files[name][1])
    if note then note(("%d of seed %d: %s of %d bytes"):format(k, seed, name, #bytes)) end
    local file <close> = assert(io.open(path, "wb"))
    assert(file:write(bytes))
    file:flush()
    local ok, result, message = pcall(files[name][2], path)
    assert(ok, result)
    if result == nil then
      assert(name == "json" or type(message) == "string", name .. " gave nothing and no reason")
    else
      fine = fine + 1
      assert(name ~= "checkpoint" or bytes == files[name][1] or same(whole, result),
             "a spoiled checkpoint was read as another one")
    end
  end
  os.execute("rm -rf '" .. folder .. "'")
  return fine
end

return fuzz
