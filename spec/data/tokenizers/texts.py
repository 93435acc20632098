"""Texts that tokenizers are compared on: phrases in thirty scripts, code, emoji, and random strings
of them."""
import random

PHRASES = [
    "The quick brown fox doesn't jump over 13 lazy dogs; it's 3.14159 o'clock.",
    "I'VE said WE'LL go, they'd agreed: you're late! (again)",
    "Zażółć gęślą jaźń — naïve façade, Ærøskøbing, Straße, Œuvre",
    "Съешь ещё этих мягких французских булок", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "שלום עולם, מה שלומך היום?", "السَّلامُ عَلَيْكُم ١٢٣", "سلام دنیا می‌خواهم", "नमस्ते दुनिया क्षत्रिय १२३",
    "হ্যালো বিশ্ব আমার সোনার বাংলা", "ਸਤਿ ਸ੍ਰੀ ਅਕਾਲ", "નમસ્તે વિશ્વ", "ନମସ୍କାର ପୃଥିବୀ", "வணக்கம் உலகம்",
    "నమస్కారం ప్రపంచం", "ನಮಸ್ಕಾರ ಜಗತ್ತು", "നമസ്കാരം ലോകം", "ආයුබෝවන් ලෝකය", "สวัสดีชาวโลก ภาษาไทย",
    "ສະບາຍດີຊາວໂລກ", "བཀྲ་ཤིས་བདེ་ལེགས།", "မင်္ဂလာပါ ကမ္ဘာလောက", "გამარჯობა მსოფლიო", "ሰላም ዓለም እንዴት ነህ",
    "ᏏᏲ ᎡᎶᎯ", "ជំរាបសួរពិភពលោក", "ᠰᠠᠢᠨ ᠪᠠᠢᠨᠠ᠎ᠠ ᠤᠤ", "こんにちは世界、カタカナとひらがな。ー", "你好，世界！天地玄黃宇宙洪荒",
    "안녕하세요 세계 한글", "Բարեւ աշխարհ", "ⴰⵣⵓⵍ ⴰⵎⴰⴹⴰⵍ", "ᚠᚢᚦᚨᚱᚲ", "ߊߟߎ ߓߍ߫", "𐌰𐌱𐌲 𐤀𐤁𐤂 𒀀𒀁",
    "👩‍👩‍👧‍👦 👍🏽 🇫🇷 ☺️ 🏳️‍🌈 🤷🏻‍♂️ e\u0301 a\u0323\u0302 o\u0302\u0323", "½ ² ③ Ⅳ ﬁ ﬀ Å Ω ％ ＡＢＣ １２３ ｶﾞ",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\r\n}\n\n  return sum;",
    "def f(x):\n    '''doc'''\n    return {\"k\": [x**2, None]}  # comment\n",
    "https://example.org/a?b=c&d=%20e#f <b>x</b> $100,000.00 user@host", "   leading and trailing   ",
    "tabs\t\tand\u00a0no-break\u2003em\u3000wide\u200bzero\u2028line\u180emvs", "\u0130stanbul ıŞIK ǅ ǆ",
    "\ufeffbom \u0000nul \u0007bell \u00adsoft \ufffd repl", "가각 \u1100\u1161\u11a8 각", "ab\u0327\u0301c \u0344 \u0958",
    "ﷺ \u212b \u2126 ｶﾞ \ufb01\u0301 Ｈｅｌｌｏ", "1234567 12 1 ١٢٣٤ ²³", "don't DON'T it's IT'S 'tis ſ'ſ",
    "<s> </s> <unk> [CLS] [SEP] [MASK] <|endoftext|> <|im_start|>x <0x41>", "▁under▁score _x_ __y__", "\n", " ", "",
]


def training_text(path):
    """English of `path`, and each phrase a few times."""
    with open(path, encoding="utf-8") as f:
        english = f.read(200000)
    return english.split("\n") + PHRASES * 8


def random_text(rng):
    """Pieces of phrases, single characters of any script, white space, broken marks."""
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        phrase = rng.choice(PHRASES) or "x"
        at = rng.randrange(len(phrase))
        if kind < 0.55:
            out.append(phrase[at:at + rng.randint(1, 20)])
        elif kind < 0.75:
            out.append(rng.choice([" ", "  ", "\n", "\n\n", "\t", "\r\n", "   \n  ", "'", "\u00a0"]))
        elif kind < 0.9:
            code = rng.choice([rng.randrange(32, 0x250), rng.randrange(0x250, 0x3000),
                               rng.randrange(0x3000, 0xd800), rng.randrange(0xe000, 0x10000),
                               rng.randrange(0x10000, 0x1fa00), rng.randrange(0x300, 0x370)])
            out.append(chr(code))
        else:
            out.append(str(rng.randrange(10 ** rng.randint(1, 9))))
    return "".join(out)


def texts(n, seed=1):
    rng = random.Random(seed)
    return PHRASES + [random_text(rng) for _ in range(n)]


def broken(n, seed=2):
    """Bytes that are not UTF-8."""
    rng, out = random.Random(seed), []
    for _ in range(n):
        data = bytearray(random_text(rng).encode())
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            kind = rng.random()
            if kind < 0.4 and data:
                del data[min(at, len(data) - 1)]
            else:
                data[at:at] = bytes([rng.randrange(128, 256)])
        out.append(bytes(data))
    return out
