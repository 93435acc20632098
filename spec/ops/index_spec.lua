-- Reading and writing at positions.
require "spec.support.rows".declare("index", describe, it)
