-- Completion at the prompt: Tab is pressed behind a pseudo-terminal, and the line and the list
-- below it are read from the screen.
local Session = require "spec.support.session"

-- What is typed, the line after Tab, and words of the list or description below it. A line that
-- ends with | has not changed.
local places = {
  -- fields and methods
  {"number_on", "number_one"},
  {"model.fc.wei", "model.fc.weight", "model.fc.weight: tensor f32 (3, 2)"},
  {"t.inner.o", "t.inner.one", "t.inner.one: 1"},
  {"t[1].gr", "t[1].grad_one"},
  {"t.inner['", "t.inner['one"},
  {"x:softma", "x:softmax", "softmax   softmax_"},
  {"x:argsor", "x:argsort", "argsort(x, dim = -1"},
  {"x.requires_g", "x.requires_grad", "requires_grad   requires_grad_"},
  {"flare.ones(3):argsor", "flare.ones(3):argsort"},
  {"x:exp():argsor", "x:exp():argsort"},
  {"(x + 1):argsor", "(x + 1):argsort"},
  {"(2 * x):mean():argsor", "(2 * x):mean():argsort"},
  {"(1 + 2):argsor", "(1 + 2):argsor|"},
  {"t['inner'].o", "t['inner'].one"},
  {"t.odd", "t.odd|"},
  {"model.fc:parame", "model.fc:parameters"},
  {"model.fc:we", "model.fc:we|"}, -- no method
  {"(x):argsor", "(x):argsort"},
  {"x[1]:argsor", "x[1]:argsort"},
  {"nn.Linear(2, 3):parame", "nn.Linear(2, 3):parameters"},
  {"model.fc(x):argsor", "model.fc(x):argsort"},
  {"name:upp", "name:upper"},
  {"('a'):rev", "('a'):reverse"},
  {"('%d'):format(3):rev", "('%d'):format(3):reverse"},
  {"object:meth", "object:method_of_parent", "object:method_of_parent(a, b)  (command line):"},
  {"guarded.fi", "guarded.field"},
  {"math.hug", "math.huge", "math.huge: inf"},
  -- options, their values, dims
  {"nn.Linear(2, 3, {bi", "nn.Linear(2, 3, {bias = ", "bias = true"},
  {"optim.Adam(m, {betas = {0.9, 0.9}, l", "optim.Adam(m, {betas = {0.9, 0.9}, lr = ", "lr = 1e-3"},
  {"x:sum{k", "x:sum{keepdim = ", "keepdim: true or false"},
  {"flare.cat(xs, {d", "flare.cat(xs, {dim = "},
  {"flare.zeros(2, {req", "flare.zeros(2, {requires_grad = "},
  {"x:sum{keepdim = t", "x:sum{keepdim = true"},
  {"x:sum{dims = ", "x:sum{dims = |", "1  2"},
  {"x:softmax(", "x:softmax(|", "1  2"},
  {"flare.softmax(x, ", "flare.softmax(x, |", "1  2"},
  {"flare.zeros(2, {dtype = 'f6", "flare.zeros(2, {dtype = 'f64"},
  {"x:to('cp", "x:to('cpu"},
  {"x:to('si", "x:to('sim:", "sim:0"},
  {"{1, nn.Linea", "{1, nn.Linear"},
  {"x:permute(2, ", "x:permute(2, |", "1  2"},
  {"x:sum{dims = {1, ", "x:sum{dims = {1, |", "1  2"},
  {"nn.Conv2d(3, 8, 3, {padding_mode = 'ref", "nn.Conv2d(3, 8, 3, {padding_mode = 'reflect"},
  {"nn.CrossEntropyLoss{reduction = 's", "nn.CrossEntropyLoss{reduction = 'sum"},
  {"nn.KLDivLoss{reduction = 'b", "nn.KLDivLoss{reduction = 'batchmean"},
  {"nn.Linear(2, 3, {act = 'sig", "nn.Linear(2, 3, {act = 'sigmoid"},
  {"nn.Upsample{mode = 'cu", "nn.Upsample{mode = 'cubic"},
  {"optim.Muon(model, {adjust = 'mat", "optim.Muon(model, {adjust = 'match_rms_adamw"},
  {"flare.train.Trainer{sched", "flare.train.Trainer{schedule = "},
  {"flare.train.Trainer{accu", "flare.train.Trainer{accumulate = ", "batches of a step"},
  {"flare.train.Trainer{mode = 'ma", "flare.train.Trainer{mode = 'max"},
  {"flare.printing{sci", "flare.printing{scientific = "},
  {"flare.compile(f, {exa", "flare.compile(f, {exact = ", "exact: elementwise results"},
  {"flare.metrics.Accuracy{thr", "flare.metrics.Accuracy{threshold = ", "threshold = 0.5"},
  {"flare.autocast('b", "flare.autocast('bf16"},
  -- what is called, where an argument begins
  {"nn.Conv2d(", "nn.Conv2d(|", "nn.Conv2d(inputs, outputs, kernel, {stride = 1"},
  {"object:method_of_parent(1, ", "object:method_of_parent(1, |", "method_of_parent(a, b)"},
  {"flare.einsum(", "flare.einsum(|", "flare.einsum(text, ...)"},
  -- keys of tables
  {"t['od", "t['odd key"},
  {"t[", "t[\"|", '"inner"    "odd key"'},
  -- names of the text itself, keywords, files, modules
  {"local alphabet = 3; alphab", "local alphabet = 3; alphabet"},
  {"for counter = 1, 2 do coun", "for counter = 1, 2 do counter"},
  {"function(argument_one) argu", "function(argument_one) argument_one"},
  {"local m = nn.Linear(2, 3); m:parame", "local m = nn.Linear(2, 3); m:parameters"},
  {"local z = x * 2 + 1; z:argsor", "local z = x * 2 + 1; z:argsort"},
  {"local s = 'abc'; s:upp", "local s = 'abc'; s:upper"},
  {"local o = {first = 1}; o.fi", "local o = {first = 1}; o.first"},
  {"local y = unknown(3); y:", "local y = unknown(3); y:|"},
  {"x = 'text'; x:upp", "x = 'text'; x:upper"},
  {"whil", "while"},
  {"io.open('repl/main.l", "io.open('repl/main.lua"},
  {"io.open('repl/editor/bin", "io.open('repl/editor/bindings.lua"},
  {"io.open('stdl", "io.open('stdlib/"},
  {"require 'flare.repl.edi", "require 'flare.repl.editor"},
  {"print(#'abc' .. 'repl/main.", "print(#'abc' .. 'repl/main.", "main.c"},
  -- questions and commands
  {"?argsor", "?argsort", "argsort(x, dim = -1"},
  {"??nn.Linea", "??nn.Linear", "nn.Linear(inputs, outputs, {bias"},
  {"?x:argsor", "?x:argsort"},
  {":help argsor", ":help argsort"},
  {"help 'nn.Linea", "help 'nn.Linear"},
  {":ti", ":time"},
  {":time number_o", ":time number_one"},
  {":close gu", ":close guard"},
  {":!ls repl/comp", ":!ls repl/complete.lua"},
  -- nothing
  {"nothing.a", "nothing.a|"},
  {"'a' .. x -- comm", "'a' .. x -- comm|"},
  {"3 ", "3 |"},
}

