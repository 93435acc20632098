--- flare.io: safetensors, NumPy's files, trees of values, checkpoints.
require "flare"

return require "flare.lazy"("flare.io", {}, {
  safetensors = "flare.io.safetensors", tree = "flare.io.tree", Checkpoint = "flare.io.checkpoint",
  npy = "flare.io.npy", npz = "flare.io.npz",
})
