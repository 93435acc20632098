-- The page of the simulator: its JavaScript computes the numbers of flare.simulate. Node.js and
-- Chromium run it where they are installed.
local flare = require "flare"
local dataflow = flare.dataflow
local tree = require "spec.support.tree"

local function found(name)
  return tree.output("command -v " .. name .. " 2>/dev/null"):match "%S"
end
local with_node = found "node" and it or pending
local browser = found "chromium" and "chromium" or found "chromium-browser" and "chromium-browser"
local with_browser = browser and it or pending

local folder
setup(function()
  folder = os.tmpname()
  assert(os.remove(folder) and os.execute("mkdir " .. folder))
end)
teardown(function() os.execute("rm -rf " .. folder) end)

local function write(name, text)
  local path = folder .. "/" .. name
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
  return path
end

local function near(expected, got, what)
  assert.truthy(got, what)
  assert.near(expected, got, 1e-9 * math.abs(expected) + 1e-12, what)
end

-- Runs the simulator of a page for changes of the machine's figures; a list of results.
local function run_node(page, changes)
  local script = page:match '<script id="simulator">(.-)</script>'
  local data = page:match '<script id="data" type="application/json">(.-)</script>'
  local path = write("run.js", script .. "\nconst data = " .. data .. ";\nconst out = [];\n"
    .. "for (const change of " .. flare.core.json.encode(changes) .. ") {\n"
    .. [[const r = simulate(data.schedules[0], changed(data.machine, change));
    out.push(r.stuck ? {stuck: r.stuck} : {time: r.time, useful: r.useful, bubble: r.bubble,
      utilisation: r.utilisation, energy: r.energy, tokens: r.tokens_per_second,
      places: r.places.map((p) => [p.name, p.peak, p.waited]),
      stops: r.runs.map((x) => x.stop), busy: r.streams.map((s) => s.busy)});
    }
    console.log(JSON.stringify(out));]])
  local text = tree.output("node " .. path .. " 2>&1")
  local ok, list = pcall(flare.core.json.decode, text)
  assert(ok, text:sub(1, 1000))
  return list
end

