--- Transforms of batches of images: sizes, augmentation for training, and normalization.
--
--     local t = flare.data.transforms
--     local f = t.Compose{t.RandomCrop(32, {padding = 4}), t.RandomHorizontalFlip(),
--                         t.Normalize({0.5, 0.5, 0.5}, {0.2, 0.2, 0.2})}
--     local loader = flare.data.Loader(set, {batch = 64, shuffle = true, transform = f})
--
-- Images are floats from 0 to 1 or u8, (batch, channels, height, width), or one image without the
-- batch dim; all but Normalize and ToFloat return the dtype that they got. Further arguments, such
-- as labels, are returned as they are. Random numbers are drawn for each image.
local files = {}
for file, names in pairs{
  base = "Compose",
  geometry = "Resize CenterCrop RandomCrop RandomHorizontalFlip RandomVerticalFlip "
    .. "RandomResizedCrop RandomAffine",
  colours = "Normalize ToFloat Grayscale ColorJitter RandomErasing GaussianBlur",
  mixes = "MixUp CutMix",
} do
  for name in names:gmatch "%w+" do files[name] = "flare.data.transform." .. file end
end

return require "flare.lazy"("data.transforms", {}, files)
