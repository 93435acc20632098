-- Chat templates in the formats of published families render as transformers renders them;
-- spec/data/templates/make.py wrote what is expected.
local flare = require "flare"
local core, text = flare.core, flare.text

local cases = core.json.decode(assert(core.file.read "spec/data/templates/cases.json"))

-- A tokenizer with a template and without a vocabulary to speak of.
local function with_template(source)
  return text.Tokenizer {model = {kind = "wordlevel", vocab = {["<s>"] = 0}},
    decode = table.concat, templates = {default = source}, names = {bos = "<s>", eos = "</s>"}}
end

local function render(source, variables)
  local run, message = text.template(source)
  if not run then return nil, message end
  return run(variables or {})
end

describe("chat templates", function()
  it("render as transformers renders them, and refuse what it refuses", function()
    local families, refused, wrong = {}, 0, {}
    for _, case in ipairs(cases.cases) do
      families[case.template] = true
      local got, message = with_template(cases.templates[case.template]):chat(
        cases.chats[case.chat], {generation_prompt = case.prompt,
          tools = case.tools and cases.tools or nil, variables = {today = "2024-07-26"}})
      local name = case.template .. ", " .. case.chat
      if type(case.text) == "table" then
        refused = refused + 1
        if got then wrong[#wrong + 1] = name .. ": not refused" end
        if case.text.error == "TemplateError" and not message:find(case.text.message, 1, true) then
          wrong[#wrong + 1] = name .. ": " .. message
        end
      elseif got ~= case.text then
        wrong[#wrong + 1] = ("%s: %q, expected %q"):format(name, got or message, case.text)
      end
    end
    local n = 0
    for _ in pairs(families) do n = n + 1 end
    assert(n >= 15 and refused >= 4, n .. " families, " .. refused .. " refused")
    assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
  end)

  it("take messages as Lua tables", function()
    local tokenizer = with_template(cases.templates.chatml)
    assert.equal("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
      tokenizer:chat({{role = "user", content = "Hi"}}, {generation_prompt = true}))
    assert.same({0}, with_template("{{ bos_token }}"):chat({}, {ids = true}))
  end)

  it("say what is wrong, and at which line", function()
    for source, said in pairs {
      ["a\n{% if x %}"] = "line 2: 'endif' is missing",
      ["a\n\n{{ x.y.z }}"] = "line 3: the value before 'y' is undefined",
      ["{{ 'a' | nothing }}"] = "line 1: there is no filter 'nothing'",
      ["{{ 1 is strange }}"] = "line 1: there is no test 'strange'",
      ["\n{% include 'x' %}"] = "line 2: unknown block 'include'",
      ["{% endif %}"] = "line 1: 'endif' ends nothing",
      ["{{ 1 + }}"] = "line 1: an expression is expected",
      ["{{ 1 / 0 }}"] = "line 1: division by zero",
      ["{{ raise_exception('no') }}"] = "line 1: no",
      ["{{ 'a"] = "line 1: a string does not end",
      ["{{ a b }}"] = "line 1: unexpected 'b'",
      ["{{ f() }}"] = "line 1: 'f' is undefined, no function",
      ["{% set a, b = [1] %}"] = "line 1: 1 values for 2 names",
      ["{{ 1 < 'a' }}"] = "line 1: a number and a string cannot be compared",
    } do
      local got, message = render(source)
      assert.is_nil(got)
      assert.equal("the template, " .. said, message)
    end
    assert.match("has no chat template", select(2, with_template(nil):chat {}))
    assert.error_matches(function() with_template("x"):chat(3) end, "messages: a list or its JSON")
  end)

  it("are bounded in depth, time and output", function()
    for _, source in ipairs {
      ("("):rep(5000) .. ")", ("{% if 1 %}"):rep(3000), "{{ " .. ("["):rep(20000),
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'x' * 1000000000000 }}",
      "{% set n = namespace(s='x' * 1000000) %}{% for i in range(100) %}"
        .. "{% set n.s = n.s + n.s %}{% endfor %}",
      "{{ " .. ("not "):rep(20000) .. "x }}", "{{ " .. ("-"):rep(20000) .. "1 }}",
    } do
      local run, message = text.template(source)
      if run then
        local _
        _, message = run {}
      end
      assert(source:sub(1, 1) == "(" or type(message) == "string", source:sub(1, 40))
    end
  end)
end)
