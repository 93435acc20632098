--- flare doctor: what this machine and this build have.
local core = require "flare.core"
local cuda = require "flare.cuda"
local terminal = require "flare.repl.terminal"

-- What a function of an optional library gave: whether the library is there.
local function has(_, message) return not (message or ""):find("built without", 1, true) end

return function(arguments)
  if arguments[1] then
    local asked = arguments[1] == "--help" or arguments[1] == "-h"
    local out = asked and io.stdout or io.stderr
    out:write("usage: flare doctor: which devices and libraries are here\n")
    return asked and 0 or 1
  end
  print(("flare %s, %s"):format(core.version, _VERSION))
  for _, name in ipairs(core.devices()) do print("device   " .. name) end
  print("threads  " .. core.threads())
  io.write(core.backend_query("cpu", "doctor"))
  for _, library in ipairs {
    {has(core.crc32 ""), "zlib: .gz and .npz files"},
    {has(core.png_decode("", 1)), "libpng: PNG images"},
    {has(core.jpeg_decode("", 1, 1)), "libjpeg-turbo: JPEG images"},
    {has(core.protobuf("", {})), "nanopb: ONNX models"},
    {terminal.utf8proc, "utf8proc: the widths of characters at the prompt"},
    {core.http.here(), "libmicrohttpd: flare serve"},
    {core.zmq(), "libzmq: flare jupyter"},
    {core.text.repair ~= nil, "PCRE2 and utf8proc: tokenizers"},
    {pcall(core.inv, core.eye(1)), "LAPACK: linear algebra"}} do
    print(("%-8s %s"):format(library[1] and "yes" or "no", library[2]))
  end
  io.write(cuda.report())
  return 0
end
