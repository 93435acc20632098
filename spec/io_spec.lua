-- safetensors, trees of values, checkpoints: what is written comes back, and files that are
-- wrong are refused with a message that says why.
local flare = require "flare"
local core = flare.core
local safetensors = flare.io.safetensors
local nn, optim, data = flare.nn, flare.optim, flare.data

local function temporary()
  local path = os.tmpname()
  os.remove(path)
  return path
end

local function put(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function get(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

-- A file with this header and this many bytes of data.
local function raw(header, bytes)
  return string.pack("<I8", #header) .. header .. ("\0"):rep(bytes or 0)
end

describe("safetensors", function()
  local path
  before_each(function() path = temporary() end)
  after_each(function() os.remove(path) end)

  local function load(text)
    put(path, text)
    return safetensors.load(path)
  end

  it("writes and reads every dtype", function()
    local tensors = {}
    for _, dtype in ipairs{"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"} do
      tensors["x." .. dtype] = flare.tensor({{0, 1, 1}, {1, 0, 1}}, {dtype = "f32"}):to(dtype)
    end
    tensors.scalar, tensors.empty = flare.tensor(7), flare.zeros(0, 5)
    tensors.strided = flare.arange(1, 7):view(2, 3).T
    assert(safetensors.save(path, tensors, {note = "ü"}))
    for _, map in ipairs{false, true} do
      local back, metadata = safetensors.load(path, {map = map})
      assert.equal("ü", metadata.note)
      for name, t in pairs(tensors) do
        assert.equal(t.dtype, back[name].dtype)
        assert.same(t.shape, back[name].shape)
        assert.same(t:tolist(), back[name]:tolist())
      end
    end
    -- data begin at a multiple of 64
    assert.equal(0, (string.unpack("<I8", get(path)) + 8) % 64)
  end)

  it("writes the same bytes for the same tensors", function()
    local tensors = {b = flare.ones(3), a = flare.zeros(2, {dtype = "i64"}), c = flare.ones(1)}
    assert(safetensors.save(path, tensors))
    local first = get(path)
    assert(safetensors.save(path, {c = flare.ones(1), a = tensors.a, b = tensors.b}))
    assert.equal(first, get(path))
  end)

  it("lists names without reading data", function()
    assert(safetensors.save(path, {w = flare.ones(2, 3)}))
    local entries = assert(safetensors.open(path)):entries()
    assert.same({{name = "w", dtype = "f32", shape = {2, 3}}},
                {{name = entries[1].name, dtype = entries[1].dtype, shape = entries[1].shape}})
  end)

  it("copies a tensor into another, piece by piece, converting it", function()
    local wide = flare.randn(3000, 700) -- several pieces
    assert(safetensors.save(path, {wide = wide, one = flare.tensor(2.5), none = flare.ones(0, 3),
                                   flags = flare.tensor{1, 0, 3}:ne(0)}))
    local reader <close> = assert(safetensors.open(path))
    for _, to in ipairs{flare.zeros(3000, 700), flare.zeros(3000, 700, {dtype = "f64"}),
                        flare.zeros(700, 3000):t(), flare.zeros(3000, 700, {device = "sim:0"})} do
      assert(reader:copy("wide", to))
      assert.truthy(to:to "cpu":eq(wide):all():item())
    end
    local one, flags = flare.zeros{}, flare.zeros(3)
    assert(reader:copy("one", one))
    assert(reader:copy("none", flare.zeros(0, 3)))
    assert(reader:copy("flags", flags))
    assert.same({2.5, 1, 0, 1}, {one:item(), table.unpack(flags:totable())})
    assert.error_matches(function() reader:copy("wide", flare.zeros(3000, 70)) end,
                         "'wide' is %(3000, 700%), the destination is %(3000, 70%)")
    assert.matches("did you mean", select(2, reader:copy("wid", flare.zeros(3))))
  end)

  it("may be saved over while a map of it is alive", function()
    assert(safetensors.save(path, {w = flare.ones(1000)}))
    local old = safetensors.load(path, {map = true})
    assert(safetensors.save(path, {w = flare.zeros(1000)}))
    assert.equal(1000, old.w:sum():item())
    assert.equal(0, safetensors.load(path).w:sum():item())
  end)

  local one = '{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
  local function entry(shape, offsets, dtype)
    return ('{"x":{"dtype":"%s","shape":%s,"data_offsets":%s}}'):format(dtype or "F32", shape,
                                                                       offsets)
  end
  local bad = {
    {"an empty file", "", "header too small (0 bytes, need 8)"},
    {"seven bytes", "1234567", "header too small (7 bytes, need 8)"},
    {"a length of 2^63", "\0\0\0\0\0\0\0\x80{}", "exceeds file size 10"},
    {"a length past the end", string.pack("<I8", 100) .. "{}", "header length 100 exceeds"},
    {"no JSON", raw "{x", "invalid header"},
    {"a list", raw "[]", "does not begin with '{'"},
    {"garbage behind", raw(one .. "x", 8), "invalid header"},
    {"bad UTF-8", raw('{"\xff":{}}'), "invalid header"},
    {"deep nesting", raw('{"x":' .. ("["):rep(100000)), "invalid header"},
    {"a name twice", raw('{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                         .. '"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2),
     "duplicate"},
    {"a key twice", raw('{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', 1),
     "duplicate"},
    {"a product that wraps around",
     raw(entry("[4194305,4194305,211106198978564]", "[0,16]"), 16), "the shape overflows"},
    {"an enormous dimension", raw(entry("[2,18446744073709551614]", "[0,8]"), 8), "invalid header"},
    {"a negative dimension", raw(entry("[-1]", "[0,8]"), 8), "dimension 1 is -1"},
    {"a fractional dimension", raw(entry("[1.5]", "[0,8]"), 8), "dimension 1 is 1.5"},
    {"a float dimension", raw(entry("[2e0]", "[0,8]"), 8), "not an integer in range"},
    {"a dimension as text", raw(entry('["2"]', "[0,8]"), 8), "not an integer in range"},
    {"a shape that is no list", raw(entry('{"a":2}', "[0,8]"), 8), "shape is not a list"},
    {"an end before the begin", raw(entry("[2]", "[8,0]"), 8), "end before they begin"},
    {"a negative offset", raw(entry("[2]", "[-8,0]"), 8), "not integers in range"},
    {"three offsets", raw(entry("[2]", "[0,8,8]"), 8), "not a list of two"},
    {"an end past the data", raw(entry("[2]", "[0,8]"), 7), "past the end of the data (7 bytes)"},
    {"bytes behind the last", raw(one, 9), "1 bytes behind the last tensor"},
    {"a gap", raw(entry("[2]", "[4,12]"), 12), "gap at byte 0"},
    {"an overlap", raw('{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
                       .. '"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}', 6),
     '"a" and "b" overlap at byte 2'},
    {"an empty one inside", raw('{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
                                .. '"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}', 4),
     "overlap"},
    {"too little data", raw(entry("[1000000]", "[0,4]"), 4), "needs 4000000 bytes, has 4"},
    {"an unknown dtype", raw(entry("[2]", "[0,8]", "F4"), 8),
     'unsupported dtype "F4" for tensor "x"'},
    {"a missing dtype", raw('{"x":{"shape":[2],"data_offsets":[0,8]}}', 8),
     "the dtype is not a string"},
    {"an unknown key", raw('{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"z":1}}', 8),
     'unknown key "z"'},
    {"a shape that is an object", raw(entry("{}", "[0,4]"), 4), "shape is not a list"},
    {"a shape of null", raw(entry("[null]", "[0,4]"), 4), "dimension 1 is null, not an integer"},
    {"metadata in a list", raw('{"__metadata__":[]}'), "__metadata__ is not an object"},
    {"metadata that are no strings", raw('{"__metadata__":{"a":1}}'), "names to strings"},
    {"an entry that is no object", raw('{"x":3}'), "not an object"},
  }
  for _, case in ipairs(bad) do
    it("refuses " .. case[1], function()
      local tensors, message = load(case[2])
      assert.is_nil(tensors)
      assert.is_truthy(message:find(case[3], 1, true), message)
      assert.is_truthy(message:find(path, 1, true), message)
    end)
  end

  it("refuses a header above 100 MB before it takes memory", function()
    put(path, string.pack("<I8", 101000000) .. "{")
    os.execute("truncate -s 101000100 " .. path)
    local tensors, message = safetensors.load(path)
    assert.is_nil(tensors)
    assert.match("header too large %(101000000 bytes.*the limit is 100000000", message)
  end)

  it("refuses many tensors on one block quickly", function()
    local parts = {}
    for i = 1, 100000 do
      parts[i] = ('"%d":{"dtype":"U8","shape":[200,200],"data_offsets":[0,40000]}'):format(i)
    end
    local tensors, message = load(raw("{" .. table.concat(parts, ",") .. "}", 40000))
    assert.is_nil(tensors)
    assert.match("overlap", message)
  end)

  it("accepts whitespace around the header's end, an empty file of tensors", function()
    assert.same({}, (load(raw "{}")))
    assert.equal(2, #load(raw(one .. " \n\t  ", 8)).x)
  end)

  it("says what the system says", function()
    local none, message = safetensors.load("/no/such/file")
    assert.is_nil(none)
    assert.match("/no/such/file", message)
    none, message = safetensors.load("/tmp")
    assert.is_nil(none)
    assert.match("/tmp", message)
    none = safetensors.save("/no/such/folder/file", {x = flare.ones(1)})
    assert.is_nil(none)
  end)
end)

describe("flare.save and flare.load", function()
  local path
  before_each(function() path = temporary() end)
  after_each(function() os.remove(path) end)

  it("keep a tree unchanged", function()
    local shared = flare.rand(3)
    local tree = {a = 1, b = 2.0, c = "text", d = true, e = {10, 20, {x = shared}}, f = shared,
                  big = math.maxinteger, tiny = 5e-324, third = 1 / 3, nan = 0 / 0,
                  inf = -math.huge, ["$odd"] = {["$tensor"] = "no", other = 1}, bytes = "\xff\0",
                  empty = {}}
    assert(flare.save(path, tree))
    local back = assert(flare.load(path))
    assert.equal("integer", math.type(back.a))
    assert.equal("float", math.type(back.b))
    assert.is_true(back.nan ~= back.nan)
    assert.equal(back.f, back.e[3].x)
    assert.same(shared:tolist(), back.f:tolist())
    tree.nan, back.nan, tree.f, back.f, tree.e[3].x, back.e[3].x = nil, nil, nil, nil, nil, nil
    assert.same(tree, back)
  end)

  it("notice every flipped byte", function()
    assert(flare.save(path, {w = flare.rand(40), n = 3}))
    local text = get(path)
    local before = flare.load(path)
    local harmless = 0
    for i = 1, #text do
      put(path, text:sub(1, i - 1) .. string.char(text:byte(i) ~ 0x20) .. text:sub(i + 1))
      local tree, message = flare.load(path)
      if tree then
        -- padding between header and data is the only thing that may change
        assert.same(before.w:tolist(), tree.w:tolist())
        assert.equal(3, tree.n)
        harmless = harmless + 1
      else
        assert.is_truthy(message:find(path, 1, true))
      end
    end
    assert.is_true(harmless <= 64)
  end)

  it("notice every truncation", function()
    assert(flare.save(path, {w = flare.rand(5)}))
    local text = get(path)
    for n = 0, #text - 1 do
      put(path, text:sub(1, n))
      assert.is_nil((flare.load(path)))
    end
  end)

  it("refuse values that are not data", function()
    assert.has_error(function() flare.save(path, {f = print}) end)
    assert.has_error(function() flare.save(path, {[1.5] = 1}) end)
    local loop = {}
    loop.loop = loop
    assert.has_error(function() flare.save(path, loop) end)
  end)

  it("read safetensors files of others as names and tensors", function()
    assert(safetensors.save(path, {x = flare.ones(2)}, {format = "pt"}))
    assert.same({1, 1}, assert(flare.load(path)).x:totable())
  end)
end)

describe("checkpoints", function()
  local folder
  before_each(function() folder = temporary() end)
  after_each(function() os.execute("rm -rf '" .. folder .. "'") end)

  local function make()
    flare.manual_seed(3)
    local model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3),
                                nn.Linear(8, 1))
    local optimizer = optim.AdamW(model:parameters(), {lr = 0.01})
    local set = data.Tensors(flare.rand(40, 4, {generator = flare.generator(8)}))
    return {model = model, optimizer = optimizer,
            schedule = optim.CosineLR(optimizer, {total = 30}),
            loader = data.Loader(set, {batch = 8, shuffle = true, seed = 2}),
            generator = flare.default_generator()}
  end

  local function train(run, steps)
    local n = 0
    for x in run.loader:forever() do
      local loss = (run.model(x) - x:sum{dim = 2, keepdim = true}):square():mean()
      run.optimizer:zero_grad()
      loss:backward()
      run.optimizer:step()
      run.schedule:step()
      n = n + 1
      if n == steps then break end
    end
  end

  it("let a run go on bit for bit", function()
    local whole = make()
    train(whole, 20)
    local first = make()
    train(first, 7)
    local checkpoints = assert(flare.io.Checkpoint(folder))
    assert.has_error(function() checkpoints:save(1) end,
                     "Checkpoint:save: the parts must be a table of names and objects, got nil")
    assert.has_error(function() checkpoints:restore({}, {}) end,
                     "Checkpoint:restore: what load gave is expected, got table")
    assert(checkpoints:save(7, first, {note = "x"}))
    local second = make()
    flare.rand(5) -- whatever the new process does before
    local saved = assert(checkpoints:load())
    assert.equal(7, saved.step)
    assert.equal("x", saved.note)
    checkpoints:restore(saved, second)
    train(second, 13)
    for name, t in pairs(whole.model:state_dict()) do
      assert.is_true(t:eq(second.model:state_dict()[name]):all():item(), name)
    end
  end)

  it("keep the newest and skip damaged files", function()
    local checkpoints = assert(flare.io.Checkpoint(folder, {keep = 2}))
    local model = nn.Linear(1, 1)
    for step = 1, 4 do assert(checkpoints:save(step, {model = model})) end
    assert.same({3, 4}, checkpoints:steps())
    local path = checkpoints:path(4)
    local text = get(path)
    put(path, text:sub(1, #text - 1) .. string.char(text:byte(#text) ~ 1))
    local saved = checkpoints:load()
    assert.equal(3, saved.step)
    assert.match("step%-00000004.flare: the checksum does not match", saved.skipped[1])
    local none, message = checkpoints:load(4)
    assert.is_nil(none)
    assert.match("other steps here: 3", message)
    put(checkpoints:path(3), "")
    none, message = checkpoints:load()
    assert.is_nil(none)
    assert.match("step%-00000003", message)
  end)

  it("name missing parts", function()
    local checkpoints = assert(flare.io.Checkpoint(folder))
    local none, message = checkpoints:load()
    assert.is_nil(none)
    assert.match("there is no checkpoint", message)
    assert(checkpoints:save(1, {model = nn.Linear(1, 1)}))
    assert.has_error(function()
      checkpoints:restore(assert(checkpoints:load()), {modle = nn.Linear(1, 1)})
    end)
    assert.has_error(function() checkpoints:save(1.5, {}) end)
    assert.has_error(function() checkpoints:save(1, {step = 3}) end)
    none, message = flare.io.Checkpoint("/dev/null/x")
    assert.is_nil(none)
    assert.is_string(message)
    assert.is_function(core.file.write_atomic)
  end)
end)
