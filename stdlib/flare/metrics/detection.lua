--- Mean average precision of detected boxes, by the rules of COCO's evaluation.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"

--- metrics.MeanAveragePrecision{thresholds = {0.5, 0.55, ..., 0.95}}
-- `thresholds`: the intersections over union from which on a detection is right. `compute` returns
-- a table: map, the mean over thresholds and classes of the average precision at 101 recalls;
-- map_50 and map_75, that at one threshold; map_small, map_medium and map_large, of objects with
-- areas below 32^2, between, and above 96^2; mar_1, mar_10 and mar_100, the mean recall of so many
-- detections of an image; classes, map by label. A figure without objects is NaN.
local MeanAveragePrecision = class("MeanAveragePrecision", Metric)
MeanAveragePrecision.defaults = {thresholds = options.none}
MeanAveragePrecision.rows = {"found", "objects"}

local ranges = {all = {0, 1e10}, small = {0, 32 ^ 2}, medium = {32 ^ 2, 96 ^ 2},
                large = {96 ^ 2, 1e10}}

function MeanAveragePrecision:prepare(o)
  if o.thresholds then return end
  o.thresholds = {}
  for k = 1, 10 do o.thresholds[k] = 0.5 + (k - 1) * (0.45 / 9) end
end

function MeanAveragePrecision:reset()
  self.images = 0
  return Metric.reset(self)
end

-- Raises an error if the rows' labels are not integers, or a score or a box is NaN.
local function check(where, rows)
  if rows:isnan():any():item() then fail("%s: a box, a label or a score is NaN", where) end
  local marks = rows:select(2, 2)
  if not marks:eq(marks:floor()):all():item() then
    fail("%s: labels must be integers", where)
  end
end

-- Rows {image, label, x1, y1, x2, y2, further columns ...} of an image.
local function rows_of(where, image, number, wanted, ...)
  if type(image) ~= "table" or not core.is_tensor(image.boxes) then
    fail("%s: tables {boxes = (n, 4), labels = (n), ...} are expected, one for each image", where)
  end
  local n = #image.boxes
  if n == 0 then return nil end
  for _, name in ipairs(wanted) do
    if image[name] == nil then fail("%s: an image has boxes, but no %s", where, name) end
  end
  local columns = {core.full({n, 1}, number, {dtype = "f64"}), image.labels, image.boxes, ...}
  for k, column in ipairs(columns) do
    if not core.is_tensor(column) then
      fail("%s: labels and scores must be tensors, got %s", where, options.kind(column))
    end
    if k == 3 and (column:dim() ~= 2 or column:size(2) ~= 4) or #column ~= n then
      fail("%s: boxes (n, 4) and n labels are expected, got %s and %s", where,
           tostring(image.boxes.shape), tostring(column.shape))
    end
    columns[k] = column:detach():to "f64":cpu():reshape(n, k == 3 and 4 or 1)
  end
  local rows = core.cat(columns, 2)
  check(where, rows)
  return rows
end

