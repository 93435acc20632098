--- Sound as tensors (channels, time) of floats from -1 to 1: WAV files, other rates, log-mel
-- spectra.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local wav = require "flare.data.wav"

local M = {}

local function check(where, opts)
  local o = options.check(where, opts, {dtype = "f32"})
  if o.dtype ~= "f32" and o.dtype ~= "f64" then
    fail("%s: dtype must be f32 or f64, got %s", where, o.dtype)
  end
  return o
end

--- Decodes the bytes of a WAV file: integers of 8, 16, 24, 32 bits, floats of 32, 64 bits.
-- @param bytes a string
-- @param opts {dtype = "f32"}
-- @return a tensor (channels, time), from -1 to 1 where samples are integers, and the rate in Hz;
--   or nil and a message
function M.decode(bytes, opts)
  local o = check("audio.decode", opts)
  return wav.decode(options.text("audio.decode", "the bytes of a file", bytes), o.dtype)
end

--- Reads a WAV file.
-- @param opts those of audio.decode
-- @return a tensor (channels, time) and the rate in Hz, or nil and a message
function M.read(path, opts)
  local o = check("audio.read", opts)
  local bytes, message = core.file.read(options.text("audio.read", "the path", path))
  if not bytes then return nil, message end
  local x, rate = wav.decode(bytes, o.dtype)
  if not x then return nil, ("%s: %s"):format(path, rate) end
  return x, rate
end

-- Floats with one dim, time, or more.
local function signal(where, x, most)
  if not core.is_tensor(x) or not x.dtype:find "^b?f%d" or x:dim() < 1 or x:dim() > most then
    fail("%s: floats (%stime) are expected, got %s", where, most == 2 and "channels, " or "..., ",
         core.is_tensor(x) and x.dtype .. " " .. tostring(x.shape) or options.kind(x))
  end
  return x
end

