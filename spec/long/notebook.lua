-- Jupyter's own tools run the notebook among the examples, and a browser shows its pictures.
-- limit: 10 min. PYTHON names a Python with jupyter_client, nbconvert and ipykernel; without them
-- or without Chromium the campaign is skipped.
package.path = "./?.lua;" .. package.path
local core = require "flare".core
local tree = require "spec.support.tree"

local python = os.getenv "PYTHON" or "python3"
local missing = {}
for _, package in ipairs {"jupyter_client", "nbconvert", "ipykernel"} do
  if not os.execute(("%s -c 'import %s' 2>/dev/null"):format(python, package)) then
    missing[#missing + 1] = package .. " of PyPI"
  end
end
if tree.output "command -v chromium" == "" then missing[#missing + 1] = "chromium" end
if missing[1] then
  print(("skipped: there is no %s (Python: %s)"):format(table.concat(missing, ", no "), python))
  return
end

local program = tree.output("realpath " .. tree.build .. "/flare"):gsub("\n", "")
local folder = tree.output "mktemp -d":gsub("\n", "")
local _ <close> = setmetatable({}, {__close = function() os.execute("rm -rf " .. folder) end})

local function run(format, ...)
  local command = format:format(...)
  local out = tree.output(("(%s) 2>&1; echo status $?"):format(command))
  local text, status = out:match "^(.*)status (%d+)\n$"
  assert(status == "0", command .. "\n" .. text)
  return text
end

run("%s jupyter install --prefix %s", program, folder)
run("JUPYTER_PATH=%s/share/jupyter timeout 300 %s -m nbconvert --execute --to html "
  .. "--ExecutePreprocessor.kernel_name=flare --output-dir %s examples/tour.ipynb", folder, python,
  folder)

-- The pictures, each by itself in a page that reports whether the browser has drawn it.
local html = core.file.read(folder .. "/tour.html")
local report = [[<script>window.onload = function() {
  var text = ""
  document.querySelectorAll(".jp-OutputArea-output img, .jp-OutputArea-output svg").forEach(
    function(e) {
      var b = e.getBoundingClientRect()
      text += e.tagName.toLowerCase() + " " + Math.round(b.width) + " " + Math.round(b.height) + " "
           + (e.tagName != "IMG" || e.complete && e.naturalWidth > 0) + ";"
    })
  document.title = "pictures: " + text
}</script>]]
local at = assert(html:find("</body>", 1, true), "there is no body")
local file = assert(io.open(folder .. "/page.html", "w"))
file:write(html:sub(1, at - 1), report, html:sub(at))
file:close()
local page = run("timeout 120 chromium --headless --no-sandbox --disable-gpu "
  .. "--virtual-time-budget=5000 --user-data-dir=%s/profile --dump-dom file://%s/page.html "
  .. "2>/dev/null", folder, folder)
local list = assert(page:match "<title>pictures: ([^<]*)</title>", "the page has no report")
local counts = {img = 0, svg = 0}
for kind, width, height, drawn in list:gmatch "(%l+) (%d+) (%d+) (%l+);" do
  assert(tonumber(width) > 20 and tonumber(height) > 20 and drawn == "true", list)
  counts[kind] = counts[kind] + 1
end
print(("figure: nbconvert %s ran examples/tour.ipynb; Chromium shows %d images and %d drawings")
  :format(run("%s -m nbconvert --version", python):match "[%d.]+", counts.img, counts.svg))
assert(counts.img + counts.svg >= 3)
