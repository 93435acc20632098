-- Reductions, sorts, products and softmax.
require "spec.support.rows".declare("reduce", describe, it)
