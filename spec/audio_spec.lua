-- Sound: WAV files by libsndfile, other rates by torchaudio, spectra by transformers
-- (spec/support/audio_data.py), and what is refused.
local flare = require "flare"
local core, audio = flare.core, flare.data.audio
local refused = require("spec.support.expect").refused
local folder = "spec/data/audio/"
local peers = core.json.decode(core.file.read(folder .. "values.json"))

local function f64(values) return flare.tensor(values, {dtype = "f64"}) end
local function furthest(a, b) return (a:to "f64" - b:to "f64"):abs():amax():item() end

-- 0.5 sin(0.05 k + c) + 0.3 sin(0.7 k + 2 c), k from 1
local function signal(n, c)
  local k = flare.arange(1, n + 1):double()
  return (k * 0.05 + c):sin() * 0.5 + (k * 0.7 + 2 * c):sin() * 0.3
end

describe("WAV files", function()
  it("are read as libsndfile reads them", function()
    for name, p in pairs(peers.files) do
      if name ~= "mulaw" then
        local x, rate = assert(audio.read(folder .. name .. ".wav", {dtype = "f64"}))
        local want = f64(p.values)
        assert.equal(p.rate .. tostring(want.shape), rate .. tostring(x.shape), name)
        assert.equal(0, furthest(want, x), name)
        assert(furthest(want, assert(audio.read(folder .. name .. ".wav"))) < 6e-8, name)
      end
    end
    assert.match("mulaw.wav: not a good WAV file: mu%-law are not read",
                 select(2, audio.read(folder .. "mulaw.wav")))
  end)

  it("are written so that they read the same", function()
    local path = os.tmpname()
    local x = flare.stack({signal(31, 0), signal(31, 2)}, 1)
    for format, step in pairs{u8 = 2 ^ -7, i16 = 2 ^ -15, i24 = 2 ^ -23, i32 = 2 ^ -31, f64 = 0} do
      assert(audio.write(path, x, 16000, {format = format}))
      local y, rate = assert(audio.read(path, {dtype = "f64"}))
      assert.equal(16000, rate)
      assert(furthest(x, y) <= step / 2, format)
      assert(audio.write(path, y, 16000, {format = format}))
      assert.equal(0, furthest(y, assert(audio.read(path, {dtype = "f64"}))), format)
    end
    assert(audio.write(path, f64{-3, 1, 0.25}, 8000))
    assert.same({{-1, 1 - 2 ^ -15, 0.25}}, audio.read(path, {dtype = "f64"}):totable())
    assert(audio.write(path, flare.zeros(3, 0), 8000))
    assert.same({3, 0}, {table.unpack(audio.read(path).shape)})
    assert.match("NaN", select(2, audio.write(path, f64{0 / 0}, 8000)))
    -- as libsndfile writes them
    assert(audio.write(path, f64(peers.files.i16.values), 8002))
    assert.equal(core.file.read(folder .. "i16.wav"), core.file.read(path))
    os.remove(path)
  end)

  it("that end too early or contradict themselves are refused", function()
    for _, name in ipairs{"i16", "extf32"} do
      local whole = core.file.read(folder .. name .. ".wav")
      for n = 0, #whole - 1 do
        local x, message = audio.decode(whole:sub(1, n))
        assert(x == nil and message:find "^not a", name .. n)
      end
    end
    local whole = core.file.read(folder .. "i16.wav")
    local function with(at, text) return whole:sub(1, at - 1) .. text .. whole:sub(at + #text) end
    local at = assert(whole:find("data", 1, true))
    for says, bytes in pairs{
      ["integers of 12 bits"] = with(35, "\12"), ["0 channels"] = with(23, "\0"),
      ["at 0 Hz"] = with(25, "\0\0\0\0"), ["frames of 3 bytes"] = with(33, "\3"),
      ["format 0xabcd"] = with(21, "\xcd\xab"), ["there is no format"] = with(13, "fmx "),
      ["extensible format is unknown"] = with(21, "\xfe\xff"),
      ["a format %(fmt%) of 8 bytes"] = with(17, "\8"), ["end too early"] = with(at + 4, "\xff"),
      ["FLAC"] = "fLaC\0\0\0\34", ["PNG image"] = "\x89PNG\r\n\x1a\n    ",
    } do
      local x, message = audio.decode(bytes)
      assert.is_nil(x, says)
      assert.match(says, message)
    end
    -- of unknown size, from a pipe
    assert.equal(0, furthest(audio.decode(with(at + 4, "\xff\xff\xff\xff")), audio.decode(whole)))
  end)
end)

describe("sound", function()
  it("is resampled as torchaudio does it", function()
    for _, p in ipairs(peers.resample) do
      local x = signal(400, 3)
      local y = audio.resample(x, p.from, p.to)
      assert.equal(p.length, #y)
      local n = #p.values
      assert(furthest(f64(p.values), y:narrow(1, 1, n)) < 2e-7, p.from .. " " .. p.to)
      local both = audio.resample(flare.stack({x * 2, x}, 1):float(), p.from, p.to)
      assert.equal("f32(2, " .. p.length .. ")", both.dtype .. tostring(both.shape))
      assert(furthest(both[2], y) < 1e-6)
    end
    local x = signal(9, 0)
    assert.equal(x, audio.resample(x, 8000, 8000))
  end)

  it("has the log-mel spectra of Whisper", function()
    for _, p in ipairs(peers.mel) do
      local x = signal(p.samples, 0):float()
      local y = audio.log_mel(x, {mels = p.mels})
      assert.same(p.shape, {table.unpack(y.shape)})
      local got = y:narrow(2, 1, p.frames)
      -- f32 leaves rounding of the strongest frequencies in the weakest: 4e-5 there, 2e-5 here
      assert(furthest(f64(p.values), got) < 6e-5)
      assert(furthest(f64(p.exact), got) < 3e-5)
      local exact = audio.log_mel(x:double(), {mels = p.mels, seconds = 2})
      assert(furthest(f64(p.exact), exact:narrow(2, 1, p.frames)) < 1e-5)
      assert(math.abs(y:narrow(2, p.frames + 2, 9):amax():item() - p.rest) < 1e-5)
      local two = audio.log_mel(flare.stack({x * 0.1, x}, 1), {mels = p.mels, seconds = 1})
      assert.same({2, p.mels, 100}, {table.unpack(two.shape)})
      assert(furthest(two[2]:narrow(2, 1, p.frames), got) < 1e-6)
      assert.equal(p.samples // 160, audio.log_mel(x, {seconds = 0}):size(2))
    end
  end)

  it("refuses wrong calls", function()
    refused("floats (..., time) are expected, got i64 (3)", audio.resample, flare.arange(3), 2, 3)
    refused("rolloff must be above 0", audio.resample, flare.ones(3), 2, 3, {rolloff = 0})
    refused("3 samples are too few for windows of 400", audio.log_mel, flare.ones(3),
            {seconds = 0})
    refused("there is no format \"i12\"", audio.encode, flare.ones(3), 8000, {format = "i12"})
    refused("rate must be an integer of at least 1", audio.encode, flare.ones(3), 0)
    refused("the path must be a string", audio.read, 3)
    refused("dtype must be f32 or f64, got i16", audio.decode, "", {dtype = "i16"})
    refused("low below high", audio.mel_filters, 3, 9, 8000, 4000, 100)
  end)
end)
