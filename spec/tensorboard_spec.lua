-- log.tensorboard: the bytes of TensorBoard's own writer (spec/support/tensorboard_data.py), and
-- what its reader finds where it is installed.
local flare = require "flare"
local message = require "spec.support.expect".message
local tree = require "spec.support.tree"
local core, nn = flare.core, flare.nn

local function clock() return 1700000000.25 end

local function net() return nn.Sequential(nn.Linear(3, 4), nn.ReLU()) end

-- A block with a residual, whose sum is no module.
local Residual = flare.class("Residual", nn.Module)
function Residual:init() self.linear = nn.Linear(4, 4) end
function Residual:forward(x) return x + self.linear(x) end

-- Width, height, kind, and rows of bytes of a PNG file without interlacing and row filters.
local function decode(png)
  assert.equal("\x89PNG\r\n\x1a\n", png:sub(1, 8))
  local at, chunks = 9, {}
  while at < #png do
    local n, name = string.unpack(">I4c4", png, at)
    local data, crc, after = string.unpack(">c" .. n .. "I4", png, at + 8)
    assert.equal(core.crc32(name .. data), crc)
    chunks[name], at = data, after
  end
  local width, height, depth, kind = string.unpack(">I4I4BB", chunks.IHDR)
  assert.equal(8, depth)
  local size = height * (1 + width * ({[0] = 1, [2] = 3, [6] = 4})[kind])
  local bytes = assert(core.inflate(chunks.IDAT:sub(3, -5), size))
  local a, b = 1, 0
  for k = 1, #bytes do
    a = (a + bytes:byte(k)) % 65521
    b = (b + a) % 65521
  end
  assert.equal(b << 16 | a, (string.unpack(">I4", chunks.IDAT:sub(-4))))
  local rows = {}
  for k = 1, height do
    local first = (k - 1) * size // height
    assert.equal(0, bytes:byte(first + 1))
    rows[k] = {bytes:byte(first + 2, first + size // height)}
  end
  return width, height, kind, rows
end

describe("log.tensorboard", function()
  local folder
  before_each(function() folder = tree.output "mktemp -d":gsub("\n", "") end)
  after_each(function() os.execute("rm -r " .. folder) end)

  it("writes the bytes of TensorBoard's own writer", function()
    local board = assert(flare.log.tensorboard(folder, {after = 7, now = clock}))
    board:scalar("loss", flare.tensor(0.3), 1)
    board:write{step = 1000000, ["val/accuracy"] = 0, note = "no number"}
    board:histogram("weights", flare.tensor{0, 1, 2, 4, 4, 0 / 0}, 2, {bins = 4})
    board:text("note", "**näive**", 3)
    board:graph(net(), flare.randn(5, 3))
    board:close()
    assert.equal(folder .. "/events.out.tfevents.1700000000.flare", board.path)
    local bytes = require "spec.support.tensorboard_data":gsub("%s", "")
      :gsub("%x%x", function(hex) return string.char(tonumber(hex, 16)) end)
    local file <close> = assert(io.open(board.path, "rb"))
    assert.is_true(file:read "a" == bytes)
  end)

  it("writes images as PNG", function()
    local encode = require "flare.log.png"
    local x = flare.arange(0, 24, {dtype = "u8"}):view(2, 4, 3)
    local width, height, kind, rows = decode(encode(x))
    assert.same({4, 2, 2}, {width, height, kind})
    assert.same({12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, rows[2])
    flare.manual_seed(1)
    local wide = flare.randint(0, 255, {70, 90, 1}):to "u8"
    width, height, kind, rows = decode(encode(wide))
    assert.same({90, 70, 0}, {width, height, kind})
    assert.same(wide:select(1, 70):reshape(-1):tolist(), rows[70])
  end)

  it("follows tensors from module to module, and operators between them", function()
    local graph = require "flare.log.graph"
    local model = nn.Sequential(nn.Linear(3, 4), Residual(), Residual())
    local nodes = graph(model, flare.randn(2, 3))
    local text = {}
    for k, node in ipairs(nodes) do
      text[k] = ("%s %s <- %s"):format(node.name, node.op, table.concat(node.inputs, " "))
    end
    assert.same({"input Placeholder <- ", "Sequential/1 Linear <- input",
      "Sequential/2/linear Linear <- Sequential/1",
      "Sequential/3/add add <- ",
      "Sequential/3/linear Linear <- Sequential/3/add",
      "Sequential/add add <- ", "output Identity <- Sequential/add"}, text)
    assert.is_true(model.training)
    assert.is_nil(rawget(model[1], "_hooks"))
  end)

  it("refuses what it cannot show", function()
    local board = assert(flare.log.tensorboard(folder))
    assert.match("'loss' must be a number, got string",
      message(function() board:scalar("loss", "x", 1) end))
    assert.match("image: %(C, H, W%) with 1, 3 or 4 channels is expected, got %(2, 5, 5%)",
      message(function() board:image("x", flare.zeros(2, 5, 5), 1) end))
    assert.match("needs a table with a step", message(function() board:write{loss = 1} end))
    board:close()
    assert.match("is closed", message(function() board:scalar("loss", 1, 1) end))
    local _, problem = flare.log.tensorboard("/dev/null/x")
    assert.match("/dev/null", problem)
  end)

  it("is read by TensorBoard", function()
    local python = os.getenv "PYTHON" or "python3"
    if not os.execute(python .. " -c 'import tensorboard' 2>/dev/null") then
      return pending(python .. " has no TensorBoard (PYTHON names another)")
    end
    local board = assert(flare.log.tensorboard(folder, {now = clock}))
    for step = 1, 4 do board:scalar("loss", 1 / step, step) end
    board:close()
    board = assert(flare.log.tensorboard(folder, {after = 2}))
    board:scalar("loss", 0.125, 3)
    board:histogram("noise", flare.arange(1, 101), 3)
    board:histogram("equal", flare.ones(3, 3), 3)
    board:histogram("none", flare.zeros(0), 3)
    board:image("digits", flare.data.digits(5), 3)
    board:image("colours", flare.rand(3, 10, 12), 4)
    board:text("note", "a *text*", 3)
    board:graph(net(), flare.randn(5, 3))
    board:close()
    local out = tree.output(("%s spec/support/tensorboard_read.py %s 2>/dev/null"):format(python,
      folder))
    local read = assert(core.json.decode(out))
    assert.same({{1, 1}, {2, 0.5}, {3, 0.125}}, read.scalars.loss)
    assert.same({1, 100, 100, 5050, 338350, 100, 65}, read.histograms.noise)
    assert.same({1, 1, 9, 9, 9, 9, 2}, read.histograms.equal)
    assert.equal(0, read.histograms.none[3])
    assert.same({{3, 84, 56}}, read.images.digits)
    assert.same({{4, 12, 10}}, read.images.colours)
    assert.same({"a *text*"}, read.texts["note/text_summary"])
    assert.same({"Sequential/1", "Linear", {"input"}}, read.nodes[2])
  end)
end)
