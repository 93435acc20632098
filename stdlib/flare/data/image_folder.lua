--- A data set of image files in folders: the name of a folder is the class of the files in it.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local images = require "flare.data.images"
local options = require "flare.options"
local recipe = require "flare.data.recipe"

local M = {}
local Folder = class("ImageFolder")
Folder.__word = "set"

local endings = {png = true, jpg = true, jpeg = true}

local function is_folder(path)
  return (core.file.stat(path) or {}).kind == "directory"
end

-- The names in a folder that are not hidden, in the order of their bytes.
local function names_in(folder)
  local all, message = core.file.list(folder)
  if not all then return nil, message end
  local names = {}
  for _, name in ipairs(all) do
    if name:sub(1, 1) ~= "." then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- Appends the paths of the images below a folder, those in folders of it included.
local function collect(folder, out)
  local names, message = names_in(folder)
  if not names then return nil, message end
  for _, name in ipairs(names) do
    local path = folder .. "/" .. name
    if endings[(name:match "%.(%w+)$" or ""):lower()] then
      out[#out + 1] = path
    elseif is_folder(path) then
      local ok, problem = collect(path, out)
      if not ok then return nil, problem end
    end
  end
  return true
end

--- The images below `root`, one folder a class, as torchvision's ImageFolder reads them.
-- Classes are numbered from 1 in alphabetical order; `set.classes` has their names, `set.paths` the
-- files. A sample is an image (channels, height, width) of f32 from 0 to 1 and its label. A file
-- that cannot be read is an error when its sample is read.
-- @param opts {channels = 3, transform =}: transform, an object of data.transforms, is applied to
--   each image, so that all have one size
-- @return a data set, or nil and a message
function M.open(root, opts)
  local where = "image_folder.open"
  local o = options.check(where, opts, {channels = 3, transform = options.none})
  if type(root) ~= "string" then
    fail("%s: the path must be a string, got %s", where, options.kind(root))
  end
  local f = o.transform
  if f ~= nil and (type(f) ~= "table" or type(f.describe) ~= "function") then
    fail("%s: transform must be an object of data.transforms, got %s", where,
         options.kind(o.transform))
  end
  local names, message = names_in(root)
  if not names then return nil, message end
  local set = {classes = {}, paths = {}, channels = o.channels, transform = o.transform}
  local labels = {}
  for _, name in ipairs(names) do
    if is_folder(root .. "/" .. name) then
      local ok, problem = collect(root .. "/" .. name, set.paths)
      if not ok then return nil, problem end
      set.classes[#set.classes + 1] = name
      for i = #labels + 1, #set.paths do labels[i] = #set.classes end
    end
  end
  if #set.paths == 0 then
    return nil, ("%s: there is no folder with .png, .jpg or .jpeg files in it"):format(root)
  end
  set.labels = core.tensor(labels, {dtype = "i64"})
  return setmetatable(set, Folder)
end

function Folder:size() return #self.paths end
Folder.__len = Folder.size

function Folder:__tostring()
  return ("ImageFolder: %d images of %d classes"):format(#self.paths, #self.classes)
end

--- Sample i: an image (channels, height, width), transformed, and its label, a number from 1.
function Folder:get(i)
  local x, message = images.read(self.paths[i], {channels = self.channels})
  if not x then fail("image_folder: %s", message) end
  x = x:to "f32" / 255
  if self.transform then x = self.transform(x) end
  return x, self.labels:narrow(1, i, 1):item()
end

--- The module and arguments from which a worker thread makes this data set again.
function Folder:describe()
  return "flare.data.image_folder", self.classes, self.paths, self.labels, self.channels,
         self.transform and recipe.of("image_folder.open", self.transform)
end

local function is_list_of_strings(list)
  if type(list) ~= "table" then return false end
  for _, value in ipairs(list) do
    if type(value) ~= "string" then return false end
  end
  return next(list) == nil or list[1] ~= nil
end

--- Makes a data set from the arguments that describe gave.
function M.from(classes, paths, labels, channels, transform)
  if not (is_list_of_strings(classes) and is_list_of_strings(paths)) then
    fail "image_folder.from: classes and paths must be lists of strings"
  end
  if not (core.is_tensor(labels) and labels:dim() == 1 and labels:size(1) == #paths) then
    fail("image_folder.from: labels must be a tensor of shape (%d), one for each path", #paths)
  end
  return setmetatable({classes = classes, paths = paths, labels = labels, channels = channels,
                       transform = transform and recipe.make(transform)}, Folder)
end

return M
