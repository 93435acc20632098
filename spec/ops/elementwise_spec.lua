-- The elementwise rows: unary, tests, binary, comparisons, ternary.
require "spec.support.rows".declare("elementwise", describe, it)
