--- flare jupyter: a kernel for notebooks.
local core = require "flare.core"

local usage = [[
usage: flare jupyter install [options]    lets Jupyter find the kernel
  --user            for this user, the default
  --prefix FOLDER   in FOLDER/share/jupyter, of a virtual environment for example
  --name NAME       of the kernel, flare by default
       flare jupyter kernel FILE          serves a connection; Jupyter calls it]]

local function fail(text)
  io.stderr:write("flare jupyter: ", text, "\n")
  return 1
end

-- The folder in which Jupyter looks for a user's kernels.
local function user_folder()
  local set, home = os.getenv "JUPYTER_DATA_DIR", os.getenv "HOME"
  if set and set ~= "" then return set end
  local data = os.getenv "XDG_DATA_HOME"
  if data and data ~= "" then return data .. "/jupyter" end
  return home and home .. "/.local/share/jupyter"
end

-- The path of this program.
local function program()
  return core.file.real "/proc/self/exe" or arg and arg[-1] or "flare"
end

local function install(words)
  local folder, name, k = user_folder(), "flare", 1
  while words[k] do
    local option, value = words[k]:match "^(%-%-%a+)=?(.*)$"
    if option == "--prefix" or option == "--name" then
      if value == "" then
        k = k + 1
        value = words[k]
      end
      if not value then return fail(option .. " needs a value\n" .. usage) end
      if option == "--name" then name = value else folder = value .. "/share/jupyter" end
    elseif option ~= "--user" then
      return fail(("unknown word '%s'\n%s"):format(words[k], usage))
    end
    k = k + 1
  end
  if not name:find "^[%w._-]+$" then return fail("a name has letters, digits, . _ and -") end
  if not folder then return fail "there is no HOME: pass --prefix" end
  local net, problem = core.zmq()
  if not net then return fail(problem) end
  net:close()
  folder = folder .. "/kernels/" .. name
  local ok
  ok, problem = core.file.mkdir(folder)
  if ok then
    ok, problem = core.file.write_atomic(folder .. "/kernel.json", core.json.encode {
      argv = {program(), "jupyter", "kernel", "{connection_file}"}, language = "lua",
      display_name = name == "flare" and "flare (Lua)" or name, interrupt_mode = "signal"})
  end
  if not ok then return fail(problem) end
  print("installed " .. folder)
  return 0
end

local function serve(path)
  local text, problem = core.file.read(path or "")
  if not text then return fail(problem) end
  local connection = core.json.decode(text)
  if type(connection) ~= "table" or not connection.shell_port then
    return fail(path .. ": this is no connection file")
  end
  local ok
  ok, problem = require("flare.repl.jupyter.kernel").serve(connection)
  return ok and 0 or fail(problem)
end

return function(arguments)
  local what = arguments[1]
  local rest = table.move(arguments, 2, #arguments, 1, {})
  if what == "install" and rest[1] ~= "--help" then return install(rest) end
  if what == "kernel" and rest[1] and not rest[2] then return serve(rest[1]) end
  if what == "--help" or what == "-h" or rest[1] == "--help" then
    print(usage)
    return 0
  end
  io.stderr:write(usage, "\n")
  return 1
end
