-- Convolutions and pooling.
require "spec.support.rows".declare("conv", describe, it)
