-- Options of a script's command line.
local flare = require "flare"
local args = require "flare.args"
local tree = require "spec.support.tree"

local defaults = {steps = 200, lr = 0.1, device = "cpu", quiet = false}

describe("flare.args", function()
  it("reads numbers, texts and switches, and knows which were given", function()
    local o, given = args.read({"--steps", "3", "--lr=1e-3", "--quiet"}, defaults)
    assert.same({steps = 3, lr = 1e-3, device = "cpu", quiet = true}, o)
    assert.same({steps = true, lr = true, quiet = true}, given)
    assert.equal("a=b", args.read({"--device=a=b"}, defaults).device)
    assert.equal("", args.read({"--device="}, defaults).device)
    assert.equal(-1, args.read({"--steps", "-1"}, defaults).steps)
    assert.same({top_k = 4, as_is = true},
                (args.read({"--top-k=4", "--as-is"}, {top_k = 2, as_is = false})))
    assert.same({steps = 200, lr = 0.1, device = "cpu", quiet = false}, (flare.args(nil, "", {
      steps = {200, "steps"}, lr = 0.1, device = {"cpu"}, quiet = {false, "less"}})))
  end)

  it("names what it does not know, and the nearest option", function()
    for words, message in pairs {
      ["--stesp 3"] = "unknown option '--stesp' (did you mean '--steps'?)",
      ["--STEPS 3"] = "unknown option '--STEPS' (did you mean '--steps'?)",
      ["--xyz=3"] = "unknown option '--xyz' (there are: --config, --device, --help, --lr, "
        .. "--quiet, --steps)",
      ["fast"] = "unexpected argument 'fast' (there are: --config, --device, --help, --lr, "
        .. "--quiet, --steps)",
      ["--steps"] = "--steps needs a value",
      ["--device --help"] = "--device needs a value, got '--help'; a value that begins with -- is "
        .. "given as --device=--help",
      ["--steps few"] = "--steps needs a number, got 'few'",
      ["--steps 1.5"] = "--steps needs a whole number, got '1.5'",
      ["--lr="] = "--lr needs a number, got ''",
      ["--quiet=yes"] = "--quiet is a switch, =true or =false, got 'yes'",
    } do
      local list = {}
      for word in words:gmatch "%S+" do list[#list + 1] = word end
      local o, said = args.read(list, defaults)
      assert.is_nil(o)
      assert.equal(message, said)
    end
  end)

  it("reads files in Lua and JSON, below the command line", function()
    local path = os.tmpname()
    local function with(text, ...)
      local file <close> = assert(io.open(path, "w"))
      file:write(text)
      file:close()
      return args.file(path, defaults), select(2, args.file(path, defaults)),
             select("#", ...) > 0 and {flare.args({...}, "", defaults)} or nil
    end
    local o, given, both = with("return {steps = 2 * 8, lr = math.pi}", "--lr", "2",
                                "--config=" .. path)
    assert.same({steps = 16, lr = math.pi, device = "cpu", quiet = false}, o)
    assert.same({steps = true, lr = true}, given)
    assert.same({steps = 16, lr = 2, device = "cpu", quiet = false}, both[1])
    assert.same({steps = true, lr = true}, both[2])
    both = select(3, with('{"quiet": true, "steps": 5.0}', "--config", path, "--quiet=false"))
    assert.same({steps = 5, lr = 0.1, device = "cpu", quiet = false}, both[1])
    for text, message in pairs {
      ["return {stesp = 3}"] = ":1: unknown option 'stesp' (did you mean 'steps'?)",
      ['{\n  "steps": 3,\n  "lr": "fast"}'] = ":3: lr must be a number, got a string",
      ["local lr = 2\nreturn {\n  lr = lr,\n  ['steps'] = 1.5}"] =
        ":4: steps must be a whole number, got 1.5",
      ["local o = {}\no.steps = 'many'\nreturn o"] = ":2: steps must be a number, got a string",
      ["local o = {}\no['st' .. 'eps'] = 'many'\nreturn o"] = ": steps must be a number, got a "
        .. "string",
      ["return {\n top_steps = 2}"] = ":2: unknown option 'top_steps' (did you mean 'steps'?)",
      ["return 3"] = ": it returns a number, not a table of options",
      ["return {steps = os.time()}"] = ":1: attempt to index a nil value (global 'os')",
    } do
      local none, said = with(text)
      assert.is_nil(none)
      assert.equal(path .. message, said)
    end
    assert.match(":1: unexpected symbol", (select(2, with "return {steps = ")))
    assert.match("^" .. path:gsub("%p", "%%%0") .. ": ", (select(2, with '{"steps": ')))
    os.remove(path)
    assert.match("No such file", (select(2, args.file(path, defaults))))
  end)

  it("writes the usage with meanings and defaults", function()
    assert.equal([[
usage: flare fit.lua [options]
Fits a line.

  --device TEXT      default cpu
  --lr X             learning rate (default 0.1)
  --out TEXT         folder
  --quiet            print less
  --steps N          default 200
  --config FILE      options, in Lua or JSON
  --help             print this and exit]], args.usage("fit.lua", "Fits a line.", {
      steps = 200, lr = {0.1, "learning rate"}, device = "cpu", out = {"", "folder"},
      quiet = {false, "print less"}}))
  end)
end)

describe("flare's commands", function()
  local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
  local folder
  setup(function()
    folder = os.tmpname()
    assert(os.remove(folder) and os.execute("mkdir " .. folder))
    if program:sub(1, 1) ~= "/" then
      program = tree.output "pwd":match "[^\n]+" .. "/" .. program
    end
  end)
  teardown(function() os.execute("rm -rf " .. folder) end)

  local function said(words)
    return tree.output(("cd %s && timeout 20 '%s' %s 2>&1 </dev/null; echo status=$?")
      :format(folder, program, words))
  end

  it("are the program's own, whatever Lua files the folder has", function()
    assert(os.execute(("mkdir -p %s/flare/repl"):format(folder)))
    local file <close> = assert(io.open(folder .. "/flare/repl/main.lua", "w"))
    file:write "error 'a file of the folder'"
    file:close()
    local text = said [[-e 'print(2 + 3)']]
    os.execute(("rm -rf %s/flare"):format(folder))
    assert.equal("5\nstatus=0\n", text)
  end)

  it("print their usage for --help", function()
    for _, command in ipairs {"help", "demo", "doctor", "launch", "kernels", "bench", "record",
                             "simulate", "top"} do
      local text = said(command .. " --help")
      assert.match("^usage: flare " .. command .. ".*\nstatus=0\n$", text)
    end
  end)

  it("take no option for the value of another, so no file has the name of one", function()
    for _, words in ipairs {
      "help --luacats --help", "help --lua", "kernels --pack sm_80 --out --help",
      "kernels --pack --out x", "kernels --check --quick", "launch --logs --dry-run -n 1 x.lua",
      "launch -n 1 --secret --verbose x.lua", "doctor x",
    } do
      assert.match("\nstatus=[12]\n$", said(words), 1, words)
    end
    assert.equal("", tree.output("ls -A " .. folder))
  end)
end)
