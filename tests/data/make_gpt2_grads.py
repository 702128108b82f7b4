#!/usr/bin/env python3
"""Make gpt2_tied.grads and gpt2_untied.grads: small GPT-2 models with their float64 gradients by PyTorch.

Usage: python3 make_gpt2_grads.py FOLDER   (needs torch and numpy; Debian's python3-torch is enough)

File, little-endian: "PPGRADS1"; ten u32: hidden heads layers vocab seq microbatch microbatches window tied tanh;
i32 ids[microbatches * microbatch * seq]; i32 labels of the same size (-1: ignored); per microbatch f64 sum of losses,
f64 count of labels; then per tensor: name, 32 bytes filled up with NUL; u32 rows, columns; f32 weights; f64 gradient of
the mean loss over all labels of all microbatches. Matrices are [outputs, inputs].
"""
import math
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

HIDDEN, HEADS, LAYERS, VOCAB, SEQ, MICROBATCH, MICROBATCHES = 16, 4, 2, 32, 8, 2, 4


def tensor_shapes(tied):
    h = HIDDEN
    shapes = [("emb.weight", (VOCAB, h)), ("emb.position", (SEQ, h))]
    for b in range(LAYERS):
        for name, shape in (
            ("norm1.weight", (h,)), ("norm1.bias", (h,)),
            ("attn.q.weight", (h, h)), ("attn.q.bias", (h,)),
            ("attn.k.weight", (h, h)), ("attn.k.bias", (h,)),
            ("attn.v.weight", (h, h)), ("attn.v.bias", (h,)),
            ("attn.o.weight", (h, h)), ("attn.o.bias", (h,)),
            ("norm2.weight", (h,)), ("norm2.bias", (h,)),
            ("mlp.fc1.weight", (4 * h, h)), ("mlp.fc1.bias", (4 * h,)),
            ("mlp.fc2.weight", (h, 4 * h)), ("mlp.fc2.bias", (h,)),
        ):
            shapes.append((f"block.{b}.{name}", shape))
    shapes += [("norm.weight", (h,)), ("norm.bias", (h,))]
    if not tied:
        shapes.append(("head.weight", (VOCAB, h)))
    return shapes


def draw(name, shape, random):
    """The trainer's initial scale, with biases and norms moved off 0 and 1 so that they matter."""
    values = random.standard_normal(shape)
    if "norm" in name and name.endswith("weight"):
        values = 1 + 0.05 * values
    elif name.endswith("bias"):
        values = 0.05 * values
    else:
        values = math.sqrt(2 / (5 * HIDDEN)) * values
        if name.endswith(("attn.o.weight", "mlp.fc2.weight")):
            values /= math.sqrt(2 * LAYERS)
    return values.astype(np.float32)


def attention(q, k, v, window):
    b, t, h = q.shape
    q, k, v = (x.view(b, t, HEADS, h // HEADS).transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(h // HEADS)
    row, column = torch.arange(t)[:, None], torch.arange(t)[None, :]
    seen = (column <= row) & ((row - column < window) if window else torch.ones(t, t, dtype=torch.bool))
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), dim=-1)
    return (weights @ v).transpose(1, 2).reshape(b, t, h)


def gelu(x, tanh):
    if tanh:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def model(w, ids, window, tied, tanh):
    x = w["emb.weight"][ids] + w["emb.position"]
    for b in range(LAYERS):
        p = lambda name: w[f"block.{b}.{name}"]
        n = F.layer_norm(x, (HIDDEN,), p("norm1.weight"), p("norm1.bias"), 1e-5)
        q, k, v = (F.linear(n, p(f"attn.{i}.weight"), p(f"attn.{i}.bias")) for i in "qkv")
        x = x + F.linear(attention(q, k, v, window), p("attn.o.weight"), p("attn.o.bias"))
        n = F.layer_norm(x, (HIDDEN,), p("norm2.weight"), p("norm2.bias"), 1e-5)
        f = gelu(F.linear(n, p("mlp.fc1.weight"), p("mlp.fc1.bias")), tanh)
        x = x + F.linear(f, p("mlp.fc2.weight"), p("mlp.fc2.bias"))
    x = F.layer_norm(x, (HIDDEN,), w["norm.weight"], w["norm.bias"], 1e-5)
    return F.linear(x, w["emb.weight"] if tied else w["head.weight"])


def make(path, seed, tied, tanh, window):
    random = np.random.default_rng(seed)
    weights = {name: draw(name, shape, random) for name, shape in tensor_shapes(tied)}
    ids = random.integers(0, VOCAB, (MICROBATCHES, MICROBATCH, SEQ)).astype(np.int32)
    labels = random.integers(0, VOCAB, ids.shape).astype(np.int32)
    labels[random.random(ids.shape) < 0.2] = -1
    w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
    losses = []
    for m in range(MICROBATCHES):
        logits = model(w, torch.tensor(ids[m], dtype=torch.int64), window, tied, tanh)
        target = torch.tensor(labels[m], dtype=torch.int64).reshape(-1)
        losses.append(F.cross_entropy(logits.reshape(-1, VOCAB), target, ignore_index=-1, reduction="sum"))
    (sum(losses) / int((labels >= 0).sum())).backward()
    with open(path, "wb") as out:
        out.write(b"PPGRADS1")
        out.write(struct.pack("<10I", HIDDEN, HEADS, LAYERS, VOCAB, SEQ, MICROBATCH, MICROBATCHES, window, tied, tanh))
        out.write(ids.astype("<i4").tobytes() + labels.astype("<i4").tobytes())
        for m, loss in enumerate(losses):
            out.write(struct.pack("<2d", loss.item(), (labels[m] >= 0).sum()))
        for name, value in weights.items():
            rows, columns = value.shape if value.ndim == 2 else (value.shape[0], 1)
            out.write(name.encode().ljust(32, b"\0") + struct.pack("<2I", rows, columns))
            out.write(value.astype("<f4").tobytes() + w[name].grad.numpy().astype("<f8").tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(sys.argv[1] + "/gpt2_tied.grads", seed=1, tied=True, tanh=True, window=0)
    make(sys.argv[1] + "/gpt2_untied.grads", seed=2, tied=False, tanh=False, window=5)
