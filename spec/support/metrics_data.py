"""Writes spec/support/metrics_data.lua: inputs of metrics and what other libraries compute of them.

    python spec/support/metrics_data.py > spec/support/metrics_data.lua

Made with scikit-learn 1.9.1, sacrebleu 2.6.0, rouge-score 0.1.2, jiwer 4.0.0 and pycocotools
2.0.11. Labels of the file count from 1, except those of two classes, which are 0 and 1.
"""
import contextlib
import io
import re

import jiwer
import numpy as np
import sacrebleu
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from rouge_score import rouge_scorer
from sklearn import metrics as sk

random = np.random.default_rng(5)
out = {}


def lua(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {lua(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple, np.ndarray)):
        return "{" + ", ".join(lua(v) for v in value) + "}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace(
            "\x1c", "\\x1C") + '"'
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    return "0/0" if value != value else f"{float(value):.15g}"


# Classes: 5, of which the last one never occurs and is never predicted.
N = 90
scores = np.round(random.normal(size=(N, 5)), 2)
labels = random.choice(4, N, p=[0.5, 0.3, 0.15, 0.05])
scores[np.arange(N), labels] += 1
scores = np.round(scores, 2)
scores[:, 4] -= 10
predicted = scores.argmax(1)
classes = {"scores": scores, "labels": labels + 1, "confusion": sk.confusion_matrix(
    labels, predicted, labels=range(5))}
for how in ("true", "pred", "all"):
    classes["confusion_" + how] = sk.confusion_matrix(labels, predicted, labels=range(5),
                                                      normalize=how)
classes["accuracy"] = sk.accuracy_score(labels, predicted)
classes["top2"] = sk.top_k_accuracy_score(labels, scores, k=2, labels=range(5))
for average in ("macro", "micro", "weighted"):
    o = {"average": average, "zero_division": 0}
    classes[average] = {"Precision": sk.precision_score(labels, predicted, **o),
                        "Recall": sk.recall_score(labels, predicted, **o),
                        "F1": sk.f1_score(labels, predicted, **o),
                        "F2": sk.fbeta_score(labels, predicted, beta=2, **o),
                        "Jaccard": sk.jaccard_score(labels, predicted, **o)}
classes["per_class"] = sk.f1_score(labels, predicted, average=None, labels=range(5), zero_division=0)
soft = np.exp(scores[:, :4]) / np.exp(scores[:, :4]).sum(1, keepdims=True)
classes["perplexity"] = np.exp(sk.log_loss(labels, soft))
for average in ("macro", "weighted"):
    classes[average]["AUROC"] = np.average(
        [sk.roc_auc_score(labels == k, scores[:, k]) for k in range(4)],
        weights=np.bincount(labels) if average == "weighted" else None)
    classes[average]["AveragePrecision"] = np.average(
        [sk.average_precision_score(labels == k, scores[:, k]) for k in range(4)],
        weights=np.bincount(labels) if average == "weighted" else None)
out["classes"] = classes

# Two classes, with equal scores.
truth = random.integers(0, 2, N)
chance = np.round(np.clip(random.normal(0.4 + 0.2 * truth, 0.25), 0, 1), 1)
guess = chance > 0.5
out["binary"] = {"scores": chance, "labels": truth, "accuracy": sk.accuracy_score(truth, guess),
                 "Precision": sk.precision_score(truth, guess), "F1": sk.f1_score(truth, guess),
                 "Recall": sk.recall_score(truth, guess),
                 "Jaccard": sk.jaccard_score(truth, guess),
                 "AUROC": sk.roc_auc_score(truth, chance),
                 "AveragePrecision": sk.average_precision_score(truth, chance)}

# Regression, two columns far from zero.
y = np.round(1000 + random.normal(size=(40, 2)) * [1, 5], 3)
x = np.round(y + random.normal(size=(40, 2)) * [0.5, 4], 3)
out["regression"] = {"x": x, "y": y, "mse": sk.mean_squared_error(y, x),
                     "mae": sk.mean_absolute_error(y, x), "r2": sk.r2_score(y, x),
                     "r2_first": sk.r2_score(y[:, 0], x[:, 0]),
                     "rmse_first": sk.root_mean_squared_error(y[:, 0], x[:, 0])}

# Texts.
candidates = ["The cat sat on the mat, and it didn't move.", "It costs 3.50 (or 1,000) yen - cheap!",
              "A completely different sentence", "state-of-the-art results &amp; more",
              "na\u00efve\u00a0caf\u00e9 owners \u00fcber alles in der Welt."]
references = [["The cat sat on a mat and did not move.", "On the mat, the cat sat; it didn't move."],
              ["It costs 3.50 (or about 1,000) yen, cheap!", "The price: 3.50."],
              ["Nothing in common here at all", "A sentence that is different"],
              ["State-of-the-art results & much more", "state-of-the-art result & more"],
              ["Naive caf\u00e9 owners over all in the world.", "na\u00efve caf\u00e9 owners \u00fcber alles"]]
