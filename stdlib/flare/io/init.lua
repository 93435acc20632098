--- flare.io: safetensors, files of NumPy, PyTorch, Torch7 and llama.cpp, trees of values,
-- checkpoints.
require "flare"

return require "flare.lazy"("flare.io", {}, {
  safetensors = "flare.io.safetensors", tree = "flare.io.tree", Checkpoint = "flare.io.checkpoint",
  npy = "flare.io.npy", npz = "flare.io.npz", pt = "flare.io.pt",
  gguf = "flare.io.gguf", t7 = "flare.io.t7",
})
