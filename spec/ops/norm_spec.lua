-- Normalisations and losses.
require "spec.support.declare"("norm", describe, it)
