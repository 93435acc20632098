-- Attention and recurrent cells.
require "spec.support.rows".declare("attention", describe, it)
