-- Lines of text and JSON in files: which there are, in loaders with workers and ranks, from saved
-- states, and what is refused.
local flare = require "flare"
local core, data = flare.core, flare.data
local refused = require("spec.support.expect").refused
local folder

local function write(name, text) assert(core.file.write_atomic(folder .. "/" .. name, text)) end

local function all(set)
  local list = {}
  for i = 1, #set do list[i] = set:get(i) end
  return list
end

describe("data sets of lines", function()
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(core.file.mkdir(folder))
  end)
  after_each(function() os.execute("rm -rf '" .. folder .. "'") end)

  it("have the lines of all files in order", function()
    write("b.txt", "three\r\n\r\n\nfour\n")
    write("a.txt", "\xef\xbb\xbfone\ntwo \xc3\xa4")
    write("c.txt", "")
    write("no.csv", "x")
    local set = assert(data.lines.open(folder))
    assert.same({"one", "two \xc3\xa4", "three", "four"}, all(set))
    assert.equal("Lines: 4 lines of 3 files", tostring(set))
    set = assert(data.lines.open({folder .. "/b.txt", folder .. "/a.txt"}, {empty = true}))
    assert.same({"three", "", "", "four", "one", "two \xc3\xa4"}, all(set))
    assert.same({"four", "three"}, (data.Loader(data.Subset(set, {4, 1}), {batch = 2}):next()))
  end)

  it("take little memory beside the files", function()
    -- lines of every length, some longer than what is read at once
    local list = {}
    for k = 1, 40 do list[k] = string.char(96 + k % 26):rep(k % 13 == 0 and 1500000 or k) end
    for k = 41, 3000 do list[k] = k .. ("x"):rep(k) end
    local text = table.concat(list, "\n")
    write("long.txt", text)
    local path = folder .. "/long.txt"
    assert(#text > 8e6)
    collectgarbage()
    core.memory.limit(core.memory.stats().live + 6 * 1024 * 1024)
    local ok, set = pcall(data.lines.open, path)
    core.memory.limit(0)
    assert(ok, set)
    assert.equal(#list, #set)
    for i = 1, #list, 7 do assert(list[i] == set:get(i), i) end
    for i = 13, 39, 13 do assert(list[i] == set:get(i), i) end
  end)

  it("of JSON give values, or fields of objects", function()
    write("x.jsonl", '{"text": "a", "n": 1, "ids": [1, 2]}\n\n{"text": "b", "n": 2}\n[3]\n')
    local set = assert(data.jsonl.open(folder))
    assert.equal(3, #set)
    assert.same({text = "b", n = 2}, set:get(2))
    assert.same({3}, set:get(3))
    local some = assert(data.jsonl.open(folder, {fields = {"n", "text"}}))
    local n, words = data.Loader(data.Subset(some, {2, 1}), {batch = 2}):epoch()()
    assert.same({2, 1}, n:totable())
    assert.same({"b", "a"}, words)
    refused("x.jsonl: line 4 has no field 'n'", some.get, some, 3)
    local typo = assert(data.jsonl.open(folder, {fields = {"txt"}}))
    refused("x.jsonl: line 3 has no field 'txt' (did you mean 'text'?)", typo.get, typo, 2)
  end)

  it("are divided among workers and ranks, and go on from a state", function()
    for k = 1, 5 do
      local list = {}
      for i = 1, 7 + k do
        list[i] = ('{"n": %d, "text": "%s"}'):format(100 * k + i, ("x"):rep(i))
      end
      write(k .. ".jsonl", table.concat(list, "\n"))
    end
    local set = assert(data.jsonl.open(folder, {fields = {"n", "text"}}))
    assert.equal(50, #set)
    local function make(opts)
      opts.batch, opts.shuffle, opts.seed = 8, true, 4
      return data.Loader(set, opts)
    end
    local function rest(loader)
      local list = {}
      for n, text in loader:epoch() do
        for k, value in ipairs(n:totable()) do
          assert.equal(value % 100, #text[k])
          list[#list + 1] = value
        end
      end
      loader:close()
      return list
    end
    local want = rest(make{})
    local seen = {}
    for _, value in ipairs(want) do seen[value] = true end
    for k = 1, 5 do for i = 1, 7 + k do assert.is_true(seen[100 * k + i]) end end
    assert.same(want, rest(make{workers = 2}))
    local first = make{workers = 2}
    for _ = 1, 3 do first:next() end
    local state = first:state_dict()
    first:close()
    assert.same(table.move(want, 25, 50, 1, {}), rest(make{workers = 1}:load_state_dict(state)))
    local parts, count = {}, 0
    for rank = 0, 2 do
      for _, value in ipairs(rest(make{shard = {rank = rank, size = 3}, repeats = false})) do
        parts[value], count = true, count + 1
      end
    end
    assert.same(seen, parts)
    assert.equal(50, count)
  end)

  it("refuse files that are no text, have changed, or are not there", function()
    write("x.txt", "a\0b")
    write("y.jsonl", '{"a": 1}\n{"a": \n')
    assert.match("x.txt: not a text: it has zero bytes",
                 select(2, data.lines.open(folder .. "/x.txt")))
    assert.match("/none: No such file", select(2, data.lines.open(folder .. "/none")))
    os.remove(folder .. "/x.txt")
    assert.match("there is no file in it that ends in .text, .txt",
                 select(2, data.lines.open(folder)))
    local set = assert(data.jsonl.open(folder))
    refused("y.jsonl: line 2: ", set.get, set, 2)
    refused("position 3 is out of range 1..2", set.get, set, 3)
    local again = assert(data.jsonl.open(folder))
    write("y.jsonl", "[]\n")
    refused("its size has changed since", again.get, again, 1)
    refused("a path or a list of paths is expected, got an empty list", data.lines.open, {})
    refused("fields must be a list of names", data.jsonl.open, folder, {fields = {}})
  end)
end)
