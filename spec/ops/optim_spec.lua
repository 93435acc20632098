-- Optimizer steps.
require "spec.support.declare"("optim", describe, it)
