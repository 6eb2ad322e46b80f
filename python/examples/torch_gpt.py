"""A small language model on random text in PyTorch: real work for a GPU, with checkpoints of a real size.

    trainyard run --gpus 1 -- python3 python/examples/torch_gpt.py --steps 600

The text of a step depends on the step alone, so that a run that was stopped and resumed ends with the same loss as an
unbroken one.
"""

import argparse
import os
import time

import torch
from torch import nn
from torch.nn import functional

import trainyard


class Block(nn.Module):
    """Attention and a two-layer network, each beside a shortcut."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        count, length, width = x.shape
        parts = self.query_key_value(self.before_attention(x)).split(width, dim=2)
        shape = (count, length, self.heads, width // self.heads)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(count, length, width))
        return x + self.network(self.before_network(x))


class Gpt(nn.Module):
    """Tokens in, scores of the next token out."""

    def __init__(self, words, length, width, layers, heads):
        super().__init__()
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        place = self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(self.token(tokens) + place)))


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=600)
    flags.add_argument("--width", type=int, default=1024)
    flags.add_argument("--layers", type=int, default=12)
    flags.add_argument("--batch", type=int, default=16)
    flags.add_argument("--length", type=int, default=512)
    flags.add_argument("--words", type=int, default=8192)
    flags = flags.parse_args()

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Gpt(flags.words, flags.length, flags.width, flags.layers, flags.width // 64).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device == "cuda")

    yard = trainyard.join(total_steps=flags.steps)
    path = os.path.join(yard.checkpoint_dir or ".", "torch_gpt.pt")
    start = 0
    if yard.restore_from and os.path.exists(path):
        began = time.monotonic()
        state = torch.load(path, map_location=device)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        start = state["step"]
        yard.restored(start, seconds=time.monotonic() - began)
        print("resumed at step", start, flush=True)

    loss = None
    for step in yard.steps(start):
        loss = descend(model, optimiser, step, flags, device)
        if yard.step(step + 1, loss=loss, batch=flags.batch):
            began = time.monotonic()
            save(path, model, optimiser, step + 1)
            yard.exit_saved(step + 1, seconds=time.monotonic() - began)
    yard.finished()
    print("final loss", repr(loss))


def descend(model, optimiser, step, flags, device):
    """One step on text that depends on the step alone."""
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, flags.words, (flags.batch, flags.length + 1), generator=draw)
    # Every other word repeats the one before it, so that there is something to learn.
    tokens[:, 1::2] = tokens[:, 0:-1:2]
    tokens = tokens.to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        scores = model(tokens[:, :-1])
    loss = functional.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return float(loss.detach())


def save(path, model, optimiser, step):
    """Writes a checkpoint so that there is always a whole one."""
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
