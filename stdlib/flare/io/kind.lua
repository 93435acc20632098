--- Recognizes the format of a file by its first bytes. Messages about a file that a reader refuses
-- name the format, and the function or tool that reads it.
local M = {}

M.BYTES = 512 -- as many as M.describe needs

local PYTORCH = "a PyTorch file (pickled Python objects): flare.io.pt.load(path) reads tensors, "
  .. "and refuses the rest"

-- Beginnings of files, and what they are.
local magics = {
  {"\x93NUMPY", "a NumPy array: flare.io.npy.load(path) reads it"},
  {"\x1f\x8b", "compressed by gzip: unpack it first (gunzip); flare.core.gunzip(path) gives its "
    .. "contents, and flare.data.idx.read(path) reads packed idx files"},
  {"GGUF", "a GGUF model (llama.cpp): flare.io.gguf.load(path) reads it"},
  {"GGML", "a GGML model (llama.cpp), which flare does not read"},
  {"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras, h5py), which flare does not read"},
  {"\x89PNG\r\n", "a PNG image: flare.data.images.read(path) reads it"},
  {"\xff\xd8\xff", "a JPEG image: flare.data.images.read(path) reads it"},
  {"fLaC", "a FLAC file, which flare does not read: convert it to WAV (ffmpeg -i x.flac x.wav)"},
  {"ID3", "an MP3 file, which flare does not read: convert it to WAV (ffmpeg -i x.mp3 x.wav)"},
  {"OggS", "an Ogg file, which flare does not read: convert it to WAV (ffmpeg -i x.ogg x.wav)"},
  {"RIFX", "a big-endian WAV file, which flare does not read"},
  {"RF64", "a WAV file of more than 4 GiB (RF64), which flare does not read"},
  {"GIF8", "a GIF image, which flare does not read"},
  {"%PDF", "a PDF document"},
  {"PAR1", "a Parquet file, which flare does not read: convert it to JSON lines for "
    .. "flare.data.jsonl, or to CSV"},
  {"ARROW1", "an Arrow file, which flare does not read"},
  {"SQLite format 3\0", "an SQLite database"},
  {"MATLAB 5.0", "a MATLAB file, which flare does not read"},
  {"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it first"},
  {"\xfd7zXZ\0", "compressed by xz: unpack it first"},
  {"BZh", "compressed by bzip2: unpack it first"},
  {"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"},
  {"\x7fELF", "a program or library (ELF)"},
  {"\x1bLua", "compiled Lua code"},
  {"version https://git-lfs", "a Git LFS pointer, not the file that it stands for: git lfs pull "
    .. "fetches that"},
  {"{", "JSON text: flare.core.json.decode reads it"},
}
for dims = 1, 8 do -- an idx file's type is one of these
  for _, kind in ipairs {8, 9, 11, 12, 13, 14} do
    magics[#magics + 1] = {string.char(0, 0, kind, dims),
                           "an idx file (MNIST): flare.data.idx.read(path) reads it"}
  end
end

local function is_text(head)
  return #head > 0 and not head:find "[%z\1-\8\14-\26\28-\31\127]"
    -- the last character may be cut off
    and (utf8.len(head) or utf8.len(head, 1, -2) or utf8.len(head, 1, -3) or utf8.len(head, 1, -4))
end

-- A zip archive by its first member's name.
local function zip_kind(head, ending)
  local name = #head >= 30 and head:sub(31, 30 + string.unpack("<I2", head, 27)) or ""
  if name:find "data%.pkl$" or name:find "/%.format_version$" or name:find "/byteorder$"
     or ending == "pt" or ending == "pth" or ending == "ckpt" then
    return PYTORCH
  elseif name:sub(-4) == ".npy" then
    return "an archive of NumPy arrays: flare.io.npz.load(path) reads it"
  elseif ending == "npz" then
    return "a zip archive"
  end
  return "a zip archive: unpack it first, or flare.io.npz.load(path) if it holds NumPy arrays"
end

local function text_kind(head, ending)
  local start = head:match "^%s*(.*)":lower()
  if start:find "^<!doctype html" or start:find "^<html" then
    return "an HTML page, perhaps the answer of a server instead of a download"
  elseif start:find "^<%?xml" or start:find "^<" then
    return "XML or HTML text"
  elseif ending == "lua" then
    return "a Lua script: dofile(path) or require runs it"
  elseif ending == "csv" or ending == "tsv" then
    return "a table of text: flare.data.csv(path) reads it"
  end
  return "text: flare.data.text.load(path) or flare.data.csv(path) reads it"
end

-- An ONNX model begins with its version (field 1), then a string or the graph.
local function is_onnx(head)
  local version, tag = head:byte(2, 3)
  return head:byte(1) == 8 and version and version < 32
    and (tag == 0x12 or tag == 0x3a or tag == 0x42 or tag == 0x1a or tag == 0x22)
end

--- The format of a file.
-- @param head its first bytes, up to M.BYTES
-- @param path its name, whose extension is used as well
-- @return a phrase such as "a zip archive: ...", or nil if it is not known
function M.describe(head, path)
  local ending = path and path:lower():match "%.(%w+)$"
  if head == "" then return "empty" end
  if head:sub(1, 4) == "PK\3\4" then return zip_kind(head, ending) end
  if head:sub(1, 4) == "PK\5\6" then return "an empty zip archive" end
  if head:find "^\x80[\1-\5]" then return PYTORCH end
  if head:byte(9) == 0x7b and not is_text(head:sub(1, 9)) then
    return "a safetensors file: flare.io.safetensors.load(path) or flare.load(path) reads it"
  end
  if head:sub(258, 262) == "ustar" then return "a tar archive: unpack it first" end
  if head:sub(5, 8) == "TFL3" then return "a TensorFlow Lite model, which flare does not read" end
  for _, magic in ipairs(magics) do
    if head:sub(1, #magic[1]) == magic[1] then return magic[2] end
  end
  if is_onnx(head) or ending == "onnx" then
    return "an ONNX model: flare.onnx.load(path) reads it"
  end
  if is_text(head) then return text_kind(head, ending) end
end

--- The same as the end of a message: "; it is ..." or "".
function M.hint(head, path)
  local what = M.describe(head, path)
  return what and "; the file is " .. what or ""
end

return M
