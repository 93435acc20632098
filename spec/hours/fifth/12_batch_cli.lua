-- Inference as a command: pictures of a folder in, lines of JSON out; a bad file is reported.
local flare = require "flare"
local nn, data, file = flare.nn, flare.data, flare.core.file
flare.manual_seed(12)

local folder = os.tmpname()
os.remove(folder)
for _, name in ipairs{"", "/in"} do assert(file.mkdir(folder .. name)) end
local x, y = data.digits(600)
local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64, {act = "relu"}), nn.Linear(64, 10))
local optimizer = flare.optim.Adam(model, {lr = 3e-3})
for _ = 1, 8 do
  for a, b in data.Loader(data.Tensors(x, y), {batch = 50, shuffle = true}):epoch() do
    optimizer:zero_grad()
    flare.cross_entropy(model(a), b):backward()
    optimizer:step()
  end
end
assert(flare.io.safetensors.save(folder .. "/model.safetensors", model:state_dict()))
local held, truth = data.digits(20, {seed = 5})
for k = 1, 20 do
  local name = ("%s/in/%02d-%d.png"):format(folder, k, truth[k]:item())
  assert(data.images.write(name, (held[k] * 255):to "u8"))
end
assert(file.write_atomic(folder .. "/in/21-bad.png", "this is no picture"))
assert(file.write_atomic(folder .. "/classify.lua", [==[
local flare = require "flare"
local nn, images, file = flare.nn, flare.data.images, flare.core.file
local o = flare.args(arg, "Classifies the pictures of a folder.",
  {input = "in", model = "model.safetensors", batch = 8, threads = 1})
flare.threads(o.threads)
local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64, {act = "relu"}), nn.Linear(64, 10))
model:load_state_dict((assert(flare.io.safetensors.load(o.model)))):eval()
local resize = flare.data.transforms.Resize(28)
local names, batch = {}, {}
local function flush()
  if #batch == 0 then return end
  local p = flare.no_grad(function() return model(flare.stack(batch)):softmax(2) end)
  local best, at = p:max(2)
  for k, name in ipairs(names) do
    print(flare.core.json.encode{file = name, class = at[k]:item(), p = best[k]:item()})
  end
  names, batch = {}, {}
end
local list = assert(file.list(o.input))
table.sort(list)
for _, name in ipairs(list) do
  local image, why = images.read(o.input .. "/" .. name, {channels = 1})
  if image then
    names[#names + 1], batch[#batch + 1] = name, resize(image:float() / 255)
    if #batch == o.batch then flush() end
  else
    io.stderr:write(why, "\n")
  end
end
flush()
]==]))
local pipe = io.popen(("cd %s && flare classify.lua 2> errors"):format(folder))
local right, lines = 0, 0
for line in pipe:lines() do
  local answer = flare.core.json.decode(line)
  lines = lines + 1
  if answer.file:match "%-(%d+)%." == tostring(answer.class) then right = right + 1 end
end
pipe:close()
local errors = file.read(folder .. "/errors")
print(lines, right, errors)
assert(lines == 20 and right >= 16 and errors:find("21-bad.png", 1, true))
os.execute("rm -r " .. folder)
