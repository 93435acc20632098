-- A table of customers from CSV: categories as embeddings, missing values, weighted classes, five
-- folds, AUROC.
local flare = require "flare"
local nn, optim, data, metrics = flare.nn, flare.optim, flare.data, flare.metrics
flare.manual_seed(1)
math.randomseed(1)

local path = os.tmpname()
local file = assert(io.open(path, "w"))
file:write "age,income,city,plan,left\n"
local cities, plans = {"Berlin", "Oslo", "Rome"}, {"free", "basic", "pro"}
for _ = 1, 600 do
  local age, income = math.random(18, 80), math.random(20, 120)
  local city, plan = cities[math.random(3)], plans[math.random(3)]
  local score = (plan == "free" and 2 or 0) + (city == "Rome" and 1 or 0) - age / 40 + math.random()
  file:write(("%d,%s,%s,%s,%s\n"):format(age, math.random() < 0.1 and "" or income, city, plan,
    score > 1.3 and "yes" or "no"))
end
file:close()
local t = assert(data.csv(path))
os.remove(path)

local numbers = t:matrix("age", "income")
local missing = numbers:isnan()
local mean = numbers:nanmean(1)
numbers = flare.where(missing, mean, numbers)
numbers = (numbers - numbers:mean(1)) / numbers:std(1)
numbers = flare.cat({numbers, missing:float()}, 2)
local city, city_names = t:classes "city"
local plan = t:classes "plan"
local left, names = t:classes "left"
print(#t, numbers.shape, table.concat(city_names, " "), table.concat(names, " "))
local positive = names[1] == "yes" and 1 or 2
local y = left:eq(positive):float()
print("share that left", y:mean():item())

local Net = flare.class("Net", nn.Module)
function Net:init()
  self.city, self.plan = nn.Embedding(3, 4), nn.Embedding(3, 4)
  self.body = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2),
    nn.Linear(32, 1))
end
function Net:forward(n, c, p)
  return self.body(flare.cat({n, self.city(c), self.plan(p)}, 2)):squeeze(2)
end

local set = data.Tensors(numbers, city, plan, y)
local folds = {data.split(set, {120, 120, 120, 120, 120}, {seed = 2})}
local figures = {}
for k = 1, 5 do
  local rest = {}
  for j = 1, 5 do if j ~= k then rest[#rest + 1] = folds[j] end end
  local model = Net()
  local optimizer = optim.AdamW(model, {lr = 5e-3})
  local weight = (1 - y):sum() / y:sum()
  local loader = data.Loader(data.Concat(table.unpack(rest)), {batch = 40, shuffle = true})
  for _ = 1, 12 do
    for n, c, p, target in loader:epoch() do
      local loss = flare.bce_with_logits(model(n, c, p), target, {pos_weight = weight})
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
    end
  end
  model:eval()
  local auroc = metrics.AUROC()
  for n, c, p, target in data.Loader(folds[k], {batch = 120}):epoch() do
    auroc:update(flare.no_grad(function() return model(n, c, p):sigmoid() end), target)
  end
  figures[k] = auroc:compute()
end
local all = flare.tensor(figures)
print("AUROC", all:mean():item(), "+-", all:std():item())
assert(all:mean():item() > 0.85)
