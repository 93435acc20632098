-- flare launch -i: a mistake at the prompt costs its own line and nothing after it.
local launch = require "spec.support.launch"
local tree = require "spec.support.tree"

-- What the prompt of n ranks answers to lines, each an argument of ranks.
local function answers(n, lines, wrap)
  local folder = launch.folder ""
  local file <close> = assert(io.open(folder .. "/lines", "w"))
  for _, line in ipairs(lines) do file:write("ranks[[ ", line, " ]]\n") end
  file:close()
  local command = ("$J -n %d -i --timeout 5"):format(n)
  local status, out = launch.shell(folder, wrap and
    ('(sleep 1; cat lines; sleep 1; printf "\\004"; sleep 1) | script -qec "%s" /dev/null')
      :format(command) or command .. " <lines", 100)
  launch.gone(folder)
  launch.remove(folder)
  assert.equal(0, status, out)
  return out
end

local lines = {
  "x = flare.ones{2} * (rank + 1); g = dist.group{1, 0}",
  "if rank == 0 then w = dist.all_reduce(x, {async = true}) end",
  "dist.all_gather(rank == 0 and x or flare.ones{7})", -- a mismatch
  "'sum', dist.all_reduce(x):sum():item()",
  "'group', g:all_reduce(x):sum():item()",
  "rank == 1 and nil + 1 or dist.barrier()", -- one fails while the other waits
  "'again', dist.all_reduce(x, {async = true}):wait():sum():item()",
  "if rank == 1 then dist.group{0} end",
  "rank == 1 and error 'odd'", -- one that only rank 1 has made is forgotten
  "'last', dist.group{0, 1}:all_reduce(x):sum():item()",
  "'lost', w and w:wait() or '-'",
}

local function check(out)
  assert.truthy(out:find("error: ranks:1: rank 1 called all_gather #1 f32 (7) at ranks:1, but "
    .. "rank 0 called all_reduce #1 f32 (2) sum at ranks:1", 1, true), out)
  for _, word in ipairs {"sum", "group", "again", "last"} do
    for rank = 0, 1 do
      assert.truthy(out:find(rank .. "  " .. word .. "  6.0", 1, true), word .. "\n" .. out)
    end
  end
  assert.truthy(out:find("0  error: ranks:1: rank 1 failed: ranks:1: attempt to perform arithmetic",
    1, true), out)
  assert.truthy(out:find("the call ended with the failure of the ranks before this line", 1, true),
    out)
end

describe("the prompt of several ranks", function()
  it("goes on after ranks that called different things, or failed", function()
    check(answers(2, lines))
  end)

  local try = tree.output "command -v script" ~= "" and it or pending
  try("does so on a terminal", function() check(answers(2, lines, true)) end)

  it("waits for --timeout seconds, also in the first collective", function()
    local folder = launch.folder ""
    local _, out = launch.shell(folder, "echo 'dist.barrier()' | $J -n 2 -i --timeout 1", 100)
    launch.gone(folder)
    launch.remove(folder)
    assert.truthy(out:find("did not come to barrier #1 at prompt:1 within 1 s", 1, true), out)
  end)

  it("goes on with more ranks, of which one is out of step", function()
    local out = answers(4, {
      "rank == 2 and dist.barrier() or dist.all_reduce(flare.ones(3))",
      "'sum', dist.all_reduce(flare.ones(3)):sum():item()",
      "rank ~= 3 and dist.barrier() or error 'odd'",
      "'sum', dist.all_reduce(flare.ones(3)):sum():item()"})
    assert.equal(8, select(2, out:gsub("%d  sum  12.0", "")), out)
  end)
end)
