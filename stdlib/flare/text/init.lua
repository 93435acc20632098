--- flare.text: tokenizers, from the files that models are published with, and chat templates.
--
--     local tokenizer = flare.text.load "llama-3"
--     local ids = tokenizer:encode "Hello, world"
--     print(tokenizer:decode(ids))
require "flare"

return require "flare.lazy"("flare.text", {}, {
  load = "flare.text.files", Tokenizer = "flare.text.tokenizer", template = "flare.text.chat",
  train_bpe = "flare.text.train", grammar = "flare.text.grammar",
})
