-- Reductions, sorts, products and softmax.
require "spec.support.declare"("reduce", describe, it)