local script = [[
  number_one, name, x = 1, 'text', require 'flare'.ones(2, 3)
  t = {{grad_one = 1}, inner = {one = 1}, ['odd key'] = 1}
  model = {fc = require 'flare'.nn.Linear(2, 3)}
  local parent = {method_of_parent = function(self, a, b) end}
  object = setmetatable({}, {__index = parent})
  ran = false
  guarded = setmetatable({field = 1}, {__index = function() ran = true end,
    __pairs = function() ran = true end, __len = function() ran = true end})
]]

describe("completion", function()
  local s
  setup(function()
    s = Session.open {arguments = ("-e \"%s\" -i"):format(script:gsub("\n", " ")), rows = 30,
                      columns = 100}
    if s then s:enter "local guard <close> = setmetatable({}, {__close = print})" end
  end)
  teardown(function() if s then s:close() end end)

  for _, place in ipairs(places) do
    it("knows what may follow " .. place[1], function()
      if not s then return pending "there are no pseudo-terminals" end
      s:keys("\5\21\12", place[1], "\t")
      local same = place[2]:match "^(.*)|$"
      local expected = "> " .. (same or place[2])
      assert.equal((expected:gsub(" +$", "")), s.screen:line(1))
      assert.equal(#expected + 1, s.screen.column)
      if place[3] then
        assert.truthy(table.concat(s.screen:lines(), "\n", 2):find(place[3], 1, true),
                      s.screen:text())
      end
    end)
  end

  it("cycles through a list, and back to what was typed", function()
    if not s then return pending "there are no pseudo-terminals" end
    s:keys("\5\21\12", "x:softp", "\t", "\21x:soft", "\t")
    assert.equal("> x:soft", s.screen:line(1))
    assert.match("^softmax +softmax_ +softplus +softplus_ +softshrink", s.screen:line(2))
    s:keys "\t"
    assert.equal("> x:softmax", s.screen:line(1))
    assert.is_true(s.screen:style_of("softmax ").reverse)
    assert.match("softmax%(x, dim = %-1%)\n.*divided by their sum", s.screen:text())
    s:keys("\t", "\t")
    assert.equal("> x:softplus", s.screen:line(1))
    s:keys "\27[Z"
    assert.equal("> x:softmax_", s.screen:line(1))
    s:keys("\27[A", "\27[A")
    assert.equal("> x:soft", s.screen:line(1))
    s:keys("\t", "(")
    assert.same({"> x:softmax("}, s.screen:lines())
    s:keys("\21x:soft", "\t", "\t", "\27")
    assert.same({"> x:soft"}, s.screen:lines())
    s:keys "\3"
  end)

  it("has run no metamethod", function()
    if not s then return pending "there are no pseudo-terminals" end
    s:keys("\5\21\12", "guarded:x", "\t", "\21guarded.", "\t", "\21guarded.field.a", "\t", "\21")
    s:enter "ran"
    assert.equal("false", s:after "> ran")
  end)
end)
