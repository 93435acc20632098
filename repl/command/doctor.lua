--- flare doctor: what this machine and this build have.
local core = require "flare.core"
local cuda = require "flare.cuda"

return function()
  print(("flare %s, %s"):format(core.version, _VERSION))
  for _, name in ipairs(core.devices()) do print("device   " .. name) end
  print("threads  " .. core.threads())
  for _, library in ipairs {{"json", "jansson: safetensors, checkpoints"},
      {"gunzip", "zlib: .gz files"}, {"protobuf", "nanopb: ONNX models"}} do
    print(("%-8s %s"):format(core[library[1]] and "yes" or "no", library[2]))
  end
  io.write(cuda.report())
  return 0
end
