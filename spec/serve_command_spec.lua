-- flare serve: its options, and a server that runs until a signal ends it.
local flare = require "flare"
local core = flare.core
local http = require "spec.support.http"

if not core.http.here() then return end -- libmicrohttpd is absent

describe("flare serve", function()
  local tree = require "spec.support.tree"
  local program = tree.build .. "/flare"

  local function says(arguments)
    return tree.output(("'%s' serve %s 2>&1; echo status=$?"):format(program, arguments))
  end

  it("explains its options", function()
    assert.matches("^usage: flare serve FOLDER .*status=0\n$", says "--help")
    assert.matches("^flare serve: the folder of a model is missing\nusage: .*status=1\n$", says "")
    assert.matches("unknown option %-%-prot %(did you mean %-%-port%?%)", says "x --prot 3")
    assert.matches("%-%-port needs a number", says "x --port many")
    assert.matches("^flare serve: [^\n]*/nowhere/config.json[^\n]*\nstatus=1\n$",
                   says "/nowhere --port 0")
  end)

  it("serves a folder until a signal ends it", function()
    local folder = os.tmpname()
    os.remove(folder)
    local model = flare.models.LlamaForCausalLM {vocab_size = 300, hidden_size = 16,
      intermediate_size = 24, num_hidden_layers = 1, num_attention_heads = 2}
    assert(model:save(folder))
    local i = 0
    local trained = flare.text.train_bpe(function()
      i = i + 1
      return ({"low lower"})[i]
    end, {vocab = 260})
    assert(trained:save(folder .. "/tokenizer.json"))
    local handle = assert(io.popen(("echo $$; exec '%s' serve '%s' --port 0 --name tiny "
      .. "--memory 1MB 2>&1"):format(program, folder)))
    local pid, line = handle:read "l", handle:read "l"
    local port = line:match "^tiny at http://127%.0%.0%.1:(%d+), cache for %d+ tokens$"
    assert(port, line)
    local client = http.open(math.tointeger(tonumber(port)), {path = "/v1/completions",
      body = '{"prompt": "low", "max_tokens": 4, "ignore_eos": true}'})
    local status, body = http.wait({client}, function() core.net.poll({client.fd}, {}, 100) end)
    assert.equal(200, status)
    assert.equal(4, core.json.decode(body).usage.completion_tokens)
    client:close()
    os.execute("kill -TERM " .. pid)
    assert.equal("", handle:read "a")
    assert.truthy(handle:close())
    for _, file in ipairs(core.file.list(folder)) do os.remove(folder .. "/" .. file) end
    os.remove(folder)
  end)
end)
