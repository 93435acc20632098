-- Optimizer steps.
require "spec.support.rows".declare("optim", describe, it)
