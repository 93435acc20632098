"""Trains a small tokenizer of each kind with Hugging Face's tokenizers and SentencePiece.

    python train.py TEXT FOLDER [VOCABULARY]

TEXT is an English text, such as tinyshakespeare.txt. Needs tokenizers, sentencepiece, protobuf."""
import json
import os
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

import texts

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = CL100K.replace("{1,3}", "")
ByteLevel = pre_tokenizers.ByteLevel


def split_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    ByteLevel(add_prefix_space=False, use_regex=False)])


class Trainer:
    def __init__(self, lines, folder, size):
        self.lines, self.folder, self.size = lines, folder, size

    def path(self, name):
        return os.path.join(self.folder, name)

    def finish(self, name, tokenizer, trainer, **parts):
        """Trains, sets the parts that are known afterwards, saves."""
        tokenizer.train_from_iterator(self.lines, trainer)
        added = parts.pop("added", [])
        for key, value in parts.items():
            setattr(tokenizer, key, value)
        tokenizer.add_tokens(added)
        tokenizer.save(self.path(name + ".json"))

    def bpe(self, special, **options):
        return trainers.BpeTrainer(vocab_size=self.size, show_progress=False,
                                   special_tokens=special, **options)

    def byte_level(self):
        def trainer(*special):
            return self.bpe(list(special), initial_alphabet=ByteLevel.alphabet())

        t = Tokenizer(models.BPE())
        t.pre_tokenizer, t.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        self.finish("gpt2", t, trainer("<|endoftext|>", "<|im_start|>"),
                    post_processor=processors.ByteLevel(trim_offsets=False))
        t = Tokenizer(models.BPE())
        t.pre_tokenizer, t.decoder = ByteLevel(add_prefix_space=True), decoders.ByteLevel()
        self.finish("roberta", t, trainer("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
                    post_processor=processors.RobertaProcessing(("</s>", 2), ("<s>", 0)),
                    added=[AddedToken("<mask>", lstrip=True, special=True)])
        t = Tokenizer(models.BPE(ignore_merges=True))
        t.pre_tokenizer, t.decoder = split_bytes(CL100K), decoders.ByteLevel()
        start = processors.TemplateProcessing(
            single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|>:1 $B:1",
            special_tokens=[("<|endoftext|>", 0)])
        self.finish("llama3", t, trainer("<|endoftext|>"), post_processor=processors.Sequence(
            [processors.ByteLevel(trim_offsets=True), start]))
        t = Tokenizer(models.BPE())
        t.normalizer, t.pre_tokenizer = normalizers.NFC(), split_bytes(QWEN)
        t.decoder = decoders.ByteLevel()
        self.finish("qwen2", t, trainer("<|endoftext|>"))
        t = Tokenizer(models.BPE())
        t.normalizer, t.decoder = normalizers.ByteLevel(), decoders.ByteLevel()
        t.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+"), "merged_with_next",
                                               invert=True)
        self.finish("bytes_first", t, trainer("<|endoftext|>"))

    def characters(self):
        every_byte = [f"<0x{b:02X}>" for b in range(256)]
        t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        self.finish("llama2", t, self.bpe(["<unk>", "<s>", "</s>"] + every_byte,
                                          limit_alphabet=80),
                    post_processor=processors.TemplateProcessing(
                        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]))
        file = json.load(open(self.path("llama2.json"), encoding="utf-8"))
        file["added_tokens"] = file["added_tokens"][:3]
        meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                "split": False}
        for name, normalizer, splitter, decoder in [
            ("llama2", {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}, None,
             {"type": "Sequence", "decoders": [
                 {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                 {"type": "ByteFallback"}, {"type": "Fuse"},
                 {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
            ("llama2_first", None, meta, meta),
        ]:
            file.update(normalizer=normalizer, pre_tokenizer=splitter, decoder=decoder)
            Tokenizer.from_str(json.dumps(file)).save(self.path(name + ".json"))

        t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
        t.normalizer = normalizers.Sequence([
            normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
        t.pre_tokenizer, t.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder()
        self.finish("suffix", t, self.bpe(["<unk>"], end_of_word_suffix="</w>",
                                          limit_alphabet=120))
        t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
        t.normalizer = normalizers.Sequence([
            normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
            pre_tokenizers.Digits(True)])
        t.decoder = decoders.WordPiece()
        self.finish("prefix", t, self.bpe(["[UNK]"], continuing_subword_prefix="##",
                                          limit_alphabet=120))
        t = Tokenizer(models.BPE(unk_token="<unk>"))
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.Split(",", "contiguous"),
            pre_tokenizers.FixedLength(9)])
        self.finish("delimited", t, self.bpe(["<unk>"], limit_alphabet=120), added=[
            AddedToken("fox", single_word=True), AddedToken("lazy", lstrip=True, rstrip=True),
            "\u00c9t\u00e9"])

    def words(self):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        for name, lower in (("bert", True), ("bert_cased", False)):
            t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
            t.normalizer = normalizers.BertNormalizer(lowercase=lower)
            t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            t.decoder = decoders.WordPiece()
            self.finish(name, t, trainers.WordPieceTrainer(
                vocab_size=self.size, show_progress=False, special_tokens=special,
                limit_alphabet=150),
                post_processor=processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)))
        t = Tokenizer(models.WordLevel(unk_token="<unk>"))
        t.normalizer = normalizers.NFD()
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Whitespace(), pre_tokenizers.Digits(False)])
        self.finish("words", t, trainers.WordLevelTrainer(
            vocab_size=self.size, show_progress=False, special_tokens=["<unk>"]))

    def sentencepiece(self):
        text = self.path("train.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write("\n".join(x for x in self.lines if "\0" not in x))
        for kind in ("unigram", "bpe"):
            for fallback in (False, True):
                name = f"sp_{kind}" + ("_bytes" if fallback else "")
                sentencepiece.SentencePieceTrainer.train(
                    input=text, model_prefix=self.path(name), model_type=kind, num_threads=1,
                    vocab_size=self.size + 500, hard_vocab_limit=False, minloglevel=2,
                    byte_fallback=fallback, character_coverage=0.98 if fallback else 0.99,
                    user_defined_symbols=["<sep>", "[X]"] if fallback else [],
                    normalization_rule_name="nmt_nfkc" if name == "sp_unigram" else "identity",
                    remove_extra_whitespaces=not fallback)
                os.remove(self.path(name + ".vocab"))
        os.remove(text)

    def model_of(self, name):
        model = sentencepiece_model_pb2.ModelProto()
        with open(self.path(name), "rb") as f:
            model.ParseFromString(f.read())
        return model

    def unigram(self):
        m = self.model_of("sp_unigram.model")
        t = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], 0, False))
        t.normalizer = normalizers.Sequence([
            normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), "\u2581")])
        t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        t.add_special_tokens(["<s>", "</s>"])
        t.save(self.path("t5.json"))
        m = self.model_of("sp_unigram_bytes.model")
        t = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], 0, True))
        t.normalizer = normalizers.Sequence([
            normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
        t.save(self.path("unigram_bytes.json"))


def train(text, folder, size):
    os.makedirs(folder, exist_ok=True)
    trainer = Trainer(texts.training_text(text), folder, size)
    trainer.byte_level()
    trainer.characters()
    trainer.words()
    trainer.sentencepiece()
    trainer.unigram()


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2000)
