--- Reads a job's description from the environment: rank, size, hosts, and a key that only its
-- processes know. The launchers are `flare launch`, torchrun, Open MPI, PMI and Slurm.
local core = require "flare.core"

local M = {}

local function number(name) return math.tointeger(tonumber(os.getenv(name) or "")) end

local function hex(bytes)
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

-- The parent process: its number and start time identify it.
local function parent()
  local _, pid = core.net.pid()
  local file <close> = io.open("/proc/" .. pid .. "/stat")
  local text = file and file:read "a" or ""
  local k, born = 0, ""
  for word in (text:match "%)(.*)" or ""):gmatch "%S+" do
    k = k + 1
    if k == 20 then born = word end
  end
  return pid .. "/" .. born
end

--- A key derived from a job's secret, for names of what the job shares; it does not reveal the
-- secret.
function M.key(secret, what)
  return hex(core.secret.hmac(secret, "flare " .. what)):sub(1, 40)
end

local secret -- it can be read once

local function own_secret()
  local fd = number "FLARE_SECRET_FD"
  if not secret and fd then
    secret = core.net.read(fd, 64)
    core.net.close(fd)
  end
  return secret
end

local launchers = {
  {name = "flare launch", rank = "RANK", size = "WORLD_SIZE", here = "LOCAL_RANK",
    many = "LOCAL_WORLD_SIZE", needs = "FLARE_SECRET_FD"},
  {name = "torchrun", rank = "RANK", size = "WORLD_SIZE", here = "LOCAL_RANK",
    many = "LOCAL_WORLD_SIZE", job = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR", "MASTER_PORT"}, siblings = true},
  {name = "Open MPI", rank = "OMPI_COMM_WORLD_RANK", size = "OMPI_COMM_WORLD_SIZE",
    here = "OMPI_COMM_WORLD_LOCAL_RANK", many = "OMPI_COMM_WORLD_LOCAL_SIZE",
    job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMIX_SERVER_TMPDIR"}, siblings = true},
  {name = "PMI", rank = "PMI_RANK", size = "PMI_SIZE", here = "MPI_LOCALRANKID",
    many = "MPI_LOCALNRANKS", job = {"PMI_ID", "PMI_PORT"}, siblings = true, lone = true},
  {name = "Slurm", rank = "SLURM_PROCID", size = "SLURM_STEP_NUM_TASKS", here = "SLURM_LOCALID",
    job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
}

-- A secret, or text, that the processes of a job have in common and no others.
local function common(launcher)
  if launcher.needs then return own_secret() end
  local words = {launcher.name}
  for _, name in ipairs(launcher.job) do
    if name ~= "PMI_ID" then words[#words + 1] = os.getenv(name) or "" end
  end
  if launcher.siblings then words[#words + 1] = parent() end
  return table.concat(words, "\n")
end

--- @return {rank, size, here, many (ranks of this host), hosts, launcher, secret, key}, without a
-- launcher rank 0 of 1; nil and a message if the variables contradict each other
function M.read()
  for _, l in ipairs(launchers) do
    local rank, size = number(l.rank), number(l.size)
    if rank and size and (not l.needs or os.getenv(l.needs)) then
      if size < 1 or rank < 0 or rank >= size then
        return nil, ("%s is %d and %s %d: there is no such rank"):format(l.rank, rank, l.size, size)
      end
      local many = number(l.many or "") or
        (l.name == "Slurm" and (number "SLURM_STEP_NUM_NODES" or 1) > 1 and size - 1) or size
      local shared = common(l)
      if not shared then return nil, "the job's secret was read already, or is not there" end
      return {rank = rank, size = size, here = number(l.here or "") or rank, many = many,
        hosts = number "FLARE_HOSTS" or (many < size and 2 or 1), launcher = l.name,
        secret = shared, key = M.key(shared, "board")}
    end
  end
  return {rank = 0, size = 1, here = 0, many = 1, hosts = 1}
end

return M
