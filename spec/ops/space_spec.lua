-- Dims of space in another form or size, and the poolings that are composed.
require "spec.support.declare"("space", describe, it)
