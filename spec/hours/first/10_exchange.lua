-- Weights and arrays to and from other programs: safetensors, npz, PyTorch's names, ONNX.
local flare = require "flare"
local nn = flare.nn
local safetensors = flare.io.safetensors
flare.manual_seed(8)

local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))

local Tagger = flare.class("Tagger", nn.Module)
function Tagger:init()
  self.embedding = nn.Embedding(50, 16)
  self.encoder = nn.GRU(16, 12, {layers = 2, bidirectional = true, batch_first = true})
  self.attention = nn.MultiHeadAttention(24, 4)
  self.norm = nn.LayerNorm(24)
  self.heads = nn.ModuleList{nn.Linear(24, 5), nn.Linear(24, 3)}
end
function Tagger:forward(x)
  local y = self.encoder(self.embedding(x))
  y = self.norm(y + self.attention(y))
  return self.heads[1](y), self.heads[2](y)
end

local model = Tagger()
model:eval()
local x = flare.randint(1, 51, {2, 6})
local a, b = model(x)

-- in PyTorch's names and back
local state = nn.to_pytorch(model)
assert(state["encoder.weight_ih_l0_reverse"] and state["heads.0.weight"]
       and state["attention.in_proj_weight"])
assert(safetensors.save(folder .. "/tagger.safetensors", state, {format = "pt"}))
local other = Tagger()
other:eval()
local tensors, metadata = assert(safetensors.load(folder .. "/tagger.safetensors"))
print(metadata.format)
other:load_state_dict(nn.from_pytorch(tensors))
local a2, b2 = other(x)
assert(a:eq(a2):all():item() and b:eq(b2):all():item())

-- a wrong file
local wrong = nn.Linear(4, 4)
print(pcall(wrong.load_state_dict, wrong, tensors))

-- arrays of NumPy
assert(flare.save(folder .. "/set.npz", {x = flare.rand(10, 3), y = flare.randint(1, 4, {10})}))
local set = assert(flare.load(folder .. "/set.npz"))
print(set.x.shape, set.y.dtype)
assert(set.x:size(1) == 10 and set.y.dtype == "i64")
assert(flare.save(folder .. "/w.npy", flare.arange(6):view(2, 3):to("f16")))
assert(flare.load(folder .. "/w.npy").dtype == "f16")

-- python reads them, if it is here
local python = os.getenv "PYTHON"
if python and python ~= "" then
  local script = [[
import sys, torch, safetensors.torch
folder = sys.argv[1]
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.encoder = torch.nn.GRU(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.attention = torch.nn.MultiheadAttention(24, 4, batch_first=True)
        self.norm = torch.nn.LayerNorm(24)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(24, 5), torch.nn.Linear(24, 3)])
    def forward(self, x):
        y, _ = self.encoder(self.embedding(x))
        y = self.norm(y + self.attention(y, y, y)[0])
        return self.heads[0](y), self.heads[1](y)
m = Tagger().eval()
m.load_state_dict(safetensors.torch.load_file(folder + "/tagger.safetensors"))
x = safetensors.torch.load_file(folder + "/x.safetensors")
a, b = m(x["x"] - 1)
print(float((a - x["a"]).abs().max().detach() + (b - x["b"]).abs().max().detach()))
torch.save(m.state_dict(), folder + "/tagger.pt")
]]
  assert(flare.core.file.write_atomic(folder .. "/check.py", script))
  assert(safetensors.save(folder .. "/x.safetensors", {x = x, a = a, b = b}))
  local pipe = io.popen(("%s %s/check.py %s"):format(python, folder, folder))
  local difference = tonumber(pipe:read "a")
  pipe:close()
  print("difference to PyTorch:", difference)
  assert(difference < 1e-5)
  other:load_state_dict(nn.from_pytorch(assert(flare.load(folder .. "/tagger.pt"))))
  assert(other(x):eq(a):all():item())
end
os.execute("rm -r " .. folder)
print "ok"
