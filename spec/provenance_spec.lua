-- Where the operands of a failed call were made.
local flare = require "flare"
local tree = require "spec.support.tree"

-- Runs a text as a user's file; the error's message.
local function failed(text, ...)
  local ok, message = pcall(assert(load(text, "=user.lua")), ...)
  assert.is_false(ok)
  return message
end

describe("flare.provenance", function()
  local start = "local flare = require 'flare'\n"

  it("names the lines that made the operands, whatever came between", function()
    for text, lines in pairs {
      ["local a, f = flare.ones(3)\nlocal b = flare.zeros(4)\nreturn a + b"] = {
        "f32 (3) cpu, made at user.lua:2", "f32 (4) cpu, made at user.lua:3"},
      -- a view has the line of its memory, and a result that is in a graph that of its call
      ["local a = flare.ones(2, 3)\nlocal v = a:t()\nreturn v:matmul(v)"] = {
        "f32 (3, 2) cpu, made at user.lua:2"},
      ["local a = flare.ones(3, {requires_grad = true})\nlocal b = a * 2\nreturn b:view(2, 2)"] = {
        "f32 (3) cpu, made at user.lua:3"},
      ["local a = flare.ones(3)\na:add_(1)\nreturn a:view(2, 2)"] = {
        "f32 (3) cpu, made at user.lua:2"},
      ["local a = flare.ones(2, 3)\nlocal b = flare.ones(3, 2)\nreturn flare.cat({a, b}, 1)"] = {
        "f32 (2, 3) cpu, made at user.lua:2", "f32 (3, 2) cpu, made at user.lua:3"},
      ["local i = flare.tensor({7}, {dtype = 'i64'})\nreturn flare.ones(3):index_select(1, i)"] = {
        "i64 (1) cpu, made at user.lua:2"},
      -- of a function that is written in Lua, and of one behind a tail call
      ["local a = flare.ones(3)\nreturn flare.einsum('ij->i', a)"] = {
        "f32 (3) cpu, made at user.lua:2"},
      ["local a, b = flare.ones(3), flare.ones(3):to 'f64'\nlocal function f(x)\n"
        .. "return x:view(2)\nend\nreturn f(a)"] = {"f32 (3) cpu, made at user.lua:2"},
      -- of a layer in a model
      ["local net = flare.nn.Sequential(\nflare.nn.Linear(4, 2, {bias = false}))\n"
        .. "local x = flare.ones(5, 3)\nlocal y\n= net(x)"] = {
        "f32 (5, 3) cpu, made at user.lua:4", "f32 (2, 4) cpu, made at user.lua:3"},
      -- of a loader with threads
      ["local l = flare.data.Loader(flare.data.Tensors(flare.ones(4, 3)), {workers = 1})\n"
        .. "for x in l:epoch() do\nx:view(2, 2)\nend"] = {"f32 (1, 3) cpu, made at user.lua:3"},
      -- of a compiled function
      ["local f = flare.compile(function(x)\nreturn (x * 2)\nend)\nlocal x = flare.ones(3)\n"
        .. "for k = 1, 4 do\nlocal y = f(x)\nif k == 4 then y\n:view(2, 2)\nend\nend"] = {
        "f32 (3) cpu, made at user.lua:3"},
      -- within one, of what waits for its kernel
      ["local w = flare.ones(4, 2)\nlocal f = flare.compile(function(x)\nlocal h = x * 2\n"
        .. "return (h:matmul(w))\nend)\nfor k = 1, 4 do f(flare.ones(3, k < 4 and 4 or 5)) end"] = {
        "f32 (3, 5) cpu, made at user.lua:4", "f32 (4, 2) cpu, made at user.lua:2"},
    } do
      assert.equal(table.concat(lines, "\n"), flare.provenance(failed(start .. text)), text)
    end
  end)

  it("says nothing of what the failed line made, of other messages, and of memory", function()
    assert.is_nil(flare.provenance(failed(start .. "return flare.ones(3):view(2, 2)")))
    local message = failed(start .. "local a = flare.ones(3)\nreturn a:view(2, 2)")
    assert.equal("f32 (3) cpu, made at user.lua:2", flare.provenance(message .. " (more)"))
    assert.is_nil(flare.provenance("another"))
    assert.is_nil(flare.provenance(nil))
    failed "error 'mine'"
    failed(start .. "flare.ones(-1)")
    assert.is_nil(flare.provenance(message))
  end)

  it("keeps no tensor", function()
    local x = flare.ones(1000)
    pcall(function() x:view(3) end)
    local kept = setmetatable({x}, {__mode = "v"})
    x = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.is_nil(kept[1])
  end)

  it("is shown with an error that nothing catches, and at the prompt", function()
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local path = tree.written(start .. "local x = flare.ones(2, 5)\n"
      .. "local net = flare.nn.Linear(4, 3)\nnet(x)\n")
    local text = tree.output(("'%s' '%s' 2>&1"):format(program, path))
    local name = path:gsub("%p", "%%%0")
    assert.match("^flare: " .. name .. ":4: linear: [^\n]*\noperands:\n"
      .. "\tf32 %(2, 5%) cpu, made at " .. name .. ":2\n"
      .. "\tf32 %(3, 4%) cpu, made at " .. name .. ":3\n.*stack traceback:\n", text)
    os.remove(path)
    path = tree.written("function f(x)\n  local w = flare.ones(4)\n  return x + w\nend\n"
      .. "f(flare.ones(3))")
    text = tree.output(("FLARE_HISTORY= '%s' -i < '%s' 2>&1"):format(program, path))
    assert.match("broadcast[^\n]*\n  f32 %(3%) cpu, made at prompt:1\n"
      .. "  f32 %(4%) cpu, made at prompt:2\n", text)
    os.remove(path)
  end)
end)
