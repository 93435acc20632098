--- Direct preference optimization (arXiv:2305.18290).
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local sequences = require "flare.train.sequences"

local M = {}

-- The log-probability of each example's labels, in f32, (examples); `mean`: of a token.
local function scores(model, examples, mean)
  local device = model:parameters()[1].device
  local ids, targets, lengths = sequences.join("train.dpo_loss", examples)
  local logp, owner = sequences.log_probs(model, ids:to(device), targets:to(device), lengths)
  local zeros = core.zeros({#examples}, {device = device})
  local sums = zeros:index_add(1, owner, logp)
  if not mean then return sums end
  return sums / zeros:index_add(1, owner, core.ones_like(logp:detach())):clamp(1)
end

--- The loss of direct preference optimization: the model learns to prefer one answer to another,
-- relative to a reference.
-- @param model a published model that predicts the next token
-- @param reference the model before, or adapters of models.lora: the model without them; nil: a
--   preference without reference, by the mean log-probability of a token (SimPO, arXiv:2405.14734)
-- @param batch a list of {chosen = example, rejected = example}, examples {ids =, labels =} as of
--   train.chat
-- @param opts `beta = 0.1`, how far the model may leave the reference; `smoothing = 0`, the
--   probability that a preference is the wrong way round; `margin = 0`, by which answers shall
--   differ
-- @return the loss; {accuracy = how often the chosen answer has the higher reward, margin = the
--   mean difference of rewards, chosen =, rejected = mean rewards}, tensors
function M.dpo_loss(model, reference, batch, opts)
  local o = options.check("train.dpo_loss", opts, {beta = 0.1, smoothing = 0, margin = 0})
  if type(batch) ~= "table" or #batch == 0 then
    fail("train.dpo_loss: a list of {chosen =, rejected =} is expected")
  end
  local examples = {}
  for k, pair in ipairs(batch) do
    if type(pair) ~= "table" or not pair.chosen or not pair.rejected then
      fail("train.dpo_loss: pair %d must have chosen and rejected", k)
    end
    examples[k], examples[#batch + k] = pair.chosen, pair.rejected
  end
  local own = scores(model, examples, not reference)
  if reference then own = own - sequences.reference(model, reference, scores, examples) end
  local rewards = own * o.beta
  local chosen, rejected = rewards:narrow(1, 1, #batch), rewards:narrow(1, #batch + 1, #batch)
  local apart = chosen - rejected - o.margin
  local loss = -(apart:logsigmoid() * (1 - o.smoothing) + (-apart):logsigmoid() * o.smoothing)
  return loss:mean(), {accuracy = chosen:gt(rejected):to("f32"):mean(), chosen = chosen:mean(),
                       rejected = rejected:mean(), margin = (chosen - rejected):mean()}
end

return M
