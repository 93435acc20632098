--- A synthetic data set of digits: pen strokes that are bent, rotated and shifted at random, enough
-- like handwriting to try a network without a download.
local core = require "flare.core"
local options = require "flare.options"

local SIZE = 28    -- pixels of a side
local POINTS = 64  -- along the strokes of a digit
local CHUNK = 128  -- digits drawn at once: CHUNK * SIZE^2 * POINTS distances

-- Strokes in a box of 0..1, y downwards; a curve goes smoothly through its points.
local strokes = {
  [0] = {{{.5, .08}, {.22, .25}, {.2, .65}, {.45, .93}, {.75, .75}, {.78, .3}, {.5, .08}}},
  {{{.35, .25}, {.55, .08}, {.55, .08}, {.53, .5}, {.5, .92}}},
  {{{.22, .28}, {.4, .08}, {.72, .16}, {.7, .42}, {.4, .7}, {.2, .9}, {.2, .9}, {.5, .86},
    {.8, .9}}},
  {{{.25, .15}, {.55, .07}, {.74, .24}, {.45, .45}, {.45, .45}, {.78, .62}, {.65, .9}, {.22, .85}}},
  {{{.6, .08}, {.4, .35}, {.2, .6}, {.2, .6}, {.5, .6}, {.82, .58}},
   {{.62, .32}, {.6, .65}, {.57, .93}}},
  {{{.75, .1}, {.35, .1}, {.35, .1}, {.28, .45}, {.28, .45}, {.6, .4}, {.77, .62}, {.6, .9},
    {.22, .85}}},
  {{{.66, .08}, {.38, .3}, {.24, .65}, {.42, .92}, {.7, .8}, {.65, .55}, {.4, .52}, {.27, .7}}},
  {{{.2, .12}, {.5, .12}, {.78, .1}, {.78, .1}, {.58, .5}, {.42, .92}}},
  {{{.5, .48}, {.28, .28}, {.48, .08}, {.7, .25}, {.5, .48}, {.24, .7}, {.48, .93}, {.75, .72},
    {.5, .48}}},
  {{{.72, .3}, {.5, .45}, {.28, .3}, {.48, .08}, {.72, .25}, {.7, .55}, {.55, .93}}},
}

-- A point between b and c of the smooth curve through a, b, c, d (Catmull and Rom).
local function between(a, b, c, d, t)
  local t2, t3 = t * t, t * t * t
  local out = {}
  for k = 1, 2 do
    out[k] = 0.5 * (2 * b[k] + (c[k] - a[k]) * t + (2 * a[k] - 5 * b[k] + 4 * c[k] - d[k]) * t2
                    + (3 * b[k] - a[k] - 3 * c[k] + d[k]) * t3)
  end
  return out
end

-- POINTS points of a digit, spread over its strokes by their numbers of pieces.
local function outline(digit)
  local pieces = {}
  for _, stroke in ipairs(strokes[digit]) do
    for i = 1, #stroke - 1 do
      pieces[#pieces + 1] = {stroke[i - 1] or stroke[i], stroke[i], stroke[i + 1],
                             stroke[i + 2] or stroke[i + 1]}
    end
  end
  local xs, ys = {}, {}
  for p = 1, POINTS do
    local at = (p - 1) / (POINTS - 1) * #pieces
    local k = math.min(math.floor(at), #pieces - 1)
    local piece = pieces[k + 1]
    local point = between(piece[1], piece[2], piece[3], piece[4], at - k)
    xs[p], ys[p] = point[1] - 0.5, point[2] - 0.5
  end
  return xs, ys
end

-- One chunk: labels (n) from 1 -> images (n, SIZE, SIZE) in 0..1.
local function draw(labels, all_x, all_y, generator)
  local n = #labels
  local function random(low, high, columns)
    return core.rand({n, columns or 1}, {low = low, high = high, generator = generator})
  end
  local x, y = all_x:index_select(1, labels), all_y:index_select(1, labels)
  -- slow waves along the digit bend its strokes
  local bent = x + (y * random(3, 9) + random(0, 6.3)):sin() * random(0, 0.06)
  y = y + (x * random(3, 9) + random(0, 6.3)):sin() * random(0, 0.06)
  x = bent
  local angle, slant = random(-0.25, 0.25), random(-0.15, 0.35)
  local wide, high = random(0.65, 1.05) * 20, random(0.85, 1.1) * 20
  x = (x - y * slant) * wide
  y = y * high
  local cos, sin = angle:cos(), angle:sin()
  local px = x * cos - y * sin + random(-1.5, 1.5) + SIZE / 2
  local py = x * sin + y * cos + random(-1.5, 1.5) + SIZE / 2
  local grid = core.arange(0, SIZE):to("f32") + 0.5
  local dx = (px:unsqueeze(2) - grid:view(1, SIZE, 1)):square()   -- (n, column, point)
  local dy = (py:unsqueeze(2) - grid:view(1, SIZE, 1)):square()   -- (n, row, point)
  local nearest = (dy:unsqueeze(3) + dx:unsqueeze(2)):amin({dims = {4}}):sqrt()
  local pen = random(0.8, 1.7):unsqueeze(3)
  local ink = ((pen - nearest) * 0.9 + 0.5):clamp{min = 0, max = 1}
  local noise = core.randn({n, SIZE, SIZE}, {std = 0.03, generator = generator})
  return (ink * random(0.8, 1):unsqueeze(3) + noise):clamp{min = 0, max = 1}
end

--- data.digits(count, {seed = 0})
-- @return images (count, 1, 28, 28) as f32 in 0..1 and labels (count), 1 for "0" up to 10
return function(count, opts)
  local o = options.check("data.digits", opts, {seed = 0})
  options.count("data.digits", "count", count)
  local _ <close> = core.no_grad()
  local generator = core.generator(o.seed)
  local xs, ys = {}, {}
  for digit = 0, 9 do xs[digit + 1], ys[digit + 1] = outline(digit) end
  local all_x, all_y = core.tensor(xs), core.tensor(ys)
  local labels = core.randint(1, 11, {count}, {generator = generator})
  local images = core.empty({count, SIZE, SIZE})
  for start = 1, count, CHUNK do
    local n = math.min(CHUNK, count - start + 1)
    images:narrow(1, start, n):copy_(draw(labels:narrow(1, start, n), all_x, all_y, generator))
  end
  return images:unsqueeze(2), labels
end
