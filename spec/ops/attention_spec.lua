-- Attention and recurrent cells.
require "spec.support.declare"("attention", describe, it)
