-- Collectives of a process that is alone.
require "spec.support.declare"("comm", describe, it)
