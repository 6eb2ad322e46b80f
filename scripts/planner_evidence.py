"""Step times of a transformer and of its layers; see scripts/planner-evidence.

A step is forward and backward passes of all micro-batches and one update. The profile of layers is taken from layers
that run alone, at the smallest and the largest micro-batch, never from whole steps: what is predicted from it is not
fitted to what it is compared with.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainyard.graph import export

LARGE = dict(layers=16, hidden=4096, heads=32, sequence=2048, vocabulary=51200)
SMALL = dict(layers=4, hidden=128, heads=4, sequence=64, vocabulary=512)
MICRO_BATCHES = (1, 2, 4)
SAMPLES = 8
REPEATS = 5


class Layer(nn.Module):
    """A layer of a decoder: attention and two matrices, each behind a norm."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm_2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, hidden // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class Head(nn.Module):
    """The words and the loss."""

    def __init__(self, hidden, vocabulary):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.words = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, x, targets):
        words = self.words(self.norm(x))
        return nn.functional.cross_entropy(words.flatten(0, 1).float(), targets.flatten())


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape["vocabulary"], shape["hidden"])
        self.layers = nn.ModuleList(Layer(shape["hidden"], shape["heads"]) for _ in range(shape["layers"]))
        self.head = Head(shape["hidden"], shape["vocabulary"])

    def forward(self, tokens, targets, recompute):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
        return self.head(x, targets)


class Bench:
    def __init__(self, arguments):
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.cuda else "cpu")
        self.kind = torch.bfloat16 if self.cuda else torch.float32
        self.shape = SMALL if arguments.small else LARGE
        self.gpu = arguments.gpu or (self.name() if self.cuda else "cpu")
        self.ends = time.monotonic() + arguments.budget

    def name(self):
        words = torch.cuda.get_device_name().lower().replace("-", " ").split()
        known = ("h200", "h100", "a100", "v100", "l40s", "l4", "t4", "a10", "b200")
        return next((word for word in words if word in known), words[-1])

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def timed(self, call, runs=REPEATS, inner=1):
        """Median seconds of a call, after two that do not count; `inner` calls are one look, so that launches overlap."""
        for _ in range(2):
            call()
        taken = []
        for _ in range(runs):
            self.wait()
            begun = time.perf_counter()
            for _ in range(inner):
                call()
            self.wait()
            taken.append((time.perf_counter() - begun) / inner)
        return statistics.median(taken), max(taken) - min(taken)

    def made(self, module):
        return module.to(self.device, self.kind)

    def tokens(self, batch):
        size = (batch, self.shape["sequence"])
        return torch.randint(self.shape["vocabulary"], size, device=self.device)

    def hidden(self, batch):
        size = (batch, self.shape["sequence"], self.shape["hidden"])
        return torch.randn(size, device=self.device, dtype=self.kind, requires_grad=True)

    def optimiser(self, module):
        return torch.optim.AdamW(module.parameters(), lr=1e-4, fused=self.cuda)


def operator(bench, name, module, inputs, count):
    """Times of one operator alone: forward, forward and backward, update; as `count` operators in a row."""
    def forward():
        return module(*inputs)

    def both():
        out = module(*inputs)
        out.backward(torch.ones_like(out))

    inner = 4
    # The forward pass of a training keeps what the backward pass needs.
    seconds, _ = bench.timed(forward, inner=inner)
    whole, _ = bench.timed(both, inner=inner)
    update, _ = bench.timed(bench.optimiser(module).step, inner=inner)
    module.zero_grad(set_to_none=True)
    parameters = sum(one.numel() * one.element_size() for one in module.parameters())
    figures = dict(forward_seconds=seconds, backward_seconds=max(whole - seconds, 0.0), update_seconds=update)
    names = [name] if count == 1 else ["%s_%d" % (name, at) for at in range(count)]
    return [dict(name=one, parameter_bytes=parameters, is_layer=count > 1, **figures) for one in names]


