-- The elementwise rows: unary, tests, binary, comparisons, ternary.
require "spec.support.declare"("elementwise", describe, it)
