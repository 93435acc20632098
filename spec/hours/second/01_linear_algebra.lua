-- Principal components, nearest neighbours, k-means and ridge regression of digits.
local flare = require "flare"
flare.manual_seed(1)
local images, labels = flare.data.digits(1000)
local x = images:flatten(2)
local train, test = x[{{1, 800}}], x[{{801, 1000}}]
local train_y, test_y = labels[{{1, 800}}], labels[{{801, 1000}}]

-- PCA
local mean = train:mean{dim = 1, keepdim = true}
local _, s, vh = (train - mean):svd()
local k = 32
local explained = (s ^ 2)[{{1, k}}]:sum() / (s ^ 2):sum()
print(("%d components explain %.1f %% of the variance"):format(k, 100 * explained:item()))
local basis = vh[{{1, k}}].T
local a, b = (train - mean):matmul(basis), (test - mean):matmul(basis)
-- the same by the covariance's eigenvectors
local values = flare.eigvalsh(a.T:matmul(a))
assert((values:flip(1):sqrt() - s[{{1, k}}]):abs():max():item() < 1e-2 * s[1]:item())

-- kNN
local distances = flare.cdist(b, a)
local _, near = distances:topk(5, {dim = 2, largest = false})
local votes = train_y[near]                     -- (200, 5)
local guess = flare.one_hot(votes, 10):sum(2):argmax(2)
local knn = guess:eq(test_y):mean():item()
print("kNN", knn)
assert(knn > 0.85)

-- ridge regression to one-hot targets
local target = flare.one_hot(train_y, 10):float()
local gram = a.T:matmul(a) + 10 * flare.eye(k)
local w = a.T:matmul(target):cholesky_solve(gram:cholesky())
local ridge = b:matmul(w):argmax(2):eq(test_y):mean():item()
local w2 = flare.solve(gram, a.T:matmul(target))
assert((w - w2):abs():max():item() < 1e-3)
print("ridge", ridge)
assert(ridge > 0.7)

-- k-means
local centers = a[flare.randperm(#a)[{{1, 10}}]]:clone()
for _ = 1, 20 do
  local nearest = flare.cdist(a, centers):argmin(2)
  local sums = flare.zeros(10, k):index_add(1, nearest, a)
  local counts = nearest:bincount{minlength = 10}:clamp(1):unsqueeze(2)
  centers = sums / counts
end
local nearest = flare.cdist(a, centers):argmin(2)
local purity = 0
for c = 1, 10 do
  local inside = train_y[nearest:eq(c)]
  if #inside > 0 then purity = purity + inside:bincount{minlength = 10}:max():item() end
end
print("purity of k-means", purity / #train_y)
assert(purity / #train_y > 0.4)
