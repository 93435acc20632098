-- Random numbers.
require "spec.support.declare"("random", describe, it)
