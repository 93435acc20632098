-- ./bootstrap on a machine that has no compiler, no CMake and no Lua: a folder with the tools of a
-- bare system is the only one on PATH.
local tree = require "spec.support.tree"

describe("bootstrap without Lua and a compiler", function()
  local place = os.tmpname()
  os.remove(place)
  os.execute("mkdir -p " .. place)
  for _, tool in ipairs {"sh", "awk", "tr", "sed", "grep", "dirname", "id", "cat", "find"} do
    os.execute(("ln -s \"$(command -v %s)\" %s/%s"):format(tool, place, tool))
  end
  os.execute(("ln -s /bin/false %s/apt-get"):format(place))

  teardown(function() os.execute("rm -rf " .. place) end)

  -- What a command says, and its status. With few descriptors a recursion without end fails soon.
  local function run(command)
    local line = "timeout 20 prlimit --nofile=64 env -i PATH=%s sh ./bootstrap %s </dev/null 2>&1; "
      .. "echo status=$?"
    return tree.output(line:format(place, command))
  end

  it("names the packages at once, and stops", function()
    for _, command in ipairs {"build", "demo"} do
      local text = run(command)
      assert.match("^Missing packages: gcc libc6%-dev cmake make ninja%-build pkg%-config lua5.4 "
        .. "liblua5.4%-dev libutf8proc%-dev libjansson%-dev zlib1g%-dev libpng%-dev "
        .. "libturbojpeg0%-dev libnanopb%-dev "
        .. "libmicrohttpd%-dev libpcre2%-dev", text)
      assert.match("apt%-get install gcc", text)
      assert.match("status=3\n$", text)
      assert.is_nil(text:find "open files")
      assert.is_nil(text:find "lua%-busted")
    end
    assert.match("lua%-busted.* lua%-check", run "test")
  end)

  it("never calls a function of its own by the name of a program", function()
    local text = tree.read "bootstrap"
    for name in text:gmatch "\n([%w_]+)%(%) {" do
      local looked_up = text:find("for name in [^\n]*%f[%w_]" .. name .. "%f[^%w_-]")
      assert.is_nil(looked_up, name)
    end
  end)
end)
