--- Loss curves beside each other: FOLDER, then names of logs there with lines "step N: loss X".
-- BASE is what the others are compared with; NOISE, some names with commas between them, is how far
-- rounding alone goes; each further one has to stay within twice the farthest of those, on average
-- over the steps and at its worst.
--   lua5.4 spec/gpu/curves.lua FOLDER BASE NOISE NAME ...
local folder, names, noises = arg[1], {arg[2]}, 0
for name in arg[3]:gmatch "[^,]+" do
  noises = noises + 1
  names[1 + noises] = name
end
table.move(arg, 4, #arg, #names + 1, names)
local curves, steps = {}, {}
for i, name in ipairs(names) do
  curves[i] = {}
  for line in io.lines(folder .. "/" .. name .. ".log") do
    local step, loss = line:match "^step (%d+): loss ([%d.]+)"
    if step then
      curves[i][tonumber(step)] = tonumber(loss)
      if i == 1 then steps[#steps + 1] = tonumber(step) end
    end
  end
end
assert(#steps > 2, "there is no curve in " .. folder .. "/" .. names[1] .. ".log")

print("step\t" .. table.concat(names, "\t"))
for _, step in ipairs(steps) do
  local line = {step}
  for i in ipairs(names) do line[#line + 1] = ("%.4f"):format(curves[i][step] or 0 / 0) end
  print(table.concat(line, "\t"))
end

-- the mean and the greatest difference from the first, and the mean with its sign
local function spread(i)
  local sum, most, signed, count = 0, 0, 0, 0
  for _, step in ipairs(steps) do
    local d = (curves[i][step] or 0 / 0) - curves[1][step]
    sum, signed, count = sum + math.abs(d), signed + d, count + 1
    most = (d ~= d or math.abs(d) > most) and math.abs(d) or most
  end
  return sum / count, most, signed / count
end

local noise, noisiest, failed = 0, 0, false
for i = 2, #names do
  local mean, most, signed = spread(i)
  local good = i <= 1 + noises or mean <= 2 * noise and most <= 2 * noisiest
  if i <= 1 + noises then noise, noisiest = math.max(noise, mean), math.max(noisiest, most) end
  print(("%s: off %s by %.4f on average (%+.4f with its sign), %.4f at most%s"):format(
    names[i], names[1], mean, signed, most, good and "" or ": FAILED"))
  failed = failed or not good
end
os.exit(not failed)
