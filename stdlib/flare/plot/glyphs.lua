--- Letters of 5 x 7 dots for pictures in pixels. Each row of a letter is one digit in base 32,
-- whose bits are the dots from left to right.
local rows = {}
for letter, digits in ([[
  0 ehjlphe 1 4c4444e 2 eh168gv 3 eh161he 4 26aiv22 5 vgu11he 6 68guhhe 7 v124888 8 ehhehhe
  9 ehhf12c a 00e1fhf b ggmphhu c 00egghe d 11djhhf e 00ehvge f 698s888 g 0fhhf1e h ggmphhh
  i 40c444e j 20622ic k ggikoki l c44444e m 00qllhh n 00mphhh o 00ehhhe p 00uhugg q 00djf11
  r 00mpggg s 00ege1u t 88s8896 u 00hhhjd v 00hhha4 w 00hhlla x 00ha4ah y 00hhf1e z 00v248v
  . 00000cc , 0000c48 - 000v000 + 044v440 ( 2488842 ) 8422248 / 01248g0 : 0cc0cc0 _ 000000v
  ? eh12404
]]):gmatch "(%S) (%w+)" do
  rows[letter] = {}
  for i = 1, 7 do rows[letter][i] = tonumber(digits:sub(i, i), 32) end
end
rows[" "] = {0, 0, 0, 0, 0, 0, 0}

--- @return the seven rows of a letter as numbers of five bits
return function(letter) return rows[letter] or rows[letter:lower()] or rows["?"] end
