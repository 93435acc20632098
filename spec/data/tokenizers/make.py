"""Writes cases.json.gz, small tokenizers and what the libraries that they come from make of texts,
and merges.txt, what tokenizers' trainer of byte-level BPE learns from these texts.

    python make.py TEXT         (TEXT: an English text, such as tinyshakespeare.txt)
    python make.py TEXT FOLDER VOCABULARY STRINGS SEED     a campaign: see spec/long/text.sh

Made with tokenizers 0.23.3, sentencepiece 0.2.3."""
import base64
import glob
import gzip
import json
import os
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import texts
import train

HERE = os.path.dirname(os.path.abspath(__file__))


def byte_offsets(text, offsets):
    """Offsets in characters as those of string.sub: bytes from 1, both ends included."""
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [n for a, b in offsets for n in (at[a] + 1, at[b])]


def numbers(values):
    return " ".join(map(str, values))


def expected(path, strings):
    """ids, offsets and decoded text of each string; one text where both decodings agree."""
    out = []
    if path.endswith(".model"):
        model = sentencepiece.SentencePieceProcessor(model_file=path)
        for text in strings:
            ids = model.encode(text)
            out.append([numbers(ids), "", model.decode(ids)])
        return out
    tokenizer = Tokenizer.from_file(path)
    for text in strings:
        e = tokenizer.encode(text)
        plain = tokenizer.decode(e.ids)
        full = tokenizer.decode(e.ids, skip_special_tokens=False)
        out.append([numbers(e.ids), numbers(byte_offsets(text, e.offsets)), plain]
                   + ([full] if full != plain else []))
    return out


def make(text, folder, size, count, seed):
    if not glob.glob(folder + "/*.json"):
        train.train(text, folder, size)
    strings = texts.texts(count, seed)
    cases = {"texts": strings, "files": {}, "expected": {}}
    for path in sorted(glob.glob(folder + "/*.json") + glob.glob(folder + "/*.model")):
        name = os.path.basename(path)
        cases["expected"][name] = expected(path, strings)
        with open(path, "rb") as f:
            cases["files"][name] = base64.b64encode(f.read()).decode()
    return cases


def merges(strings):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(strings, trainers.BpeTrainer(
        vocab_size=600, show_progress=False, special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return "".join(" ".join(m) + "\n" for m in json.loads(t.to_str())["model"]["merges"])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        result = make(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
        json.dump(result, open(sys.argv[2] + "/cases", "w", encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = make(sys.argv[1], folder, 420, 60, 1)
        with gzip.GzipFile(HERE + "/cases.json.gz", "wb", mtime=0) as f:
            f.write(json.dumps(result).encode())
        with open(HERE + "/merges.txt", "w", encoding="utf-8") as f:
            f.write(merges(result["texts"]))
