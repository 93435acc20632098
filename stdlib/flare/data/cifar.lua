--- The binary files of CIFAR-10 and CIFAR-100: records of a label, or of a coarse and a fine one,
-- and an image of 3 x 32 x 32 bytes.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local PIXELS = 3 * 32 * 32

--- Reads one file or several, such as data_batch_1.bin to data_batch_5.bin, one after the other.
-- @param paths a path or a list of them
-- @param opts {classes = 10}: 10 or 100, the data set that the files are of
-- @return images (n, 3, 32, 32) as u8; labels (n) from 1, with 100 classes the fine ones; and, with
--   100 classes, the coarse labels (n). nil and a message
function M.read(paths, opts)
  local o = options.check("cifar.read", opts, {classes = 10})
  if o.classes ~= 10 and o.classes ~= 100 then
    fail("cifar.read: classes must be 10 or 100, got %s", tostring(o.classes))
  end
  if type(paths) == "string" then paths = {paths} end
  if type(paths) ~= "table" or #paths == 0 then
    fail("cifar.read: a path or a list of paths is expected, got %s", options.kind(paths))
  end
  local labels = o.classes == 10 and 1 or 2
  local parts = {}
  for i, path in ipairs(paths) do
    local bytes, message = core.file.read(path)
    if not bytes then return nil, message end
    local record = labels + PIXELS
    if #bytes == 0 or #bytes % record ~= 0 then
      return nil, ("%s: not a file of CIFAR-%d: %d bytes are no multiple of its records of %d")
        :format(path, o.classes, #bytes, record)
    end
    parts[i] = core.from_bytes(bytes, "u8", {#bytes // record, record})
    local most = parts[i]:select(2, labels):amax():item()
    if most >= o.classes then
      return nil, ("%s: not a file of CIFAR-%d: a label is %d"):format(path, o.classes, most)
    end
  end
  local all = #parts == 1 and parts[1] or core.cat(parts, 1)
  local images = all:narrow(2, labels + 1, PIXELS):reshape(-1, 3, 32, 32)
  local function column(k) return all:select(2, k):to "i64" + 1 end
  if labels == 1 then return images, column(1) end
  return images, column(2), column(1)
end

return M
