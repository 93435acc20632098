-- The rows that make tensors, move elements or only look at them otherwise.
require "spec.support.declare"("shape", describe, it)
