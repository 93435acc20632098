-- A data set of tones and chirps, made when they are asked for, and their spectra.
local flare = require "flare"
local audio = flare.data.audio

local Tones = flare.class "Tones"
function Tones:init(n, seed) self.n, self.seed = n, seed end
function Tones:size() return self.n end
function Tones:get(i)
  local time = flare.arange(0, 8000) / 16000
  local class = i % 3 + 1
  local f = 300 + 100 * math.random()
  local phase
  if class == 1 then phase = time * f
  elseif class == 2 then phase = (time * f) + time ^ 2 * 1500
  else phase = time * f * 4 end
  local x = (phase * 2 * math.pi):sin() * 0.5 + 0.05 * flare.randn(8000)
  return audio.log_mel(x, {mels = 40, seconds = 0}), class
end
function Tones:describe() return "tones", self.n, self.seed end

return Tones
