"""Writes spec/data/models.safetensors: what Hugging Face's transformers computes for small models.

    python spec/support/models_data.py spec/data/models.safetensors [FOLDER [NAME ...]]

Weights and images are not stored: both sides compute them from names and positions (`numbers`). The
file has, for each model NAME:

  NAME.<output>   results in f32; of logits the last two positions only
  NAME.greedy     64 tokens that follow the first 10 of each text, without an end token
  NAME.grads      of the loss, for each parameter in the order of the header: the sum of squares, and
                  the sum of products with numbers("grad." + name)

and in the metadata of NAME, as JSON: the configuration, [name, shape] of each tensor in the files that
transformers writes, and the names of the parameters that have gradients. With FOLDER, each model's
folder is kept there, for spec/long/models.lua. Made with torch 2.15.0 and transformers 5.24.0.
"""
import json
import os
import shutil
import sys
import tempfile
import zlib

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import *  # noqa: F403

transformers.logging.set_verbosity_error()


def numbers(name, shape):
    """Values between -0.5 and 0.5, a quadratic sequence modulo 2^32 that begins with the CRC of the name."""
    k = torch.arange(int(torch.Size(shape).numel()), dtype=torch.int64)
    h = (k * k * 2654435761 + k * 1013904223 + zlib.crc32(name.encode())) % 4294967296
    return (h.double() / 4294967296 - 0.5).float().reshape(shape)


def weight(name, shape):
    """Matrices of variance 1 / inputs; vectors near 1 if they multiply, near 0 if they are added."""
    x = numbers(name, shape)
    if len(shape) > 1:
        fan = torch.Size(shape[1:]).numel()
        return x * (12 / fan) ** 0.5
    return x * 0.2 + (1 if name.endswith(("weight", "running_var", "gamma")) else 0)


def make(config, cls, folder):
    torch.manual_seed(0)
    cls._from_config(config).save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    entries = []
    for name in sorted(tensors):
        shape = list(tensors[name].shape)
        entries.append([name, shape])
        if tensors[name].is_floating_point():
            tensors[name] = weight(name, shape)
    save_file(tensors, path, {"format": "pt"})
    return cls.from_pretrained(folder, dtype=torch.float32).eval(), entries


def gradients(model, loss):
    loss.backward()
    sums, names = [], []
    for name, p in model.named_parameters():
        if p.grad is not None:
            names.append(name)
            g = p.grad.double()
            sums.append([(g * g).sum().item(), (g * numbers("grad." + name, p.shape)).sum().item()])
    return torch.tensor(sums, dtype=torch.float64).float(), names


def ids(vocabulary):
    k = torch.arange(2 * 40)
    return ((k * k * 7 + k * 5 + 3) % (vocabulary - 3) + 3).reshape(2, 40)


def causal(model, out):
    x = ids(model.config.vocab_size)
    y = model(x, labels=x, use_cache=False)
    out["logits"] = y.logits[:, -2:]
    out["loss"] = y.loss.reshape(1)
    out["grads"], names = gradients(model, y.loss)
    more = model.generate(x[:, :10], max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0)
    out["greedy"] = more[:, 10:].to(torch.uint8)
    return names


def pixels(model):
    c = getattr(model.config, "vision_config", model.config)
    size = getattr(c, "image_size", 32)
    return numbers("pixel_values", (2, c.num_channels, size, size)) * 4


def classify(model, out):
    """Images to classes: logits, loss and gradients."""
    y = model(pixel_values=pixels(model), labels=torch.tensor([1, 3]))
    out["classes"] = y.logits
    out["loss"] = y.loss.reshape(1)
    out["grads"], names = gradients(model, y.loss)
    return names


def fill(model, out):
    """Texts of 40 and 25 tokens: logits of each token for masked tokens, the loss over five of them."""
    x = ids(model.config.vocab_size)
    mask = torch.ones_like(x)
    mask[1, 25:] = 0
    labels = torch.full_like(x, -100)
    labels[:, 3:8] = x[:, 3:8]
    kinds = (torch.arange(80).reshape(2, 40) // 10) % 2
    y = model(x, attention_mask=mask, token_type_ids=kinds, labels=labels)
    out["fills"] = y.logits[:, 23:25]
    out["loss"] = y.loss.reshape(1)
    out["grads"], names = gradients(model, y.loss)
    return names


def pair(model, out):
    """Images and texts: their embeddings and how much they are alike."""
    x = ids(model.config.text_config.vocab_size)[:, :12].clone()
    x[0, 9], x[1, 11] = 96, 96
    y = model(input_ids=x, pixel_values=pixels(model), return_loss=True)
    out["images"], out["texts"], out["alike"] = y.image_embeds, y.text_embeds, y.logits_per_image
    out["loss"] = y.loss.reshape(1)
    out["grads"], names = gradients(model, y.loss)
    return names


def transcribe(model, out):
    """Spectra to text: logits of the last two tokens, the loss, and 30 tokens that follow one."""
    c = model.config
    x = numbers("input_features", (2, c.num_mel_bins, 2 * c.max_source_positions)) * 4
    labels = ids(c.vocab_size)[:, :12]
    y = model(input_features=x, labels=labels)
    out["tokens"] = y.logits[:, -2:]
    out["loss"] = y.loss.reshape(1)
    out["grads"], names = gradients(model, y.loss)
    text = torch.full((2, 1), c.decoder_start_token_id)
    for _ in range(30):
        text = torch.cat([text, model(input_features=x, decoder_input_ids=text).logits[:, -1:].argmax(-1)], 1)
    out["heard"] = text[:, 1:].to(torch.uint8)
    return names


SMALL = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)


