--- Object detection: non-maximum suppression and pooling of regions of interest.
local core = require "flare.core"

local M = {}

-- Corners (y1, x1, y2, x2) in order, and the area.
local function corners(box, centred)
  local y1, x1, y2, x2
  if centred then -- x, y, width, height
    x1, x2 = box[1] - box[3] / 2, box[1] + box[3] / 2
    y1, y2 = box[2] - box[4] / 2, box[2] + box[4] / 2
  else
    y1, y2 = math.min(box[1], box[3]), math.max(box[1], box[3])
    x1, x2 = math.min(box[2], box[4]), math.max(box[2], box[4])
  end
  return {y1, x1, y2, x2, area = (y2 - y1) * (x2 - x1)}
end

local function overlap(a, b)
  local height = math.min(a[3], b[3]) - math.max(a[1], b[1])
  local width = math.min(a[4], b[4]) - math.max(a[2], b[2])
  if height <= 0 or width <= 0 then return 0 end
  local shared = height * width
  return shared / (a.area + b.area - shared)
end

function M.NonMaxSuppression(n, boxes, scores, most, iou, score)
  local limit, share = n:number(most, 0), n:number(iou, 0)
  local least = score and n:number(score)
  local centred, all, chosen = n.attr.center_point_box == 1, boxes:totable(), {}
  local by_batch = scores:numel() > 0 and scores:totable() or {}
  for b, classes in ipairs(by_batch) do
    local rects = {}
    for k, box in ipairs(all[b]) do rects[k] = corners(box, centred) end
    for c, list in ipairs(classes) do
      local order, kept = {}, {}
      for k, value in ipairs(list) do
        if value == value and (not least or value > least) then order[#order + 1] = k end
      end
      table.sort(order, function(p, q)
        if list[p] ~= list[q] then return list[p] > list[q] end
        return p < q
      end)
      for _, k in ipairs(order) do
        if #kept >= limit then break end
        local free = true
        for _, other in ipairs(kept) do
          if overlap(rects[k], rects[other]) > share then free = false break end
        end
        if free then
          kept[#kept + 1] = k
          chosen[#chosen + 1] = {b - 1, c - 1, k - 1}
        end
      end
    end
  end
  if #chosen == 0 then return core.zeros({0, 3}, {dtype = "i64", device = n.device}) end
  return core.tensor(chosen, {dtype = "i64"}):to(n.device)
end

-- Coordinates of all samples along one side of a region, and a mask of those that are too far
-- outside.
local function line(first, bin, count, samples, size)
  local at, off = {}, {}
  for p = 0, count - 1 do
    for k = 0, samples - 1 do
      local v = first + p * bin + (k + 0.5) * bin / samples
      off[#off + 1] = (v < -1 or v > size) and 0 or 1
      at[#at + 1] = math.min(math.max(v, 0), size - 1)
    end
  end
  return at, off
end

-- One region of an image (channels, height, width): the four neighbours of each sample, and
-- their weights.
local function neighbours(image, ys, xs, y_on, x_on)
  local like = {dtype = image.dtype}
  local function tensor(list) return core.tensor(list, like):to(image.device) end
  local y, x = tensor(ys):unsqueeze(2), tensor(xs):unsqueeze(1)
  local on = tensor(y_on):unsqueeze(2) * tensor(x_on):unsqueeze(1)
  local height, width = image.shape[2], image.shape[3]
  local flat, parts = image:reshape(image.shape[1], -1), {}
  for dy = 0, 1 do
    for dx = 0, 1 do
      local at_y, at_x = y:floor() + dy, x:floor() + dx
      local weight = (1 - (y - at_y):abs()) * (1 - (x - at_x):abs()) * on
      local index = at_y:clamp(0, height - 1):to("i64") * width
        + at_x:clamp(0, width - 1):to("i64")
      local values = flat:index_select(2, index:reshape(-1), {base = 0})
      parts[#parts + 1] = values * weight:reshape(1, -1)
    end
  end
  return parts
end

local function region(image, box, o)
  local offset = o.half and 0.5 or 0
  local x1, y1 = box[1] * o.scale - offset, box[2] * o.scale - offset
  local width, height = box[3] * o.scale - offset - x1, box[4] * o.scale - offset - y1
  if not o.half then width, height = math.max(width, 1), math.max(height, 1) end
  local bin_y, bin_x = height / o.height, width / o.width
  local ny = o.ratio > 0 and o.ratio or math.max(math.ceil(bin_y), 1)
  local nx = o.ratio > 0 and o.ratio or math.max(math.ceil(bin_x), 1)
  local ys, y_on = line(y1, bin_y, o.height, ny, image.shape[2])
  local xs, x_on = line(x1, bin_x, o.width, nx, image.shape[3])
  local parts = neighbours(image, ys, xs, y_on, x_on)
  local y = parts[1]
  for k = 2, 4 do y = o.max and y:maximum(parts[k]) or y + parts[k] end
  y = y:reshape(image.shape[1], o.height, ny, o.width, nx)
  if o.max then return y:amax{dims = {3, 5}} end
  return y:mean{dims = {3, 5}}
end

function M.RoiAlign(n, x, rois, batches)
  local a = n.attr
  local mode = n:choice("coordinate_transformation_mode",
                        (n.version or 16) < 16 and "output_half_pixel" or "half_pixel",
                        {half_pixel = true, output_half_pixel = true})
  local o = {half = mode == "half_pixel", scale = a.spatial_scale or 1,
             height = a.output_height or 1, width = a.output_width or 1,
             ratio = a.sampling_ratio or 0,
             max = n:choice("mode", "avg", {avg = true, max = true}) == "max"}
  local boxes, which, out = rois:numel() > 0 and rois:totable() or {}, n:list(batches), {}
  for k, box in ipairs(boxes) do out[k] = region(x:select(1, which[k] + 1), box, o) end
  if #out == 0 then
    return core.zeros({0, x.shape[2], o.height, o.width}, {dtype = x.dtype, device = x.device})
  end
  return core.stack(out, 1):to(x.dtype)
end

function M.MaxRoiPool(n, x, rois)
  local size, scale, out = n.attr.pooled_shape, n.attr.spatial_scale or 1, {}
  local function round(v) return math.floor(v * scale + 0.5) end
  for k, box in ipairs(rois:numel() > 0 and rois:totable() or {}) do
    local image = x:select(1, math.tointeger(box[1]) + 1)
    local rows = {}
    local x1, y1 = round(box[2]), round(box[3])
    local width, height = math.max(round(box[4]) - x1 + 1, 1), math.max(round(box[5]) - y1 + 1, 1)
    local function span(first, length, count, p, limit)
      local low = math.floor(p * length / count) + first
      local high = math.ceil((p + 1) * length / count) + first
      return math.min(math.max(low, 0), limit), math.min(math.max(high, 0), limit)
    end
    for p = 0, size[1] - 1 do
      local top, bottom = span(y1, height, size[1], p, image.shape[2])
      for q = 0, size[2] - 1 do
        local left, right = span(x1, width, size[2], q, image.shape[3])
        local part = image:narrow(2, top + 1, math.max(bottom - top, 0))
                          :narrow(3, left + 1, math.max(right - left, 0))
        rows[#rows + 1] = part:numel() > 0 and part:amax{dims = {2, 3}}
          or core.zeros({x.shape[2]}, {dtype = x.dtype, device = x.device})
      end
    end
    out[k] = core.stack(rows, 2):reshape(x.shape[2], size[1], size[2])
  end
  return core.stack(out, 1)
end

return M