def profile(bench, batch):
    """All operators of the model at a micro-batch, each measured alone."""
    shape = bench.shape
    hidden = bench.hidden(batch)
    operators = operator(bench, "embedding", bench.made(nn.Embedding(shape["vocabulary"], shape["hidden"])), (bench.tokens(batch),), 1)
    layer = bench.made(Layer(shape["hidden"], shape["heads"]))
    operators += operator(bench, "layer", layer, (hidden,), shape["layers"])
    head = bench.made(Head(shape["hidden"], shape["vocabulary"]))
    operators += operator(bench, "head", head, (hidden, bench.tokens(batch)), 1)
    return dict(batch=batch, operators=operators)


def cases(bench):
    """Whole steps."""
    torch.manual_seed(1)
    model = bench.made(Model(bench.shape))
    optimiser = bench.optimiser(model)
    for recompute in (False, True):
        for micro in MICRO_BATCHES:
            tokens, targets = bench.tokens(micro), bench.tokens(micro)
            count = SAMPLES // micro

            def step():
                for _ in range(count):
                    model(tokens, targets, recompute).backward()
                optimiser.step()
                # Gradients stay where they are: the next step begins with an addition, as in a loop that keeps them.
                optimiser.zero_grad(set_to_none=True)

            if bench.cuda:
                torch.cuda.reset_peak_memory_stats()
            seconds, spread = bench.timed(step)
            peak = torch.cuda.max_memory_allocated() if bench.cuda else 0
            name = "all" if recompute else "nothing"
            print("micro-batch %d x %d, recompute %s: %.4f s" % (micro, count, name, seconds))
            yield dict(
                micro_batch=micro, micro_batches=count, recompute=name, seconds=seconds, spread=spread, peak_bytes=peak
            )
            if time.monotonic() > bench.ends:
                print("the budget is spent; cases are left out", file=sys.stderr)
                return


def exported(bench, out):
    """Two modules through the exporter: a layer of the model, and a small convolutional network with a skip."""
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 64, 3, padding=1)
            self.second = nn.Conv2d(64, 64, 3, padding=1)
            self.third = nn.Conv2d(64, 64, 3, padding=1)
            self.last = nn.Linear(64, 10)

        def forward(self, x):
            x = torch.relu(self.first(x))
            x = x + torch.relu(self.third(torch.relu(self.second(x))))
            return self.last(x.mean((2, 3)))

    block = bench.made(Block())
    layer = bench.made(Layer(bench.shape["hidden"], bench.shape["heads"]))
    images = torch.randn(16, 3, 64, 64, device=bench.device, dtype=bench.kind)
    for name, module, given in (("layer", layer, bench.hidden(2)), ("block", block, images)):
        text = export(module, given, name=name, measured_on=bench.gpu)
        (out / ("graph-%s.json" % name)).write_text(text)
        print("exported %s: %d operators" % (name, len(json.loads(text)["operators"])))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--gpu")
    parser.add_argument("--budget", type=float, default=300.0)
    arguments = parser.parse_args()
    bench = Bench(arguments)
    torch.manual_seed(0)
    profiles = [profile(bench, batch) for batch in (MICRO_BATCHES[0], MICRO_BATCHES[-1])]
    if bench.cuda:
        torch.cuda.empty_cache()
    measured = []
    evidence = dict(
        kind="planner-evidence",
        gpu=bench.gpu,
        device=torch.cuda.get_device_name() if bench.cuda else "cpu",
        torch=torch.__version__,
        model="transformer " + " ".join("%s=%d" % pair for pair in bench.shape.items()),
        profiles=profiles,
        cases=measured,
    )
    for case in cases(bench):
        measured.append(case)
        # Written at each case, so that a run that is cut off leaves what it has.
        (arguments.out / "evidence.json").write_text(json.dumps(evidence, indent=1) + "\n")
    exported(bench, arguments.out)


if __name__ == "__main__":
    main()
