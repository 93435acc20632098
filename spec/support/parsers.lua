-- What reads files, and files that are spoiled: for spec/fuzz_spec.lua, spec/long/fuzz.sh,
-- spec/fuzz/parsers.c and spec/corpus_spec.lua. What comes back is a value, or nil and a message.
local flare = require "flare"
local core, nn, optim = flare.core, flare.nn, flare.optim
local write = require "spec.support.onnx_write"

local parsers = {}

local random = math.random
local function any(list) return list[random(#list)] end

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

-- A file in both ways there are to read one.
local function twice(load)
  return function(path)
    local x, message = load(path)
    local mapped, reason = load(path, {map = true})
    assert((x == nil) == (mapped == nil), message or reason)
    return x, message
  end
end

-- A small file can be a large image; those of a million pixels take no other path.
local function read_image(path) return flare.data.images.read(path, {limit = 1 << 20}) end

--- What the fuzz targets try, by name: each takes a path.
parsers.readers = {
  npy = twice(flare.io.npy.load),
  npz = flare.io.npz.load,
  safetensors = twice(flare.io.safetensors.load),
  pt = flare.io.pt.load,
  mapped_pt = function(path) return flare.io.pt.load(path, {map = true}) end,
  gguf = twice(flare.io.gguf.load),
  t7 = flare.io.t7.load,
  idx = flare.data.idx.read,
  png = read_image,
  jpeg = read_image,
  wav = flare.data.audio.read,
  onnx = run_model,
  onnx_tensor = flare.onnx.load_tensor,
  checkpoint = flare.load,
  text = flare.data.text.load,
  json = function(path) return core.json.decode(core.file.read(path)) end,
}

--- Whether a reader keeps its promise for a file; an interrupted one gives no answer.
-- @return nothing, or what is wrong
function parsers.judge(read, path)
  local ok, value, message = pcall(read, path)
  if not ok then
    return not tostring(value):find "interrupted!" and "raised: " .. tostring(value) or nil
  elseif value == nil and (type(message) ~= "string" or #message < 5) then
    return read ~= parsers.readers.json and "gave nothing and no reason" or nil
  end
end

-- Files of every kind that is read.
function parsers.originals(folder)
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
  for name, file in pairs{png = "palette_alpha.png", jpeg = "progressive.jpg"} do
    list[name] = {core.file.read("spec/data/images/" .. file), flare.data.images.read}
  end
  path = folder .. "/x.wav"
  assert(flare.data.audio.write(path, core.zeros(2, 9), 8000, {format = "i24"}))
  list.wav = {core.file.read(path), flare.data.audio.read}
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
  for name, load in pairs{pt = flare.io.pt.load, ["old.pt"] = flare.io.pt.load,
                          gguf = flare.io.gguf.load, t7 = flare.io.t7.load} do
    list[name] = {core.file.read("spec/data/files/tree." .. name), load}
  end
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
  elseif type(a) ~= "table" or type(b) ~= "table" then
    return a == b
  end
  for key, v in pairs(a) do if not same(v, b[key]) then return false end end
  for key in pairs(b) do if a[key] == nil then return false end end
  return true
end

--- So many spoiled files, from a seed. A checkpoint that loads has to be what was saved.
-- @param only a pattern that the kinds of files match, or nil
-- @return how many were read nevertheless
function parsers.files(count, seed, note, only)
  math.randomseed(seed)
  flare.manual_seed(seed)
  local folder = os.tmpname()
  os.remove(folder)
  assert(core.file.mkdir(folder))
  local files, names, fine = parsers.originals(folder), {}, 0
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

return parsers
