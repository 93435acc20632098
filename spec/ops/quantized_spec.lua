-- Quantised weights.
require "spec.support.declare"("quantized", describe, it)
