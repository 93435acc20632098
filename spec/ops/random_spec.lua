-- Random numbers.
require "spec.support.rows".declare("random", describe, it)
