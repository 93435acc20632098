"""Writes spec/data/grammar.json: texts, and whether JSON schemas accept them by jsonschema 4 and
regular expressions match them as a whole by Python's re. Run it with a Python that has jsonschema:

    python spec/support/grammar_data.py > spec/data/grammar.json
"""
import json
import random
import re

import jsonschema

TREE = {"$ref": "#/$defs/tree", "$defs": {"tree": {
    "type": "object", "required": ["v"], "properties": {
        "v": {"type": "integer"}, "kids": {"type": "array", "maxItems": 2,
                                           "items": {"$ref": "#/$defs/tree"}}}}}}
SCHEMAS = [
    ({"type": "object", "required": ["name"], "additionalProperties": False, "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"}}},
     [{"name": "é\"\\\n"}, {"name": "", "age": -7}, {"age": 3}, {"name": 3}, {}, [],
      {"name": "a", "other": 1}, {"name": "a", "age": 1.5}, {"name": "😀", "age": 0}]),
    ({"type": "object", "title": "unused", "required": ["a", "d"], "properties": {
        "a": {"type": "number", "minimum": 0, "maximum": 1}, "b": {"type": "number", "minimum": -3},
        "c": {"type": "number", "maximum": 17}, "d": {"type": "number", "minimum": -50,
                                                      "maximum": -2}}},
     [{"a": 0, "d": -2}, {"a": 0.25, "b": 1234.5, "c": -3.5, "d": -49.75}, {"a": 1.0, "d": -50.0},
      {"a": 1.5, "d": -2}, {"a": -0.5, "d": -2}, {"a": 1, "b": -3.5, "d": -2}, {"a": 1, "d": -1.5},
      {"a": 1, "c": 17.25, "d": -9}, {"a": 1, "c": 17, "d": -9.125}, {"a": 0, "d": -50.5}]),
    ({"type": "array", "minItems": 2, "maxItems": 4,
      "items": {"type": "integer", "minimum": -120, "maximum": 1234}},
     [[0, 0], [-120, 1234], [-121, 0], [0, 1235], [9, 99, 999, 1000], [1], [1, 2, 3, 4, 5], [],
      [-9, -99, -100, -119], [1000, 1199, 1200, 1230], [True, False]]),
    ({"type": "array", "prefixItems": [{"type": "string", "maxLength": 3}, {"type": "boolean"}],
      "items": {"type": "null"}, "minItems": 1, "maxItems": 4},
     [["abc"], ["abcd"], [], ["é😀x", True], ["", False, None], ["", False, None, None],
      ["", False, None, None, None], ["", None], [True]]),
    ({"prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False},
     [[], [1], [1, 2], [1, 2, 3], ["a"]]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["a", "ab", "éé", "😀😀😀", "abcd", 12]),
    ({"type": "string", "pattern": "^[A-Z]{2,3}-\\d+\"?$"},
     ["AB-1", "ABC-12\"", "A-1", "ABCD-1", "AB-", "AB-1\"\"", "xAB-1"]),
    ({"type": "string", "pattern": "b[cd]{2}"}, ["bcd", "xxbddyy", "bc", "\"bcc\n", "", "bxcc"]),
    ({"type": "string", "format": "date"},
     ["2024-01-31", "2024-04-31", "2023-13-01", "2024-02-28", "24-1-1", "1999-12-09", "x"]),
    ({"type": "string", "format": "ipv4"},
     ["0.0.0.0", "255.249.199.99", "256.1.1.1", "1.2.3", "1.2.3.4.5", "10.20.30.40"]),
    ({"enum": ["x", 1, None, {"a": [1, 2]}, "é\"\\"]},
     ["x", 1, None, "é\"\\", "y", 2, True, [1], {"a": [1]}]),
    ({"const": "only"}, ["only", "other", None]),
    ({"anyOf": [{"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 8},
                {"type": ["boolean", "null"]}]}, [5, 6, 7, 8, True, None, "a"]),
    ({"oneOf": [{"type": "object", "required": ["k"], "properties": {"k": {"const": "a"},
                                                                     "x": {"type": "integer"}}},
                {"type": "object", "required": ["k"], "properties": {"k": {"const": "b"}}}]},
     [{"k": "a"}, {"k": "a", "x": 3}, {"k": "b"}, {"k": "c"}, {"k": "a", "x": "3"}]),
    (TREE, [{"v": 1}, {"v": 1, "kids": []}, {"v": 1, "kids": [{"v": 2}, {"v": 3, "kids": [
        {"v": 4}]}]}, {"kids": []}, {"v": 1, "kids": [{"v": "2"}]},
        {"v": 1, "kids": [{"v": 1}, {"v": 1}, {"v": 1}]}]),
    ({"properties": {"in": {"type": "boolean"}, "int": {"type": "boolean"}},
      "additionalProperties": {"type": "integer"}},
     [{}, {"in": True}, {"int": False, "i": 3}, {"in": True, "int": True, "inte": 5, "": 0},
      {"i": True}, {"in": 3}, {"int": 3}, {"é": 3}, {"in": True, "int": 1}]),
    ({"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}},
     [{}, {"a": "b", "c": "de"}, {"a": "bcd"}, {"a": 1}]),
    ({"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"y": {"type": "boolean"}},
                                           "required": ["y"]}],
      "$defs": {"base": {"type": "object", "properties": {"x": {"type": "integer"}},
                         "required": ["x"]}}},
     [{"x": 1, "y": True}, {"x": 1}, {"y": True}, {"x": "1", "y": True}]),
    ({"required": ["p", "q"], "properties": {"p": {"type": "boolean"}},
      "additionalProperties": {"type": "null"}},
     [{"p": True, "q": None}, {"p": True}, {"p": True, "q": 1}, {"p": True, "q": None, "r": None}]),
    ({}, [None, 1, "a", [1, {"a": []}], {"a": {"b": [1.5, -2]}}]),
    ({"type": "object"}, [{}, {"a": 1, "b": [None]}, [], "a"]),
]
PATTERNS = [r"(\d{3}-)?\d{4}", r"a|bc*|", r"[^a-c\d]+", r"(?:ab){2,}x?", r"\w+\s\S", r"é+[à-ÿ]?",
            r"[\]\-a]{1,2}", r"\x41\u00e9\.", r"x*?y{2}", r"(?P<n>[+-]?)[1-9]\d*|0", r".\.", r"[😀-😎]"]


