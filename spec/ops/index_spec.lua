-- Reading and writing at positions.
require "spec.support.declare"("index", describe, it)
