--- flare.train: the training loop, with what a long run needs around it, and losses for tuning
-- published models: packed sequences, conversations, preferences, rewards.
--
--     local trainer = flare.train.Trainer{model = model, optimizer = optimizer, loss = loss,
--                                         train = loader, validate = held_out, epochs = 10}
--     local history = trainer:fit()
require "flare"

local files = {
  Trainer = "trainer", Packed = "packed", chat = "chat", loss = "sequences",
  log_probs = "sequences", dpo_loss = "preferences", rollout = "rewards", grpo_loss = "rewards",
}

for name, file in next, files do files[name] = "flare.train." .. file end

return require "flare.lazy"("train", {}, files)
