-- flare top: on a terminal, and printed once; with a run's metrics file that grows.
local fakes = require "spec.support.fakes"
local Session = require "spec.support.session"
local tree = require "spec.support.tree"

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

describe("flare top", function()
  local folder, run
  local function add(text)
    local file <close> = assert(io.open(run .. "/metrics.jsonl", "a"))
    file:write(text)
  end

  setup(function()
    folder = tree.output "mktemp -d":gsub("\n", "")
    run = folder .. "/run"
    os.execute("mkdir " .. run)
    fakes.build(folder, "libnvidia-ml.so.1", "nvml", "")
    local file <close> = assert(io.open(folder .. "/gpus", "w"))
    file:write "GPU-a 87 1073741824 4294967296 61 250500 1980 2619 5000000\n"
    for k = 1, 20 do
      add(('{"step": %d, "seconds": %g, "loss": %g, "cuda:0/power": 400}\n')
        :format(k, k / 2, 1 / k))
    end
  end)
  teardown(function() os.execute("rm -rf " .. folder) end)

  local function said(words)
    local text = tree.output(("FLARE_CUDA_PATH='%s' '%s' top %s 2>&1; echo status=$?")
      :format(folder, program, words))
    local body, status = text:match "^(.*)status=(%d+)\n$"
    return body, tonumber(status)
  end

  it("prints the machine and a run once", function()
    local text, status = said("--once " .. run)
    assert.equal(0, status)
    assert.match("^host     %[[| ]+%]  cpu +%d+ %%  memory [%d.]+ %a+ of [%d.]+ %a+", text)
    assert.match("\ncuda:0   %[||||||||| %]  use  87 %%  memory 1.0 GiB of 4.0 GiB  61 °C  "
      .. "250.5 W  1980 MHz  memory 2619 MHz  Fake GPU 0\n", text)
    assert.match("\nloss 0.05  seconds 10  step 20  steps_per_second 2\ncuda:0   400.0 W\n", text)
    assert.match("\n +1 ┤⢣", text) -- the curve begins at a loss of 1
    assert.is_nil(text:find "process")
    text = said("--process " .. tree.output "echo $PPID")
    assert.match("\nprocess  [%d.]+ cores  memory [%d.]+ MiB\n", text)
  end)

  it("says what is wrong", function()
    assert.match("^flare top: there is no /none/at/all\n", said "/none/at/all")
    assert.match("^flare top: unknown option %-%-evry %(did you mean %-%-every%?%)",
      said "--evry 1")
    assert.match("^flare top: %-%-every needs seconds", said "--every 0")
    local text, status = said "--once a b"
    assert.equal(1, status)
    assert.match("one file is expected, got b, too", text)
  end)

  it("draws while a run goes on, until q", function()
    local session = assert(Session.open {columns = 70, rows = 20, wait = false,
      setup = ("export FLARE_CUDA_PATH='%s'"):format(folder),
      arguments = "top --every 0.05 " .. run})
    session:see "step 20"
    assert.match("^host     %[", session.screen:text())
    add '{"step": 21, "seconds": 10.5, "loss": 0.04'
    add '}\n{"step": 22, "seconds": 11, "lo'
    session:see "step 21"
    session:see "loss 0.04 "
    session.terminal:write "q"
    session:wait(function(screen) return screen.modes[1049] == false end, "the end")
    session:close()
  end)
end)
