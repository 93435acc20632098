-- That compiled programs compute what programs compute. limit: 120 min
-- 20,000 random programs on cpu and sim:0, exact and not, of operators alone and with what Lua and
-- autograd do beside them, and 10,000 on two streams; 10,000 pure functions on both; programs of
-- any dtypes and of views, and networks that are trained; a million calls; then specs as one
-- compiled program.
package.path = "./?.lua;" .. package.path
local tree = require "spec.support.tree"

local CHUNK, failed = 1000, false

local function figure(good, format, ...)
  print("figure: " .. format:format(...) .. (good and "" or ": FAILED"))
  failed = failed or not good
end

-- A process for each chunk: kernels live as long as their runtime.
local function programs(what, device, count, exact, options)
  local bad = 0
  for first = 1, count, CHUNK do
    local path = os.tmpname()
    local file <close> = assert(io.open(path, "w"))
    file:write(([[
      package.path = "./?.lua;" .. package.path
      local flare = require "flare"
      local check, bad = require "spec.support.programs".check, 0
      local o = %s
      for seed = %d, %d do
        o.first = seed
        local ok, why = pcall(check, %q, 1, %s, o)
        if not ok then bad = bad + 1 print(why) end
      end
      print("bad " .. bad)
    ]]):format(options, first, first + CHUNK - 1, device, tostring(exact)))
    file:close()
    local out = tree.output(("%s/flare %s 2>&1"):format(tree.build, path))
    os.remove(path)
    local n = out:match "bad (%d+)\n$"
    if n ~= "0" then print(out:sub(-4000)) end
    bad = bad + (tonumber(n) or CHUNK)
  end
  figure(bad == 0, "%s on %s%s: %d of %d programs differ", what, device, exact and ", exact" or "",
    bad, count)
end

for _, device in ipairs {"cpu", "sim:0"} do
  for _, exact in ipairs {true, false} do
    programs("operators", device, 20000, exact, "{}")
    programs("operators, Lua and autograd", device, 20000, exact, "{wild = true}")
  end
end
programs("two streams", "sim:0", 10000, true,
  "{wild = true, streams = {flare.stream 'sim:0', flare.stream 'sim:0'}}")

for _, device in ipairs {"cpu", "sim:0"} do
  local out = tree.output(([[%s/flare -e 'package.path = "./?.lua;" .. package.path
    print(require "spec.support.pure_programs".check(%q, 1, 10000))' 2>&1]])
    :format(tree.build, device))
  figure(out:match "^%d+\n$", "10000 pure functions on %s: %s", device, out)
end

-- Programs of any dtypes and shapes, and networks that are trained: a check of a seed each.
local function seeds(what, count, check)
  local bad = 0
  for first = 1, count, CHUNK do
    local out = tree.output(([[%s/flare -e 'package.path = "./?.lua;" .. package.path
      local bad = 0
      for seed = %d, %d do
        local ok, why = pcall(%s)
        if not ok then bad = bad + 1 print(seed, why) end
      end
      print("bad " .. bad)' 2>&1]]):format(tree.build, first, first + CHUNK - 1, check))
    local n = out:match "bad (%d+)\n$"
    if n ~= "0" then print(out:sub(-4000)) end
    bad = bad + (tonumber(n) or CHUNK)
  end
  figure(bad == 0, "%s: %d of %d differ", what, bad, count)
end

for _, device in ipairs {"cpu", "sim:0"} do
  for _, how in ipairs {"nil", '"first"', '"again"'} do
    seeds("typed programs on " .. device .. ", " .. how, 4000,
      ([[require "spec.support.typed_programs".check, seed, "%s", %s]]):format(device, how))
  end
  seeds("programs of views on " .. device, 10000,
    ([[require "spec.support.view_programs".check, "%s", 1, seed]]):format(device))
  for _, exact in ipairs {true, false} do
    seeds("networks on " .. device .. (exact and ", exact" or ""), 2000,
      ([[require "spec.support.training_programs".check, seed, "%s", %s]]):format(device, exact))
  end
end

-- A million calls of a compiled function: KiB of the process after 20,000 calls and at the end.
for _, kind in ipairs {"backward", "forward", "pure"} do
  local out = tree.output(([[%s/flare -e '
    local flare = require "flare"
    local x, sum = flare.ones(4, 4), flare.zeros(4, 4)
    local w = flare.ones(4, 4):requires_grad_()
    local f = ({
      backward = flare.compile(function(t, k)
        w.grad = nil;
        (t * w * k + 1):tanh():sum():backward()
        return w.grad
      end),
      forward = flare.compile(function(t, k) return (t * k + 1):tanh() end),
      pure = flare.compile(function(t)
        sum:add_(t)
        return (t * 2 + 1):tanh()
      end, {pure = true}),
    })["%s"]
    for k = 1, 1000000 do
      f(x, k / 7)
      if k == 20000 or k == 1000000 then
        collectgarbage()
        local file <close> = io.open "/proc/self/statm"
        io.write((" "):rep(k // 1000000), tonumber(file:read "a":match "%%d+ (%%d+)") * 4)
      end
    end' 2>&1]]):format(tree.build, kind))
  local before, after = out:match "^(%d+) (%d+)$"
  figure(before and tonumber(after) <= before + 1024, "a million calls, %s: %s KiB", kind, out)
end

for _, mode in ipairs {"all,exact"} do
  for _, word in ipairs {"spec/nn", "spec/optim", "spec/examples", "spec/data_", "spec/onnx_"} do
    local out = tree.output(("FLARE_COMPILE=%s lua5.4 spec/run.lua --jobs 1 --build %s %s 2>&1")
      :format(mode, tree.build, word))
    local passed, bad = out:match "(%d+) passed, (%d+) failed"
    if bad ~= "0" then print(out:sub(-4000)) end
    figure(bad == "0", "%s with %s: %s passed, %s failed", word, mode, passed or "?", bad or "?")
  end
end
os.exit(not failed)
