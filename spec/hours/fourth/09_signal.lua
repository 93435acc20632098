-- Signals: a filter by convolution and by FFT, spectra, noise removed, pictures and a sound file.
local flare = require "flare"
flare.manual_seed(9)

local rate = 8000
local time = flare.arange(0, rate):float() / rate
local clean = (2 * math.pi * 440 * time):sin() + 0.5 * (2 * math.pi * 1200 * time):sin()
local noisy = clean + 0.5 * flare.randn(rate)

-- the two tones are the peaks of the spectrum
local spectrum = noisy:rfft():abs()
local _, peaks = spectrum:topk(2)
local hertz = flare.rfftfreq(rate, 1 / rate)[peaks]
print(hertz)
assert(hertz:sort():eq(flare.tensor{440, 1200}):all():item())

-- a low pass of 65 taps, by convolution and by FFT
local taps = 65
local n = flare.arange(0, taps):float() - (taps - 1) / 2
local kernel = (2 * 800 / rate) * (2 * 800 / rate * n):sinc()
  * flare.hamming_window(taps, {periodic = false})
local low = flare.conv(noisy:view(1, 1, -1), kernel:view(1, 1, -1), nil, {padding = 32}):flatten()
local length = rate + taps - 1
local by_fft = (noisy:rfft{n = length} * kernel:rfft{n = length}):irfft{n = length}
by_fft = by_fft[{{33, 32 + rate}}]
assert((low - by_fft):abs():max():item() < 1e-3)
local after = low:rfft():abs()
assert((after[1201] / spectrum[1201]):item() < 0.05)

-- spectral gating
local window = flare.hann_window(256)
local s = noisy:stft{n_fft = 256, window = window}
local size = s:abs()
local gate = size:gt(3 * size:median()):float()
local quiet = (s * gate:to(s.dtype)):istft{n_fft = 256, window = window, length = rate}
local function error_of(x) return (x - clean):square():mean():item() end
print("mean square error", error_of(noisy), error_of(quiet))
assert(error_of(quiet) < error_of(noisy) / 2)

local name = os.tmpname()
assert(size:log1p():heat(name .. ".png"))
assert(flare.stack({noisy[{{1, 200}}], quiet[{{1, 200}}]}):plot(name .. ".svg"))
assert(flare.data.audio.write(name .. ".wav", quiet / quiet:abs():max(), rate))
local x, r = assert(flare.data.audio.read(name .. ".wav"))
assert(r == rate and x:size(2) == rate)
print(flare.data.images.read(name .. ".png").shape)
for _, ending in ipairs{"", ".png", ".svg", ".wav"} do os.remove(name .. ending) end

-- correlation finds a delay
local delayed = flare.cat({flare.zeros(123), noisy[{{1, rate - 123}}]}, 1)
local product = delayed:rfft{n = 2 * rate} * noisy:rfft{n = 2 * rate}:conj()
assert(product:irfft{n = 2 * rate}:argmax():item() - 1 == 123)
print "ok"
