--- Screens of the documentation, docs/images/*.svg: sessions behind a pseudo-terminal and cells of
-- a notebook, as they are seen. `build/flare spec/support/screens.lua` writes them;
-- spec/screens_spec.lua captures them again and compares.
local Session = require "spec.support.session"
local core = require "flare.core"
local picture = require "spec.support.screen_svg"
local tree = require "spec.support.tree"

local M = {folder = "docs/images"}

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

local function write(path, text)
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
end

-- A folder with files for a session.
local function folder_with(files)
  local folder = tree.output "mktemp -d":gsub("\n", "")
  for name, text in pairs(files) do write(folder .. "/" .. name, text) end
  return folder
end

-- Runs f in a session in a folder with these files; the picture of its last screen, nil and why
-- where there is no terminal.
local function session(files, options, f)
  local folder = folder_with(files)
  options.setup = ("cd '%s'; export COLUMNS=80 COLORTERM=truecolor; %s"):format(folder,
    options.setup or "")
  local s, problem = Session.open(options)
  if not s then return nil, problem end
  f(s)
  local text = picture.terminal(s.screen)
  s:close()
  os.execute("rm -r " .. folder)
  return text
end

-- --- what is shown ---

local made = {}

function made.prompt()
  return session({}, {rows = 36}, function(s)
    s:enter "net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))"
    s:enter "x = flare.arange(1, 7):view(2, 3):to 'f32'"
    s:enter "net(x)"
    s:enter "x:softmax(2) -- a table that fits"
    s:enter ":plot (flare.arange(0, 60) / 6):sin()"
    s:keys "x:cum\t"
  end)
end

local training = [[
local flare = require "flare"
local w = flare.ones(3, 2)
local function loss(x, y)
  local predicted = x:matmul(w)
  return (predicted - y):square():mean()
end
local x, y = flare.ones(4, 3), flare.ones(3, 2)
for step = 1, 3 do
  print(step, loss(x, y))
end
]]

function made.debugging()
  return session({["fit.lua"] = training}, {rows = 32, arguments = "-d fit.lua"}, function(s)
    s:enter ":where"
    s:enter ":locals"
    s:enter "y = flare.ones(4, 2)"
    s:enter "predicted - y"
    s:keys ":continue predicted - y"
  end)
end

local job = [[
local flare = require "flare"
local w = flare.ones(3, {requires_grad = true})
local optimizer = flare.optim.SGD({w}, {lr = 0})
local step, done = 0, false
while not done and os.clock() < 60 do
  local loss = w:square():sum()
  loss:backward()
  optimizer:step(); optimizer:zero_grad(); step = step + 1
end
]]

-- The line at which the job is stopped first differs, so the screen begins behind that.
function made.attach()
  return session({["job.lua"] = job}, {rows = 24, arguments = "attach $pid",
    setup = '"$program" job.lua & pid=$!; while ! [ -S /tmp/flare-$(id -u)/$pid ] && '
      .. "! [ -S \"$XDG_RUNTIME_DIR/flare/$pid\" ]; do sleep 0.05; done;"}, function(s)
    s:enter ":break 7"
    s:enter ":c"
    s.screen.cells, s.screen.row = {}, 1
    for r = 1, s.screen.rows do s.screen.cells[r] = {} end
    s:enter ":where"
    s:enter "loss, optimizer.groups[1].lr"
    s:enter "optimizer.groups[1].lr = 0.25"
    s:enter ":clear"
    s:enter "done = true"
    s:keys ":quit"
  end)
end

function made.training()
  return session({["train.lua"] = [[
    local flare = require "flare"
    local clock, now = require "flare.log.clock", 0
    function clock.now() now = now + 0.02 return now end -- luacheck: ignore
    local bar = flare.log.progress{total = 300, label = "train", curve = "loss"}
    for step = 1, 300 do
      local loss = 2.3 * math.exp(-step / 80) + 0.12 + 0.1 * math.sin(step * step) / (1 + step / 60)
      bar:update(step, {loss = loss})
    end
    bar:finish()]]}, {rows = 24, arguments = "train.lua", wait = false}, function(s)
    s:wait(function(screen) return s.ended or screen:text():find "100%%" end, "the end")
    while not s.ended do
      local bytes = s.terminal:read(0.2)
      s.ended = not bytes
      if bytes then s.screen:feed(bytes) end
    end
  end)
end

-- Cells of a notebook.
local cells = {
  "local x, y = flare.data.digits(6, {seed = 1})\ndisplay.image(x:view(6, 1, 28, 28))",
  "flare.arange(1, 9):view(2, 4):to 'f32':log()",
  ":plot (flare.arange(0, 100) / 8):sin()",
  "nn.Linear(3, 2)(flare.ones(2, 4))",
}

-- Runs the cells as the kernel does; writes what they show as JSON.
local driver = [[
local list, out = {}, nil
local core = require "flare.core"
local json = core.json
local cell = require "flare.repl.jupyter.cell".open {
  emit = function(_, text) out[#out + 1] = {text = text} end,
  publish = function(_, bundle) out[#out + 1] = {bundle = bundle} end}
local function show(bundle) out[#out + 1] = {bundle = bundle} end
flare = require "flare"
nn = flare.nn
for k, text in ipairs(json.decode(core.file.read(arg[1]))) do
  out = {}
  local ok, last = cell:execute(text, show)
  if not ok then out[1] = {problem = last} elseif last then show(last) end
  list[k] = {text = text, out = json.array(out)}
end
local file <close> = assert(io.open(arg[2], "w"))
file:write(json.encode(list))
]]

function made.notebook()
  local folder = folder_with {["driver.lua"] = driver,
                              ["cells.json"] = core.json.encode(core.json.array(cells))}
  local said = tree.output(("cd %s; '%s' driver.lua cells.json out 2>&1"):format(folder,
    tree.output(("realpath '%s'"):format(program)):gsub("\n", "")))
  local text = core.file.read(folder .. "/out")
  os.execute("rm -r " .. folder)
  return picture.notebook(assert(core.json.decode(text or said), said))
end

M.names = {"attach", "debugging", "notebook", "prompt", "training"}

--- The picture of that name, an SVG; nil and why it cannot be made here.
function M.make(name) return made[name]() end

--- A picture without what differs from run to run and between machines: the number of a process,
-- the places of what is behind it, and the compression of images.
function M.settled(text)
  return (text:gsub("%f[%d]%d+&gt;", "48213&gt;"):gsub(' x="[%d.]+"', "")
    :gsub(' textLength="[%d.]+"', ""):gsub(" +</text>", "</text>"):gsub("base64,[%w+/=]+", ""))
end

if ... ~= "spec.support.screens" then
  for _, name in ipairs(M.names) do
    write(("%s/%s.svg"):format(M.folder, name), assert(M.make(name)))
  end
end

return M
