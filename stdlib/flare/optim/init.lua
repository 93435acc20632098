--- flare.optim: optimizers, schedules of the learning rate, clipping, averages of weights.
--
--     local optim = require "flare.optim"
--     local opt = optim.AdamW(model:parameters(), {lr = 1e-3, weight_decay = 0.1})
--     loss:backward()
--     optim.clip_grad_norm_(model:parameters(), 1.0)
--     opt:step()
--     opt:zero_grad()
require "flare"

local files = {
  Optimizer = "optimizer", SGD = "sgd", Adam = "adam", AdamW = "adamw", RMSprop = "rmsprop",
  Adagrad = "adagrad", Lion = "lion", LBFGS = "lbfgs", EMA = "ema",
  Adam8bit = "adam8bit", AdamW8bit = "adam8bit",
  Adadelta = "rules", Adamax = "rules", NAdam = "rules", RAdam = "rules", Rprop = "rules",
  ASGD = "rules", Adafactor = "rules", Muon = "rules",
  StepLR = "schedule", CosineLR = "schedule", WarmupCosineLR = "schedule",
  LinearLR = "schedule", ExponentialLR = "schedule", OneCycleLR = "schedule",
  LambdaLR = "schedule", MultiStepLR = "schedule", PolynomialLR = "schedule",
  CosineRestartsLR = "schedule", ConstantLR = "schedule", CyclicLR = "schedule",
  SequentialLR = "schedule", ChainedLR = "schedule", PlateauLR = "plateau",
  clip_grad_norm_ = "clip", clip_grad_value_ = "clip", grad_norm = "clip",
  GradScaler = "grad_scaler",
}

for name, file in next, files do files[name] = "flare.optim." .. file end

return require "flare.lazy"("optim", {}, files)