--- The bytes of a WAV file.
-- @param x floats (channels, time) or (time); formats of integers clip them to -1 to 1
-- @param rate in Hz
-- @param opts {format = "i16"}: or "u8", "i24", "i32", "f32", "f64"
-- @return a string, or nil and a message
function M.encode(x, rate, opts)
  local where = "audio.encode"
  local o = options.check(where, opts, {format = "i16"})
  signal(where, x, 2)
  if options.count(where, "rate", rate) > 0xffffffff then fail("%s: rate is too large", where) end
  if not wav.formats[o.format] then
    fail("%s: there is no format %q%s", where, o.format, options.hint(o.format, wav.formats))
  end
  x = x:detach():to "cpu"
  if x:dim() == 1 then x = x:unsqueeze(1) end
  if x:size(1) < 1 or x:size(1) > 0xffff // 8 then
    fail("%s: a WAV file has 1 to %d channels, got %d", where, 0xffff // 8, x:size(1))
  end
  return wav.encode(x, math.tointeger(rate), o.format)
end

--- Writes a WAV file, atomically.
-- @param x, rate, opts as for audio.encode
-- @return true, or nil and a message
function M.write(path, x, rate, opts)
  options.text("audio.write", "the path", path)
  local bytes, message = M.encode(x, rate, opts)
  if not bytes then return nil, ("%s: %s"):format(path, message) end
  return core.file.write_atomic(path, bytes)
end

-- A windowed sinc for each of the `to` phases of the result, (to, 1, taps), and its reach. The
-- frequencies kept are those below a share `rolloff` of what both rates hold; `zeros` of the sinc
-- are on each side, under a Hann window.
local function filters(from, to, zeros, rolloff)
  local base = math.min(from, to) * rolloff
  local reach = math.ceil(zeros * from / base)
  local f64 = {dtype = "f64"}
  local taps = core.arange(-reach, reach + from, f64):view(1, -1) / from
  local phases = core.arange(0, to, f64):view(-1, 1) / to
  local t = ((taps - phases) * base):clamp(-zeros, zeros)
  local window = (t * (math.pi / zeros / 2)):cos() ^ 2
  local angle = t * math.pi
  local sinc = core.where(t:eq(0), 1, angle:sin() / core.where(t:eq(0), 1, angle))
  return (sinc * window * (base / from)):unsqueeze(2), reach
end

local function divisor(a, b)
  while b > 0 do a, b = b, a % b end
  return a
end

--- Sound at another rate, by a sinc filter with a Hann window, as torchaudio's resample has it.
-- @param x floats (..., time)
-- @param from, to rates in Hz
-- @param opts {zeros = 6, rolloff = 0.99}: zeros of the sinc on each side; the share of the
--   frequencies that is kept
-- @return floats (..., ceil(time * to / from))
function M.resample(x, from, to, opts)
  local where = "audio.resample"
  local o = options.check(where, opts, {zeros = 6, rolloff = 0.99})
  signal(where, x, 8)
  from, to = options.count(where, "from", from), options.count(where, "to", to)
  options.count(where, "zeros", o.zeros)
  if not (o.rolloff > 0 and o.rolloff <= 1) then
    fail("%s: rolloff must be above 0 and at most 1, got %g", where, o.rolloff)
  end
  local common = divisor(from, to)
  from, to = from // common, to // common
  local time = x:size(-1)
  if from == to or time == 0 then return x end
  if from > 1 << 16 or to > 1 << 16 then
    fail("%s: the rates have no common divisor: a filter of %d phases is too large", where, to)
  end
  local kernel, reach = filters(from, to, o.zeros, o.rolloff)
  local shape = {table.unpack(x.shape)}
  local y = core.conv(x:reshape(-1, 1, time):pad({reach, reach + from}),
                      kernel:to{dtype = x.dtype, device = x.device}, nil, {stride = from})
  shape[#shape] = (time * to + from - 1) // from
  return y:transpose(2, 3):reshape(y:size(1), -1):narrow(2, 1, shape[#shape]):reshape(shape)
end

-- Slaney's mel scale: linear to 1000 Hz, logarithmic above.
local function to_mel(hz)
  return hz < 1000 and hz * 3 / 200 or 15 + math.log(hz / 1000) * 27 / math.log(6.4)
end
local function to_hz(mel)
  return mel < 15 and mel * 200 / 3 or 1000 * math.exp((mel - 15) * math.log(6.4) / 27)
end

--- Triangular filters on Slaney's mel scale, each with an area of 1 (in Hz).
-- @return (count, bins) of f64; bin k of `bins` is at (k - 1) / (bins - 1) of half the rate
function M.mel_filters(count, bins, rate, low, high)
  local where = "audio.mel_filters"
  options.count(where, "count", count)
  options.count(where, "bins", bins, 2)
  options.count(where, "rate", rate)
  low, high = low or 0, high or rate / 2
  if type(low) ~= "number" or type(high) ~= "number" or low < 0 or high <= low then
    fail("%s: low and high must be frequencies, low below high", where)
  end
  local edges = {}
  for k = 0, count + 1 do
    edges[k + 1] = to_hz(to_mel(low) + (to_mel(high) - to_mel(low)) * k / (count + 1))
  end
  local edge = core.tensor(edges, {dtype = "f64"}):view(-1, 1)
  local at = (core.arange(0, bins, {dtype = "f64"}) * (rate / 2 / (bins - 1))):view(1, -1)
  local left, mid, right = edge:narrow(1, 1, count), edge:narrow(1, 2, count),
                           edge:narrow(1, 3, count)
  local rise, fall = (at - left) / (mid - left), (right - at) / (right - mid)
  return rise:minimum(fall):clamp{min = 0} * (2 / (right - left))
end

--- Log-mel spectra as Whisper takes them: base-10 logarithms, at most 8 below the largest, then
-- moved and scaled to about -1 to 1.
-- @param x floats (time) or (batch, time), at 16 kHz
-- @param opts {mels = 80, seconds = 30, rate = 16000, n_fft = 400, hop = 160, high = 8000}: x is
--   cut or filled with zeros to so many seconds, 0: neither; high: the highest frequency
-- @return (mels, frames) or (batch, mels, frames)
function M.log_mel(x, opts)
  local where = "audio.log_mel"
  local o = options.check(where, opts, {mels = 80, seconds = 30, rate = 16000, n_fft = 400,
                                        hop = 160, high = 8000})
  for _, name in ipairs{"mels", "rate", "n_fft", "hop"} do options.count(where, name, o[name]) end
  signal(where, x, 2)
  local time, wanted = x:size(-1), math.floor(o.seconds * o.rate + 0.5)
  if o.seconds > 0 and time ~= wanted then
    x = time > wanted and x:narrow(-1, 1, wanted) or x:pad({0, wanted - time})
  end
  if x:size(-1) <= o.n_fft // 2 then
    fail("%s: %d samples are too few for windows of %d", where, x:size(-1), o.n_fft)
  end
  local window = core.hann_window(o.n_fft):to{dtype = x.dtype, device = x.device}
  local y = x:stft(window, o.n_fft, o.hop)
  y = y:narrow(-1, 1, y:size(-1) - 1):abs() ^ 2
  local bank = M.mel_filters(o.mels, o.n_fft // 2 + 1, o.rate, 0, o.high)
  y = core.matmul(bank:to{dtype = x.dtype, device = x.device}, y):clamp{min = 1e-10}:log10()
  return (y:maximum(y:amax{dims = {-2, -1}, keepdim = true} - 8) + 4) / 4
end

return M
