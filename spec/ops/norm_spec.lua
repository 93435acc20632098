-- Normalisations and losses.
require "spec.support.rows".declare("norm", describe, it)
