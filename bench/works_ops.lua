--- 60 operators at four sizes of their input, for works.lua. Of `given`: n numbers, or r x c; b
-- matrices of m x m; N x C x H x W planes; K channels of a wide convolution, S x S each.
local sizes = {
  {"1 KiB", "n, r, c, b, m, N, C, H, K, S = 256, 16, 16, 1, 16, 1, 4, 8, 16, 4"},
  {"32 KiB", "n, r, c, b, m, N, C, H, K, S = 8192, 64, 128, 8, 32, 1, 8, 32, 128, 8"},
  {"4 MiB", "n, r, c, b, m, N, C, H, K, S = 1048576, 1024, 1024, 1024, 32, 4, 64, 64, 256, 32"},
  {"256 MiB",
    "n, r, c, b, m, N, C, H, K, S = 67108864, 8192, 8192, 65536, 32, 64, 64, 128, 256, 64"},
}

-- Name, inputs, flare, PyTorch, and where gradients are natural what they go to; `upto` is their
-- last size.
local matrix = "x = normal(r, c)"
local both = "x = normal(r, c); y = normal(r, c)"
local picks = "x = normal(r, c); i = positions(c, r, c); y = normal(r, c)"
local rows = "x = normal(r, c); i = positions(r, r); y = normal(r, c)"
local chosen = "x = normal(r, c); y = normal(r, c); k = mask(r, c)"
local planes = "x = normal(N, C, H, H)"
local square = "x = normal(b, m, m) + 8 * eye(m); y = normal(b, m, m)"
local families = {
  indexing = {
    {"gather", picks, "x:gather(2, i)", "x.gather(1, i)", "x"},
    {"scatter_add", picks, "x:scatter_add(2, i, y)", "x.scatter_add(1, i, y)", "x y"},
    {"scatter_reduce, mean", picks, 'x:scatter_reduce(2, i, y, {reduce = "mean"})',
      'x.scatter_reduce(1, i, y, "mean")'},
    {"index_select", rows, "x:index_select(1, i)", "x.index_select(0, i)", "x"},
    {"index_add", rows, "x:index_add(1, i, y)", "x.index_add(0, i, y)"},
    {"masked_fill", chosen, "x:masked_fill(k, 0)", "x.masked_fill(k, 0)", "x"},
    {"masked_select", chosen, "x:masked_select(k)", "x.masked_select(k)"},
    {"where", chosen, "flare.where(k, x, y)", "torch.where(k, x, y)", "x y"},
  },
  shapes = {
    {"transposed copy", matrix, "x:t():contiguous()", "x.t().contiguous()"},
    {"cat", both, "flare.cat({x, y}, 2)", "torch.cat((x, y), 1)", "x y"},
    {"flip", matrix, "x:flip{dims = {2}}", "x.flip(1)"},
    {"roll", matrix, "x:roll({3, 5}, {1, 2})", "x.roll((3, 5), (0, 1))"},
    {"pad, reflect", planes, 'x:pad({1, 1, 1, 1}, {mode = "reflect"})',
      'F.pad(x, (1, 1, 1, 1), "reflect")', "x"},
    {"tril", matrix, "x:tril()", "x.tril()"},
    {"im2col, 3 x 3, stride 2", planes,
      "x:im2col({3, 3}, {padding = {1, 1}, stride = {2, 2}})",
      "F.unfold(x, 3, padding=1, stride=2)"},
  },
  math = {
    {"add a row", "x = normal(r, c); y = normal(c)", "x + y", "x + y"},
    {"complex product", "x = complex(r, c // 2); y = complex(r, c // 2)", "x * y", "x * y"},
    {"exp", matrix, "x:exp()", "x.exp()"},
    {"gelu", matrix, "x:gelu()", "F.gelu(x)", "x"},
    {"pow", "x = uniform(r, c) + 0.5; y = normal(r, c)", "x:pow(y)", "x.pow(y)"},
    {"lgamma", "x = 4 * uniform(r, c) + 0.1", "x:lgamma()", "x.lgamma()"},
    {"lerp", "x = normal(r, c); y = normal(r, c); z = uniform(r, c)", "x:lerp(y, z)",
      "x.lerp(y, z)", "x y z"},
  },
  reductions = {
    {"sum", matrix, "x:sum()", "x.sum()"},
    {"sum of columns", matrix, "x:sum(1)", "x.sum(0)"},
    {"var", matrix, "x:var(2)", "x.var(1)", "x"},
    {"argmax", matrix, "x:argmax(2)", "x.argmax(1)"},
    {"logsumexp", matrix, "x:logsumexp(2)", "x.logsumexp(1)", "x"},
    {"norm", matrix, "x:norm(2)", "x.norm(2)", "x"},
    {"cumsum", matrix, "x:cumsum(2)", "x.cumsum(1)", "x"},
    {"median", matrix, "x:median(2)", "x.median(1)"},
  },
  sorting = {
    {"sort", matrix, "x:sort(2)", "x.sort(1)", "x"},
    {"topk", matrix, "x:topk(10, 2)", "x.topk(10, 1)"},
    {"unique", "x = positions(1000, n // 2)", "x:unique()",
      "torch.unique(x, return_inverse=True, return_counts=True)"},
    {"searchsorted", matrix, "flare.searchsorted(y, x)", "torch.searchsorted(y, x)",
      flare_given = "y = (normal(c):sort())", torch_given = "y = normal(c).sort()[0]"},
  },
  ["linear algebra"] = {
    {"matmul", "x = normal(r, c); y = normal(c, r)", "x:matmul(y)", "x @ y", "x y",
      upto = "4 MiB"},
    {"bmm", "x = normal(b, m, m); y = normal(b, m, m)", "x:matmul(y)", "x @ y", "x y"},
    {"solve", square, "flare.solve(x, y)", "torch.linalg.solve(x, y)", "x y", upto = "4 MiB"},
    {"cholesky", "x = normal(b, m, m)", "flare.cholesky(x)", "torch.linalg.cholesky(x)", "x",
      upto = "4 MiB", flare_given = "x = x:matmul(x:transpose(2, 3)) + eye(m)",
      torch_given = "x = x @ x.mT + eye(m)"},
    {"qr", square, "x:qr()", "torch.linalg.qr(x)"},
    {"svd", square, "x:svd()", "torch.linalg.svd(x, full_matrices=False)"},
  },
  fourier = {
    {"fft", "x = complex(r, c // 2)", "x:fft()", "torch.fft.fft(x)"},
    {"rfft", matrix, "x:rfft()", "torch.fft.rfft(x)"},
    {"irfft", "x = complex(r, c // 2 + 1)", "x:irfft()", "torch.fft.irfft(x)"},
    {"fft2", "x = complex(r, c // 2)", "x:fft2()", "torch.fft.fft2(x)"},
  },
  convolution = {
    {"conv, 3 x 3", "x = normal(N, C, H, H); w = normal(C, C, 3, 3)",
      "flare.conv(x, w, nil, {padding = {1, 1}})", "F.conv2d(x, w, padding=1)", "x w"},
    {"conv, 3 x 3, wide", "x = normal(N, K, S, S); w = normal(K, K, 3, 3)",
      "flare.conv(x, w, nil, {padding = {1, 1}})", "F.conv2d(x, w, padding=1)", "x w"},
    {"conv_transpose, 4 x 4, stride 2", "x = normal(N, C, H // 2, H // 2); w = normal(C, C, 4, 4)",
      "flare.conv_transpose(x, w, nil, {stride = {2, 2}, padding = {1, 1}})",
      "F.conv_transpose2d(x, w, stride=2, padding=1)", "x w"},
    {"max_pool, 2 x 2", planes, "flare.max_pool(x, {2, 2})", "F.max_pool2d(x, 2)", "x"},
    {"avg_pool, 3 x 3, stride 2", planes,
      "flare.avg_pool(x, {3, 3}, {stride = {2, 2}, padding = {1, 1}})",
      "F.avg_pool2d(x, 3, 2, 1)", "x"},
    {"interpolate, bilinear, to twice", "x = normal(N, C, H // 2, H // 2)",
      'flare.interpolate(x, {scale = 2, mode = "linear"})',
      'F.interpolate(x, scale_factor=2, mode="bilinear")', "x"},
    {"interpolate, bicubic, antialias, to half", planes,
      'flare.interpolate(x, {size = {H // 2, H // 2}, mode = "cubic", antialias = true})',
      'F.interpolate(x, (H // 2, H // 2), mode="bicubic", antialias=True)', "x"},
    {"grid_sample", "x = normal(N, C, H, H); g = 2 * uniform(N, H, H, 2) - 1",
      "flare.grid_sample(x, g)", "F.grid_sample(x, g, align_corners=False)", "x g"},
  },
  random = {
    {"randn", "x = 0", "flare.randn(r, c)", "torch.randn(r, c)"},
    {"dropout", matrix, "flare.dropout(x)", "F.dropout(x)", "x"},
    {"randperm", "x = 0", "flare.randperm(n)", "torch.randperm(n)"},
  },
  ["losses and norms"] = {
    {"cross_entropy", "x = normal(r, c); y = positions(c, r)", "flare.cross_entropy(x, y)",
      "F.cross_entropy(x, y)", "x"},
    {"bce_with_logits", "x = normal(r, c); y = uniform(r, c)", "flare.bce_with_logits(x, y)",
      "F.binary_cross_entropy_with_logits(x, y)", "x"},
    {"smooth_l1_loss", both, "flare.smooth_l1_loss(x, y)", "F.smooth_l1_loss(x, y)", "x"},
    {"group_norm", "x = normal(N, C, H, H); w = uniform(C); z = normal(C)",
      "flare.group_norm(x, w, z, {groups = 4})", "F.group_norm(x, 4, w, z)", "x w z"},
    {"batch_norm", "x = normal(N, C, H, H); w = uniform(C); z = normal(C)",
      "flare.batch_norm(x, w, z, nil, nil)", "F.batch_norm(x, None, None, w, z, True)", "x w z"},
  },
}
local order = {"indexing", "shapes", "math", "reductions", "sorting", "linear algebra", "fourier",
  "convolution", "random", "losses and norms"}

local works = {}
for s, size in ipairs(sizes) do
  for _, family in ipairs(order) do
    for _, w in ipairs(families[family]) do
      local function add(suffix, leaves)
        works[#works + 1] = {
          name = ("ops %s: %s%s"):format(size[1], w[1], suffix), family = family,
          given = size[2] .. "; " .. w[2], flare = w[3], torch = w[4], leaves = leaves,
          flare_given = w.flare_given, torch_given = w.torch_given,
        }
      end
      add("", nil)
      if w[5] and not (w.upto and s == 4) then add(", and gradients", w[5]) end
    end
  end
end
return works
