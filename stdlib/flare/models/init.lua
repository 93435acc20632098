--- flare.models: architectures of published models, under their published names, and the folders
-- that hold them.
--
--     local model = assert(flare.models.load "SmolLM2-135M")
--     print(table.concat(model:generate{ids = {1, 4093, 253}, max_tokens = 20}.ids, " "))
--
-- An architecture is one file; adding one is that file and its line in index.lua.
require "flare"

local files = {}
local index = require "flare.models.index"
for name, file in next, index do files[name] = "flare.models." .. file end

return require "flare.lazy"("models", {}, files)
