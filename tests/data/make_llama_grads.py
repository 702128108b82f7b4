#!/usr/bin/env python3
"""Make llama.grads, llama_qkv_bias.grads and llama_qk_norm.grads: small Llama models with their float64 gradients by PyTorch.

Usage: python3 make_llama_grads.py FOLDER   (needs torch and numpy; Debian's python3-torch is enough)

Grouped queries, head width other than hidden / heads, rope, rmsnorm, swiglu, untied; without biases, with those of q, k
and v alone, and with all of them and qk-norm. The file is that of make_gpt2_grads.py with the magic "PPGRADS2" and, after the ten u32, six more: kv_heads
head_dim ffn theta qk_norm tensors. window and tanh are 0.
"""
import math
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, VOCAB, SEQ, MICROBATCH, MICROBATCHES = 16, 4, 2, 6, 20, 2, 32, 8, 2, 4
THETA = 100


def tensor_shapes(qk_norm, biased):
    h, q, w = HIDDEN, HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = [("emb.weight", (VOCAB, h))]
    for b in range(LAYERS):
        linears = [("attn.q", (q, h)), ("attn.k", (w, h)), ("attn.v", (w, h)), ("attn.o", (h, q)),
                   ("mlp.gate", (FFN, h)), ("mlp.up", (FFN, h)), ("mlp.down", (h, FFN))]
        block = [("norm1.weight", (h,)), ("norm2.weight", (h,))]
        block += [(f"{name}.weight", shape) for name, shape in linears]
        block += [(f"{name}.bias", shape[:1]) for name, shape in linears[:biased]]
        if qk_norm:
            block += [("attn.q_norm.weight", (HEAD_DIM,)), ("attn.k_norm.weight", (HEAD_DIM,))]
        shapes += [(f"block.{b}.{name}", shape) for name, shape in block]
    return shapes + [("norm.weight", (h,)), ("head.weight", (VOCAB, h))]


def draw(name, shape, random):
    """The trainer's initial scale, with biases and norms moved off 0 and 1 so that they matter."""
    values = random.standard_normal(shape)
    if "norm" in name:
        values = 1 + 0.05 * values
    elif name.endswith("bias"):
        values = 0.05 * values
    else:
        values = math.sqrt(2 / (5 * HIDDEN)) * values
        if name.endswith(("attn.o.weight", "mlp.down.weight")):
            values /= math.sqrt(2 * LAYERS)
    return values.astype(np.float32)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rotate(x):
    """x: [samples, heads, tokens, width]; column i turns with column i + width / 2."""
    half = x.shape[-1] // 2
    pace = THETA ** (-2 * torch.arange(half, dtype=torch.float64) / x.shape[-1])
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * pace
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


def attention(q, k, v, q_norm, k_norm):
    samples, tokens = q.shape[:2]
    q, k, v = (x.view(samples, tokens, -1, HEAD_DIM).transpose(1, 2) for x in (q, k, v))
    if q_norm is not None:
        q, k = rms_norm(q, q_norm), rms_norm(k, k_norm)
    q, k = rotate(q), rotate(k)
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(HEAD_DIM)
    hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
    return (weights @ v).transpose(1, 2).reshape(samples, tokens, HEADS * HEAD_DIM)


def model(w, ids):
    x = w["emb.weight"][ids]
    for b in range(LAYERS):
        p = lambda name: w.get(f"block.{b}.{name}")
        linear = lambda y, name: F.linear(y, p(f"{name}.weight"), p(f"{name}.bias"))
        n = rms_norm(x, p("norm1.weight"))
        q, k, v = (linear(n, f"attn.{i}") for i in "qkv")
        x = x + linear(attention(q, k, v, p("attn.q_norm.weight"), p("attn.k_norm.weight")), "attn.o")
        n = rms_norm(x, p("norm2.weight"))
        x = x + linear(F.silu(linear(n, "mlp.gate")) * linear(n, "mlp.up"), "mlp.down")
    return F.linear(rms_norm(x, w["norm.weight"]), w["head.weight"])


def make(path, seed, qk_norm, biased):
    """`biased`: how many of the linear layers have biases, the first of them."""
    random = np.random.default_rng(seed)
    weights = {name: draw(name, shape, random) for name, shape in tensor_shapes(qk_norm, biased)}
    ids = random.integers(0, VOCAB, (MICROBATCHES, MICROBATCH, SEQ)).astype(np.int32)
    labels = random.integers(0, VOCAB, ids.shape).astype(np.int32)
    labels[random.random(ids.shape) < 0.2] = -1
    w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
    losses = []
    for m in range(MICROBATCHES):
        logits = model(w, torch.tensor(ids[m], dtype=torch.int64))
        target = torch.tensor(labels[m], dtype=torch.int64).reshape(-1)
        losses.append(F.cross_entropy(logits.reshape(-1, VOCAB), target, ignore_index=-1, reduction="sum"))
    (sum(losses) / int((labels >= 0).sum())).backward()
    with open(path, "wb") as out:
        out.write(b"PPGRADS2")
        out.write(struct.pack("<10I", HIDDEN, HEADS, LAYERS, VOCAB, SEQ, MICROBATCH, MICROBATCHES, 0, False, 0))
        out.write(struct.pack("<6I", KV_HEADS, HEAD_DIM, FFN, THETA, qk_norm, len(weights)))
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
    make(sys.argv[1] + "/llama.grads", seed=1, qk_norm=False, biased=0)
    make(sys.argv[1] + "/llama_qk_norm.grads", seed=2, qk_norm=True, biased=7)
    make(sys.argv[1] + "/llama_qkv_bias.grads", seed=3, qk_norm=False, biased=3)