firsts = [r[0] for r in references]
stream = [firsts, [r[1] for r in references]]
rouge = rouge_scorer.RougeScorer(["rougeL"])
parts = [rouge.score(r, c)["rougeL"] for r, c in zip(firsts, candidates)]
out["texts"] = {
    "candidates": candidates, "references": references,
    "bleu": sacrebleu.corpus_bleu(candidates, stream).score / 100,
    "bleu_lower": sacrebleu.corpus_bleu(candidates, stream, lowercase=True).score / 100,
    "bleu_words": sacrebleu.corpus_bleu(candidates, stream, tokenize="none",
                                        force=True).score / 100,
    "bleu_one": sacrebleu.corpus_bleu(candidates[2:3], [[firsts[2]]]).score / 100,
    "bleu_smooth": sacrebleu.corpus_bleu(candidates[4:], [firsts[4:]]).score / 100,
    "wer": jiwer.wer(firsts, candidates), "cer": jiwer.cer(firsts, candidates),
    "rouge": [np.mean([p.fmeasure for p in parts]), np.mean([p.precision for p in parts]),
              np.mean([p.recall for p in parts])]}

# Boxes: detections are shifted objects, with some missing and some made up.
images, truths, found = [], [], []
for image in range(12):
    truths.append([])
    found.append([])
    for _ in range(random.integers(0, 9)):
        size = np.exp(random.uniform(np.log(12), np.log(180), 2))
        corner = random.uniform(0, 300, 2)
        box = np.round(np.concatenate([corner, corner + size]), 1)
        label = int(random.integers(1, 4))
        truths[-1].append({"box": box, "label": label, "crowd": int(random.random() < 0.1)})
        for _ in range(random.integers(0, 3)):
            shifted = np.round(box + random.normal(0, 0.1, 4) * np.tile(size, 2), 1)
            other = label if random.random() < 0.9 else int(random.integers(1, 4))
            found[-1].append({"box": shifted, "label": other,
                              "score": np.round(random.random(), 2)})


def xywh(box):
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


with contextlib.redirect_stdout(io.StringIO()):
    coco = COCO()
    coco.dataset = {"images": [{"id": i} for i in range(12)],
                    "categories": [{"id": k} for k in (1, 2, 3)], "annotations": []}
    for i, list_ in enumerate(truths):
        for t in list_:
            b = xywh(t["box"])
            coco.dataset["annotations"].append({
                "id": len(coco.dataset["annotations"]) + 1, "image_id": i, "bbox": b,
                "area": b[2] * b[3], "category_id": t["label"], "iscrowd": t["crowd"]})
    coco.createIndex()
    results = coco.loadRes([{"image_id": i, "bbox": xywh(f["box"]), "score": f["score"],
                             "category_id": f["label"]} for i, l in enumerate(found) for f in l])
    e = COCOeval(coco, results, "bbox")
    e.evaluate()
    e.accumulate()
    e.summarize()
names = ["map", "map_50", "map_75", "map_small", "map_medium", "map_large", "mar_1", "mar_10",
         "mar_100"]
out["boxes"] = {"truths": truths, "found": found, "figures": dict(zip(names, e.stats)),
                "classes": [e.eval["precision"][:, :, k, 0, 2].mean() for k in range(3)]}

# Several labels of a row: 4, of which the last one never occurs; many scores are the threshold.
several = (random.random((40, 4)) < [0.5, 0.3, 0.6, 0]).astype(int)
chances = np.round(np.clip(random.normal(0.3 + 0.3 * several, 0.2), 0, 1), 1)
guesses = (chances > 0.5).astype(int)
out["labels"] = {"scores": chances, "labels": several,
                 "accuracy": (several == guesses).mean(),
                 "subset": sk.accuracy_score(several, guesses),
                 "per_label": sk.f1_score(several, guesses, average=None, zero_division=0)}
for average in ("macro", "micro", "weighted"):
    o = {"average": average, "zero_division": 0}
    out["labels"][average] = {"Precision": sk.precision_score(several, guesses, **o),
                              "Recall": sk.recall_score(several, guesses, **o),
                              "F1": sk.f1_score(several, guesses, **o),
                              "F2": sk.fbeta_score(several, guesses, beta=2, **o),
                              "Jaccard": sk.jaccard_score(several, guesses, **o)}
out["labels"]["areas"] = {"AUROC": sk.roc_auc_score(several, chances, average="micro"),
                          "AveragePrecision": sk.average_precision_score(several, chances,
                                                                         average="micro")}

# Texts whose words differ in case and white space beyond ASCII.
upper = ["\u00dcber die Stra\u00dfe\u2003zur \u00c9cole\x1cNORD -\n", "\u03a3\u038a\u03a3\u03a5\u03a6\u039f\u03a3 und K\u00d6LN am Rhein"]
lower = ["\u00fcber die stra\u00dfe zur \u00e9cole nord -", "\u03c3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 und k\u00f6ln am rhein heute"]
out["cases"] = {"candidates": upper, "references": lower,
                "bleu": sacrebleu.corpus_bleu(upper, [lower]).score / 100,
                "bleu_lower": sacrebleu.corpus_bleu(upper, [lower], lowercase=True).score / 100,
                "bleu_words": sacrebleu.corpus_bleu(upper, [lower], lowercase=True,
                                                    tokenize="none", force=True).score / 100}

print("-- Written by spec/support/metrics_data.py.\nreturn {")
for name, value in out.items():
    print(f"  {name} = {{")
    for key, inner in value.items():
        line = f"    {key} ="
        for part in re.findall(r'(?:"(?:\\.|[^"\\])*"|[^,"])+,?', lua(inner) + ","):
            if len(line) + len(part) > 98:
                print(line)
                line = "     "
            line += " " + part.strip()
        print(line)
    print("  },")
print("}")
