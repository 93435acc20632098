"""WAV files by libsndfile, resampling by torchaudio, spectra by transformers, for
spec/audio_spec.lua.

Writes spec/data/audio/*.wav and values.json. Needs soundfile (0.14.0 was used), torchaudio
(2.11.0, with torch 2.15), transformers (5.24.0) and NumPy:
  python3 spec/support/audio_data.py
"""
import json, os, struct
import numpy as np
import soundfile as sf
import torch
torch.version.cuda = None  # torchaudio refuses other builds, of which nothing is used here
from torchaudio.functional import resample
from transformers import WhisperFeatureExtractor

folder = "spec/data/audio/"
os.makedirs(folder, exist_ok=True)
out = {"files": {}, "resample": [], "mel": []}


def signal(n, c):
    k = np.arange(1, n + 1)
    return 0.5 * np.sin(0.05 * k + c) + 0.3 * np.sin(0.7 * k + 2 * c)


x = np.stack([signal(23, 0), signal(23, 1)], 1)
for name, kind, fmt, channels in [
        ("u8", "PCM_U8", "WAV", 1), ("i16", "PCM_16", "WAV", 2), ("i24", "PCM_24", "WAV", 2),
        ("i32", "PCM_32", "WAV", 1), ("f32", "FLOAT", "WAV", 2), ("f64", "DOUBLE", "WAV", 1),
        ("ext16", "PCM_16", "WAVEX", 2), ("ext24", "PCM_24", "WAVEX", 1),
        ("extf32", "FLOAT", "WAVEX", 2), ("mulaw", "ULAW", "WAV", 1)]:
    path = folder + name + ".wav"
    sf.write(path, x[:, :channels], 8000 + channels, subtype=kind, format=fmt)
    y, rate = sf.read(path, dtype="float64", always_2d=True)
    out["files"][name] = {"rate": rate, "values": y.T.tolist()}

for a, b in [(3, 2), (44100, 16000), (8000, 16000), (16000, 22050), (48000, 8000)]:
    y = resample(torch.from_numpy(signal(400, 3)), a, b)
    out["resample"].append({"from": a, "to": b, "values": y.tolist()[:150], "length": len(y)})

for mels, n in [(80, 2000), (128, 800)]:
    f = WhisperFeatureExtractor(feature_size=mels)
    x = signal(n, 0).astype(np.float32)
    y = f(x, sampling_rate=16000, return_tensors="np")["input_features"][0]
    # its path without torch computes in f64
    exact = f._np_extract_fbank_features([np.pad(x, (0, 480000 - n))], "cpu")[0]
    print(mels, "f32 beside f64:", np.abs(y - exact).max())
    frames = n // 160 + 3
    out["mel"].append({"mels": mels, "samples": n, "shape": list(y.shape), "frames": frames,
                       "rest": float(y[:, frames + 1:].max()),
                       "exact": np.round(exact[:, :frames], 7).tolist(),
                       "values": np.round(y[:, :frames], 6).tolist()})
with open(folder + "values.json", "w") as file:
    json.dump(out, file, separators=(",", ":"))
