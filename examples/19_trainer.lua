-- The training loop from the library: validation, early stopping, checkpoints that resume bit for
-- bit, and a folder for TensorBoard. Stop it with Ctrl-C and start it again.
--
--   flare examples/19_trainer.lua --folder run --epochs 20
--   flare examples/19_trainer.lua --config run.json       {"folder": "run", "lr": 0.001}
--   flare launch -n 2 examples/19_trainer.lua             on two processes
local flare = require "flare"
local nn, optim, data, dist, metrics = flare.nn, flare.optim, flare.data, flare.dist, flare.metrics

local o = flare.args(arg, "Trains a network to read digits, with checkpoints.", {
  folder = {"", "of checkpoints and of files for TensorBoard; without one nothing is kept"},
  epochs = {10, "at most"}, patience = {3, "epochs without a better accuracy"},
  lr = {2e-3, "the learning rate at first"}, batch = {50, "digits of a batch, of all ranks"},
  count = {800, "digits to draw"}, device = {"cpu", "cpu, cuda or sim:0"},
  seed = {1, "of the digits, the weights and the order"},
})

local rank = dist.init()
flare.manual_seed(o.seed)
local digits = data.Tensors(data.digits(o.count, {seed = o.seed}))
local train, held = data.split(digits, {o.count - o.count // 8, o.count // 8}, {seed = o.seed})
local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64, {act = "relu"}), nn.Dropout(0.1),
                            nn.Linear(64, 10)):to(o.device)
local optimizer = optim.AdamW(model, {lr = o.lr})
local loader = data.Loader(train, {batch = o.batch, shuffle = true, seed = o.seed,
                                   shard = dist.world})
local folder = o.folder ~= "" and o.folder or nil
local board = folder and rank == 0 and assert(flare.log.tensorboard(folder)) or nil

local trainer = flare.train.Trainer{
  model = model, optimizer = optimizer, loss = flare.cross_entropy, train = loader,
  epochs = o.epochs, clip = 1, folder = folder, log = board, log_every = 10,
  schedule = optim.CosineLR(optimizer, {total = o.epochs * loader:batches(), floor = 0.1}),
  validate = data.Loader(held, {batch = 100, shard = dist.world, repeats = false}),
  metrics = {accuracy = metrics.Accuracy(), f1 = metrics.F1()},
  monitor = "accuracy", mode = "max", patience = o.patience, progress = false,
  callbacks = {{epoch = function(_, figures)
    if rank == 0 then
      print(("epoch %d  loss %.3f  accuracy %.3f"):format(figures.epoch, figures.loss,
                                                          figures.accuracy))
    end
  end}},
}
trainer:fit()
if rank == 0 then print(("best accuracy %.3f"):format(trainer.best)) end
