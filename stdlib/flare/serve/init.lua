--- flare.serve: a published model behind HTTP, as clients of OpenAI's interface expect it.
--
--     local server = assert(flare.serve{model = model, tokenizer = tokenizer, port = 8000})
--     server:run(function() end)
require "flare"

return require "flare.serve.server"