local function compare(schedule, machine, change, got)
  local r, message = flare.simulate(schedule, machine, change)
  if not r then
    assert.truthy(got.stuck, message)
    return false
  end
  near(r.time, got.time, "time")
  near(r.useful, got.useful, "useful")
  near(r.bubble, got.bubble, "bubble")
  near(r.utilisation, got.utilisation, "utilisation")
  near(r.energy, got.energy, "energy")
  if r.tokens_per_second then near(r.tokens_per_second, got.tokens, "tokens") end
  assert.equal(#r.tasks, #got.stops)
  for k, task in ipairs(r.tasks) do near(task.stop, got.stops[k], task.name) end
  for _, place in ipairs(got.places) do
    near(r.places[place[1]].peak, place[2], place[1])
    near(r.places[place[1]].waited, place[3], place[1])
  end
  return true
end

describe("the page", function()
  local layers = dataflow.transformer({layers = 6, width = 512, heads = 8, inner = 2048,
    vocabulary = 4000}, {length = 256})
  local schemes = {
    {"in_memory", {devices = 2, micro_batches = 2}}, {"ring", {devices = 3}},
    {"offload", {micro_batches = 2, activations = "offload"}},
    {"offload", {micro_batches = 3, activations = "recompute", update = "device"}},
    {"zb_h1", {devices = 4, micro_batches = 6}}, {"1f1b", {devices = 2, replicas = 3}},
    {"interleaved", {devices = 2, micro_batches = 4, recompute = true}},
  }

  for _, c in ipairs(schemes) do
    with_node("computes what flare.simulate does: " .. c[1], function()
      local schedule = dataflow.schemes[c[1]](layers, c[2])
      local machine = c[1] == "1f1b" and "dgx-h100" or "h100"
      local changes = {{latency = 3}, {link = 2, peer = 3}, {memory = 0.45}, {memory = 0.01},
        {bandwidth = 400, compute = 0.25}, {matrix = 4, latency = 0.5}}
      local list = run_node(dataflow.page(schedule, machine), changes)
      local fits = 0
      for k, change in ipairs(changes) do
        if compare(schedule, machine, change, list[k]) then fits = fits + 1 end
      end
      assert.truthy(fits >= 4)
    end)
  end

  with_node("knows shared, exclusive and one-way links, and waits for memory", function()
    local machine = {name = "plain", peak = {f32 = 1e12}, memory = {bytes = 1000, rate = 1e9},
      host = {bytes = 5000}, power = {idle = 1, busy = 3}}
    local schedule = {devices = 2, tasks = {
      {name = "a", stream = "in", transfer = 300, holds = {{"x", bytes = 600}}},
      {name = "b", device = 2, stream = "in", transfer = 100},
      {name = "c", device = 2, stream = "out", transfer = 100},
      {name = "d", seconds = 9, needs = "a", frees = "x"},
      {name = "e", stream = "in", transfer = 100, holds = {{"y", bytes = 500},
                                                          {"h", bytes = 70, place = "host"}}},
      {name = "f", stream = "host", cost = {bytes = 1e12}, again = true},
    }}
    for _, link in ipairs {{rate = 100}, {rate = 100, shared = true},
      {rate = 100, shared = true, exclusive = true},
      {rate = 100, shared = true, exclusive = true, duplex = false, latency = 1}} do
      machine.links = {host = link}
      local list = run_node(dataflow.page(schedule, machine), {{latency = 1e-6}})
      assert.is_true(compare(schedule, machine, {latency = 1e-6}, list[1]))
      assert.truthy(list[1].places[1][3] > 0)
    end
  end)

  it("is one file that loads nothing, whatever names are in it", function()
    local text = dataflow.page({{"one </script> & more", {tasks = {
      {name = "a</script><b>", seconds = 1}}}}}, "h100", {title = "<i> & co"})
    assert.match("^<!DOCTYPE html>", text)
    assert.match("<h1>&lt;i&gt; &amp; co</h1>", text)
    assert.falsy(text:find("src=", 1, true) or text:find("href=", 1, true))
    local _, ends = text:gsub("</script>", "")
    assert.equal(3, ends)
    assert.error_matches(function() dataflow.page({}, "h100") end, "there is no schedule")
    assert.error_matches(function()
      dataflow.page({tasks = {{name = "a", cost = {flops = 1, dtype = "f8"}}}}, "h100")
    end, "has no peak for dtype 'f8'")
  end)

  -- The DOM after the page and a script of the test have run.
  local function dump(path, hash)
    local text = tree.output(("timeout 200 %s --headless --no-sandbox --disable-gpu --dump-dom "
      .. "--user-data-dir=%s/profile --enable-logging=stderr 'file://%s#%s' 2>%s/browser.log")
      :format(browser, folder, path, hash, folder))
    assert.falsy(tree.read(folder .. "/browser.log"):match "CONSOLE[^\n]*Uncaught[^\n]*")
    return function(id)
      return tonumber(text:match('id="' .. id .. '" data%-value="([^"]*)"')), text
    end
  end

  with_browser("shows the numbers of the command line in a browser", function()
    local path = folder .. "/page.html"
    local words = "offload --model gpt2 --activations recompute --sweep micro_batches=2,4"
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    assert.equal("", tree.output(("'%s' simulate %s --page %s 2>&1"):format(program, words, path)))
    local r = flare.simulate(dataflow.schemes.offload(dataflow.transformer "gpt2",
      {activations = "recompute", micro_batches = 4}), "h100", {link = 20, memory = 10})
    local value = dump(path, "variant=1&link=20&memory=10")
    near(r.time, value "time", "time")
    near(r.useful, value "useful", "useful")
    near(r.tokens_per_second, value "tokens_per_second", "tokens")
    near(r.places["device 1"].peak, value "peak%-device%-1", "peak")
    local _, text = value "time"
    assert.match("flare simulate offload .- %-%-link 20 %-%-memory 10</code>", text)
  end)

  with_browser("has sliders that change the figures", function()
    local schedule = dataflow.schemes.offload(layers, {activations = "recompute"})
    local page = dataflow.page(schedule, "h100")
    local moved = write("moved.html", (page:gsub("</body>", [[<script>
      const input = document.getElementById("set-link");
      input.value = -3;
      input.dispatchEvent(new Event("input"));
      </script>%0]])))
    near(flare.simulate(schedule, "h100").time, dump(write("page.html", page), "") "time", "time")
    near(flare.simulate(schedule, "h100", {link = 8}).time, dump(moved, "") "time", "time")
  end)
end)
