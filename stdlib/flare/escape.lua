--- Text inside of HTML and SVG.
local escapes = {["<"] = "&lt;", [">"] = "&gt;", ["&"] = "&amp;", ['"'] = "&quot;"}

return function(text) return (tostring(text):gsub('[<>&"]', escapes)) end
