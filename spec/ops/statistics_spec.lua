-- What is counted, ranked and measured.
require "spec.support.declare"("statistics", describe, it)