def main():
    rng = random.Random(1)
    out = {"schemas": [], "patterns": []}
    for schema, values in SCHEMAS:
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        texts = []
        for value in values:
            valid = validator.is_valid(value)
            for how in ({}, {"separators": (",", ":")}, {"indent": 2}):
                if "enum" in schema and how:  # values are written in one form
                    continue
                texts.append([json.dumps(value, ensure_ascii=False, **how), valid])
            if not schema or "maxLength" in schema:
                texts.append([json.dumps(value), valid])
        out["schemas"].append({"schema": json.dumps(schema), "texts": texts})
    for pattern in PATTERNS:
        letters = "ab cx1230-+.yAé]àÿ😀😎_\n"
        texts = {"".join(rng.choice(letters) for _ in range(rng.randrange(7))) for _ in range(300)}
        texts |= {"123-4567", "4567", "", "bccc", "abab", "ababx", "ab c", "éé", "ééà", "]", "-a",
                  "Aé.", "yy", "xxyy", "+12", "0", "-10", "a.", "😅"}
        verdicts = [[t, re.fullmatch(pattern, t, re.ASCII) is not None] for t in sorted(texts)]
        rng.shuffle(verdicts)
        no = [v for v in verdicts if not v[1]][:25]
        out["patterns"].append({"pattern": pattern, "texts": [v for v in verdicts if v[1]][:25] + no})
    print(json.dumps(out, ensure_ascii=False, indent=None, separators=(",", ":")))


main()
