-- A host whose locale has a decimal comma: defaults, expressions, generated source, files and
-- messages are those of the C locale.
local build = os.getenv "FLARE_BUILD" or "build"

local function run_host(folder, locale, point)
  os.execute("mkdir -p " .. folder)
  local log = folder .. "/log"
  local ok, _, code = os.execute(
    ("LC_ALL=%s LOCPATH=%s LOCALE_OUT=%s %s/spec/lua_locale spec/support/locale_host.lua %s"
     .. " > %s 2>&1"):format(locale, folder:match "^(.*)/", folder, build, point, log))
  local file <close> = assert(io.open(log))
  return ok and "ok" or code == 77 and "skip" or file:read "a"
end

local function facts(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

describe("a host with a decimal comma", function()
  local folder = os.tmpname()
  os.remove(folder)
  os.execute("mkdir -p " .. folder)
  os.execute(("localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 > /dev/null 2>&1"):format(folder))

  teardown(function() os.execute("rm -rf " .. folder) end)

  it("reads and writes the same numbers as one with a decimal point", function()
    local got = run_host(folder .. "/comma", "de_DE.UTF-8", ",")
    if got == "skip" then
      pending "no locale with a decimal comma can be made here"
      return
    end
    assert.are.equal("ok", got)
    assert.are.equal("ok", run_host(folder .. "/point", "C", "."))
    for _, mode in ipairs{"own", "attached"} do
      local point = facts(folder .. "/point/" .. mode .. ".txt")
      assert.is_true(#point > 5000)
      assert.are.equal(point, facts(folder .. "/comma/" .. mode .. ".txt"))
    end
  end)
end)