--- Adds a batch.
-- @param predictions a list of {boxes = (n, 4) x1, y1, x2, y2; scores = (n); labels = (n)}, one
-- for each image
-- @param targets a list of {boxes =, labels =}, and where there are: crowd = (n) 1 for groups that
-- may be found often, area = (n) by which the size is judged
function MeanAveragePrecision:update(predictions, targets)
  local where = "metrics.MeanAveragePrecision:update"
  if type(predictions) ~= "table" or type(targets) ~= "table" or #predictions ~= #targets then
    fail("%s: two lists of as many images are expected", where)
  end
  local dist = require "flare.dist"
  for k, found in ipairs(predictions) do
    self.images = self.images + 1
    local number = self.images * dist.size() + dist.rank() -- no other rank has it
    local rows = rows_of(where, found, number, {"labels", "scores"}, found.scores)
    if rows then self:keep("found", rows) end
    local objects = targets[k]
    rows = rows_of(where, objects, number, {"labels"},
      objects.crowd or core.zeros(#objects.boxes),
      objects.area or core.full({#objects.boxes}, -1))
    if rows then self:keep("objects", rows) end
  end
end

--- Puts the metric back to a state; images that are added later are others.
-- @return the metric
function MeanAveragePrecision:load_state_dict(saved, message)
  Metric.load_state_dict(self, saved, message)
  local most = 0
  for _, name in ipairs(self.rows) do
    local rows = saved[name]
    if rows and #rows > 0 then most = math.max(most, rows:select(2, 1):amax():item()) end
  end
  self.images = most // require "flare.dist".size() | 0
  return self
end

local function area_of(box) return (box[5] - box[3]) * (box[6] - box[4]) end

-- Intersection over union; over the found box's own area where the object is a crowd.
local function overlap(a, b, crowd)
  local width = math.min(a[5], b[5]) - math.max(a[3], b[3])
  local height = math.min(a[6], b[6]) - math.max(a[4], b[4])
  if width <= 0 or height <= 0 then return 0 end
  local both = width * height
  return both / (crowd and area_of(a) or area_of(a) + area_of(b) - both)
end

-- Matches the detections of an image, best first, to its objects. Appends {score, hit} to `out` for
-- each detection that counts.
-- @return the number of objects that count
local function match(image, threshold, range, most, out)
  local objects, count, taken = {}, 0, {}
  local function outside(area) return area < range[1] or area > range[2] end
  for pass = 0, 1 do -- those that count come first
    for k, object in ipairs(image.objects) do
      local ignored = object.crowd or outside(object.area)
      if ignored == (pass == 1) then
        objects[#objects + 1] = {k = k, crowd = object.crowd, ignored = ignored}
        if not ignored then count = count + 1 end
      end
    end
  end
  for d = 1, math.min(most, #image.found) do
    local best, at = math.min(threshold, 1 - 1e-10), nil
    for _, object in ipairs(objects) do
      if not taken[object] or object.crowd then
        if at and not at.ignored and object.ignored then break end
        local iou = image.overlaps[d][object.k]
        if iou >= best then best, at = iou, object end
      end
    end
    if at then taken[at] = true end
    local ignored
    if at then ignored = at.ignored else ignored = outside(area_of(image.found[d])) end
    if not ignored then
      out[#out + 1] = {image.found[d][7], at ~= nil, #out} -- the last makes the order stable
    end
  end
  return count
end

-- Average precision and recall of a class, NaN without objects.
local function figures(images, threshold, range, most)
  local list, count = {}, 0
  for _, image in ipairs(images) do count = count + match(image, threshold, range, most, list) end
  if count == 0 then return 0 / 0, 0 / 0 end
  table.sort(list, function(a, b)
    if a[1] ~= b[1] then return a[1] > b[1] end
    return a[3] < b[3]
  end)
  local recalls, precisions, hits = {}, {}, 0
  for k, item in ipairs(list) do
    if item[2] then hits = hits + 1 end
    recalls[k], precisions[k] = hits / count, hits / k
  end
  for k = #list - 1, 1, -1 do precisions[k] = math.max(precisions[k], precisions[k + 1]) end
  local sum, k = 0, 1
  for step = 0, 100 do
    while recalls[k] and recalls[k] < step * 0.01 do k = k + 1 end
    sum = sum + (precisions[k] or 0)
  end
  return sum / 101, hits / count
end

-- For each label, a list of images {found =, objects =, overlaps =}.
local function arrange(states)
  local labels, names = {}, {}
  local function image_of(row)
    local label, number = math.tointeger(row[2]), row[1]
    if not labels[label] then
      labels[label] = {at = {}}
      names[#names + 1] = label
    end
    local list = labels[label]
    if not list.at[number] then
      list.at[number] = {number = number, found = {}, objects = {}, overlaps = {}}
      table.insert(list, list.at[number])
    end
    return list.at[number]
  end
  for _, row in ipairs(states.objects and states.objects:totable() or {}) do
    row.crowd, row.area = row[7] ~= 0, row[8] >= 0 and row[8] or area_of(row)
    table.insert(image_of(row).objects, row)
  end
  for k, row in ipairs(states.found and states.found:totable() or {}) do
    row.k = k
    table.insert(image_of(row).found, row)
  end
  for _, list in pairs(labels) do
    table.sort(list, function(a, b) return a.number < b.number end)
    for _, image in ipairs(list) do
      table.sort(image.found, function(a, b)
        if a[7] ~= b[7] then return a[7] > b[7] end
        return a.k < b.k
      end)
      for d, box in ipairs(image.found) do
        image.overlaps[d] = {}
        for k, object in ipairs(image.objects) do
          image.overlaps[d][k] = overlap(box, object, object.crowd)
        end
      end
    end
  end
  table.sort(names)
  return labels, names
end

local function mean(values)
  local sum, count = 0, 0
  for _, value in ipairs(values) do
    if value == value then sum, count = sum + value, count + 1 end
  end
  return count > 0 and sum / count or 0 / 0
end

function MeanAveragePrecision:value(states)
  local labels, names = arrange(states)
  local thresholds, out = self.options.thresholds, {classes = {}}
  -- the mean over classes and thresholds of the first or second figure
  local function over(which, list, range, most, only)
    local values = {}
    for _, threshold in ipairs(list) do
      for _, label in ipairs(only or names) do
        values[#values + 1] = select(which, figures(labels[label], threshold, ranges[range], most))
      end
    end
    return mean(values)
  end
  for name, range in pairs {map = "all", map_small = "small", map_medium = "medium",
                            map_large = "large"} do
    out[name] = over(1, thresholds, range, 100)
  end
  out.map_50, out.map_75 = over(1, {0.5}, "all", 100), over(1, {0.75}, "all", 100)
  for _, most in ipairs {1, 10, 100} do out["mar_" .. most] = over(2, thresholds, "all", most) end
  for _, label in ipairs(names) do
    out.classes[label] = over(1, thresholds, "all", 100, {label})
  end
  return out
end

return MeanAveragePrecision
