-- flare --report and flare.log.report: one file, what a run logged in it, and in a browser.
local flare = require "flare"
local fakes = require "spec.support.fakes"
local message = require "spec.support.expect".message
local tree = require "spec.support.tree"

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
local browser = tree.output("command -v chromium chromium-browser 2>/dev/null"):match "[^\n]+"

local script = [[
local flare = require "flare"
local o = flare.args(arg, "Tries.", {steps = {30, "steps"}, mark = {"<b>&", "a mark"}})
local model = flare.nn.Sequential(flare.nn.Linear(8, 16), flare.nn.Tanh(), flare.nn.Linear(16, 1))
local optimizer = flare.optim.SGD(model, {lr = 0.01})
local folder = arg[0]:match "^(.*)/"
local log = assert(flare.log.metrics(folder .. "/metrics.jsonl"))
local board = assert(flare.log.tensorboard(folder .. "/board"))
for step = 1, o.steps do
  local loss = (model(flare.ones(4, 8)) - 3):square():mean()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  log:write {step = step, loss = 100 / step, accuracy = step / 100}
  board:scalar("loss", 100 / step, step)
end
print("written by", o.mark)
board:text("sample", "to be </pre><script>alert(1)</script>", 7)
board:image("picture", flare.arange(0, 12, {dtype = "u8"}):view(1, 3, 4) * 20, 9)
if o.steps == 3 then os.exit(5) end
if o.steps == 4 then error "out of luck" end
]]

describe("a report", function()
  local folder, page
  setup(function()
    folder = tree.output "mktemp -d":gsub("\n", "")
    page = folder .. "/out.html"
    fakes.build(folder, "libnvidia-ml.so.1", "nvml", "")
    local gpus <close> = assert(io.open(folder .. "/gpus", "w"))
    gpus:write "GPU-a 87 1073741824 4294967296 61 250500 1980 2619 5000000\n"
    local file <close> = assert(io.open(folder .. "/train.lua", "w"))
    file:write(script)
  end)
  teardown(function() os.execute("rm -rf " .. folder) end)

  -- What the program says, its status and the page.
  local function run(options, arguments)
    os.remove(page)
    local text = tree.output(("FLARE_CUDA_PATH='%s' '%s' %s '%s/train.lua' %s 2>&1; "
      .. "echo status=$?"):format(folder, program, options, folder, arguments))
    local body, status = text:match "^(.*)status=(%d+)\n$"
    return body, tonumber(status), tree.exists(page) and tree.read(page)
  end

  it("has curves, samples, profile, memory, machine, configuration and output", function()
    local said, status, html = run("--report " .. page, "")
    assert.equal("written by\t<b>&\n", said)
    assert.equal(0, status)
    for section in ("summary curves samples time memory machine configuration output")
      :gmatch "%S+" do
      assert.match('<h2 id="' .. section .. '">', html)
    end
    assert.match("<td>loss</td><td>3.333 at the end, 3.333 at least</td>", html)
    local _, curves = html:gsub(">loss</text>", "")
    assert.equal(2, curves) -- the title and the legend of one chart, though two files have the loss
    assert.match(">accuracy</text>", html)
    assert.match("<h3>sample, step 7</h3>\n<pre>to be &lt;/pre&gt;&lt;script&gt;alert", html)
    local picture = flare.arange(0, 12, {dtype = "u8"}):view(3, 4, 1) * 20
    local bytes = html:match('<h3>picture, step 9</h3>\n<img alt="picture, step 9" '
      .. 'src="data:image/png;base64,([^"]+)">')
    assert.equal(require "flare.log.png"(picture), require "flare.base64".decode(bytes))
    assert.match("<td>Sequential.1</td><td class=\"n\">30</td>", html)
    assert.match("train.lua:9</td>", html)
    assert.match(">power in W</text>", html)
    assert.match("<td>cuda:0</td><td>Fake GPU 0</td>", html)
    assert.match("<td>steps</td><td>30</td>", html)
    assert.match("<pre>written by\t&lt;b&gt;&amp;</pre>", html)
    assert.match("Energy is divided in proportion to time", html)
  end)

  it("is one file that loads nothing and runs nothing", function()
    local _, _, html = run("--report=" .. page, "--steps 2")
    assert.is_nil(html:find "<script")
    assert.is_nil(html:find "href=")
    assert.is_nil(html:find 'src="[^d]')
    assert.is_nil((html:gsub('xmlns="http://www.w3.org/2000/svg"', "")):find "http")
  end)

  it("is written after os.exit and an error, too", function()
    local _, code, whole = run("--report " .. page, "--steps 3")
    assert.equal(5, code)
    assert.match("<td>steps</td><td>3</td>", whole)
    local said, status, html = run("--report " .. page, "--steps 4")
    assert.equal(1, status)
    assert.match("out of luck", said)
    assert.match('<pre class="error">[^\n]*out of luck', html)
  end)

  it("says what is wrong", function()
    local said, status = run("--report /none/at/all.html", "")
    assert.equal(1, status)
    assert.match("^flare: %-%-report: /none/at/all.html: No such file", said)
    said, status = run("--profile --report " .. page, "")
    assert.equal(1, status)
    assert.match("it cannot be used with %-%-profile", said)
    assert.match("unknown option 'titel' %(did you mean 'title'%?%)",
      message(function() flare.log.report {titel = ""} end))
  end)

  it("is made by programs of what they log", function()
    local report = flare.log.report {title = "by hand", period = 0.01, profile = false,
                                     library = "none"}
    local log = assert(flare.log.metrics(folder .. "/other.jsonl"))
    for k = 1, 5 do log:write {val_loss = 6 - k} end
    report:text("a poem", "roses & co")
    report:options {lr = 0.5}
    local html = report:page()
    log:write {val_loss = 100} -- too late
    log:close()
    assert.equal(html, report:page())
    assert.match("<td>val_loss</td><td>1 at the end, 1 at least</td>", html)
    assert.match("<pre>roses &amp; co</pre>", html)
    assert.match("<td>lr</td><td>0.5</td>", html)
    assert.is_nil(html:find '<h2 id="time">')
    assert.match("no GPU is measured", html)
  end);

  (browser and it or pending)("is shown by a browser without errors", function()
    run("--report " .. page, "")
    local dom = tree.output(("timeout 200 %s --headless --no-sandbox --disable-gpu --dump-dom "
      .. "--user-data-dir=%s/profile --enable-logging=stderr 'file://%s' 2>%s/browser.log")
      :format(browser, folder, page, folder))
    assert.is_nil(tree.read(folder .. "/browser.log"):find "CONSOLE")
    local _, shown = dom:gsub("<svg", "")
    assert.equal(7, shown) -- two curves, five of the machine
    assert.match("<h2 id=\"output\">", dom) -- the last section: nothing ended the page before
  end)
end)