def llama(**more):
    return causal, "LlamaForCausalLM", "LlamaConfig", dict(SMALL, **more)


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_theta=10000.0, rope_type=kind, **more))


def decoder(name, **more):
    return causal, name + "ForCausalLM", name + "Config", dict(SMALL, **more)


EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
MODELS = {
    "llama": llama(),
    "llama_tied": llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=12),
    "llama_linear": llama(**rope("linear", factor=4.0)),
    "llama_dynamic": llama(**dict(rope("dynamic", factor=2.0), max_position_embeddings=16)),
    "llama_llama3": llama(**rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                 original_max_position_embeddings=32)),
    "llama_yarn": llama(**rope("yarn", factor=4.0, original_max_position_embeddings=32)),
    "llama_longrope": llama(**rope("longrope", factor=4.0, original_max_position_embeddings=48,
                                   short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 2.0, 3.0, 4.0])),
    "mistral": decoder("Mistral", sliding_window=7),
    "qwen2": decoder("Qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1),
    "qwen3": decoder("Qwen3", head_dim=16),
    "mixtral": decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen2_moe": decoder("Qwen2Moe", shared_expert_intermediate_size=40, **EXPERTS),
    "qwen3_moe": decoder("Qwen3Moe", head_dim=8, norm_topk_prob=True, **EXPERTS),
    "gpt2": (causal, "GPT2LMHeadModel", "GPT2Config",
             dict(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=128)),
}

TOWER = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
BERT = dict(TOWER, vocab_size=97, max_position_embeddings=48)
MODELS.update({
    "bert": (fill, "BertForMaskedLM", "BertConfig", BERT),
    "vit": (classify, "ViTForImageClassification", "ViTConfig",
            dict(TOWER, image_size=32, patch_size=8, num_labels=5)),
    "resnet": (classify, "ResNetForImageClassification", "ResNetConfig",
               dict(embedding_size=8, hidden_sizes=[8, 16, 24], depths=[1, 2, 1], layer_type="basic", num_labels=5)),
    "resnet_bottleneck": (classify, "ResNetForImageClassification", "ResNetConfig",
                          dict(embedding_size=8, hidden_sizes=[16, 24], depths=[2, 1], num_labels=5)),
    "convnext": (classify, "ConvNextForImageClassification", "ConvNextConfig",
                 dict(hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, num_labels=5)),
    "clip": (pair, "CLIPModel", "CLIPConfig",
             dict(projection_dim=16,
                  text_config=dict(TOWER, vocab_size=97, max_position_embeddings=24, eos_token_id=96),
                  vision_config=dict(TOWER, image_size=32, patch_size=8))),
    "whisper": (transcribe, "WhisperForConditionalGeneration", "WhisperConfig",
                dict(vocab_size=97, num_mel_bins=10, d_model=32, encoder_layers=2, decoder_layers=2,
                     encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
                     max_source_positions=20, max_target_positions=48, decoder_start_token_id=1, bos_token_id=1,
                     eos_token_id=2, pad_token_id=0, suppress_tokens=None, begin_suppress_tokens=None)),
})


def main(path, keep=None, *names):
    tensors, metadata = {}, {"versions": f"torch {torch.__version__}, transformers {transformers.__version__}"}
    for name, (run, cls, config, fields) in MODELS.items():
        if names and name not in names:
            continue
        folder = os.path.join(keep, name) if keep else tempfile.mkdtemp()
        config = getattr(transformers, config)(**fields)
        model, entries = make(config, getattr(transformers, cls), folder)
        out = {}
        grads = run(model, out)
        for key, value in out.items():
            tensors[f"{name}.{key}"] = value.detach().contiguous()
        with open(os.path.join(folder, "config.json")) as f:
            metadata[name] = json.dumps({"config": json.load(f), "tensors": entries, "grads": grads})
        if not keep:
            shutil.rmtree(folder)
        print(name, *(f"{k} {list(v.shape)}" for k, v in out.items()), flush=True)
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    main(*sys.argv[1:])
