-- Fourier transforms and windows.
require "spec.support.declare"("fft", describe, it)
