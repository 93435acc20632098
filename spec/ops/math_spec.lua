-- Rows composed of others for mathematics and statistics.
require "spec.support.declare"("math", describe, it)
