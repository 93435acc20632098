-- Convolutions and pooling.
require "spec.support.declare"("conv", describe, it)
