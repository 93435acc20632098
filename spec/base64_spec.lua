-- Base 64: the vectors of RFC 4648, section 10, and what is no text of digits.
local base64 = require "flare.base64"

describe("base64", function()
  it("encodes and decodes the vectors of RFC 4648", function()
    for bytes, text in pairs {[""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foob = "Zm9vYg==",
                              fooba = "Zm9vYmE=", foobar = "Zm9vYmFy"} do
      assert.equal(text, base64.encode(bytes))
      assert.equal(bytes, base64.decode(text))
      assert.equal(bytes, base64.decode((text:gsub("=", ""))))
    end
    local all = {}
    for n = 0, 255 do all[#all + 1] = string.char(n, 255 - n) end
    all = table.concat(all)
    assert.equal(all, base64.decode((base64.encode(all):gsub("..........", "%0\r\n"))))
    assert.is_nil(base64.decode "Zm9v!")
    assert.is_nil(base64.decode "Zg=v")
  end)
end)
