#!/usr/bin/env python3
"""What jobs on one GPU keep of their speed alone and in groups of two, three and four, by time slicing.

    python3 scripts/groups_evidence.py OUT.csv [--window 1.8] [--seed 16]

Needs PyTorch and a GPU. Seven training loops are started once, each a process of its own, and take part in a window when
they are told to; so a group is measured without starting anything. Every single, pair, triple and quadruple is measured
in random order, and the singles three times, spread over the run. A row is one job in one group.
"""

import argparse
import csv
import itertools
import multiprocessing
import random
import sys
import time

SETTLE = 0.4


def conv_net(torch, width, blocks, batch, side):
    nn = torch.nn
    layers = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(blocks):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)]
    return nn.Sequential(*layers), torch.randn(batch, 3, side, side), torch.randint(100, (batch,))


def transformer(torch, width, layers, batch, length):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(8000, width)
            layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True)
            self.body = nn.TransformerEncoder(layer, layers)
            self.head = nn.Linear(width, 8000)

        def forward(self, tokens):
            return self.head(self.body(self.embed(tokens))[:, -1])

    return Net(), torch.randint(8000, (batch, length)), torch.randint(8000, (batch,))


def recurrent(torch, width, layers, batch, length):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(8000, width)
            self.body = nn.LSTM(width, width, layers, batch_first=True)
            self.head = nn.Linear(width, 8000)

        def forward(self, tokens):
            return self.head(self.body(self.embed(tokens))[0][:, -1])

    return Net(), torch.randint(8000, (batch, length)), torch.randint(8000, (batch,))


def dense(torch, width, layers, batch):
    nn = torch.nn
    body = []
    for _ in range(layers):
        body += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*body, nn.Linear(width, 100)), torch.randn(batch, width), torch.randint(100, (batch,))


JOBS = {
    "conv-small": (conv_net, (32, 12, 64, 32)),
    "conv-middle": (conv_net, (96, 8, 128, 48)),
    "conv-large": (conv_net, (192, 8, 128, 64)),
    "transformer-small": (transformer, (256, 4, 16, 128)),
    "transformer-large": (transformer, (1024, 8, 32, 256)),
    "lstm": (recurrent, (1024, 2, 64, 64)),
    "dense": (dense, (8192, 4, 256)),
}


def work(name, pipe):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    make, numbers = JOBS[name]
    net, inputs, goal = make(torch, *numbers)
    net, inputs, goal = net.cuda(), inputs.cuda(), goal.cuda()
    optimiser = torch.optim.AdamW(net.parameters(), fused=True)
    loss_of = torch.nn.CrossEntropyLoss()

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(net(inputs), goal)
        loss.backward()
        optimiser.step()
        torch.cuda.synchronize()

    for _ in range(5):
        step()
    pipe.send(torch.cuda.max_memory_reserved() // 2**20)
    while True:
        window = pipe.recv()
        if window is None:
            return
        begin = time.monotonic() + SETTLE
        end = begin + window
        steps, first, last = 0, None, None
        while True:
            step()
            now = time.monotonic()
            if now < begin:
                continue
            if first is None:
                first = now
            else:
                steps, last = steps + 1, now
            # Goes on past the end, so that no job is alone in its last step.
            if now > end + 0.2:
                break
        pipe.send(steps / (last - first) if steps else 0.0)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("out")
    args.add_argument("--window", type=float, default=1.8)
    args.add_argument("--seed", type=int, default=16)
    args = args.parse_args()
    multiprocessing.set_start_method("spawn")
    pipes, processes = {}, []
    for name in JOBS:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=work, args=(name, theirs), daemon=True)
        process.start()
        pipes[name] = ours
        processes.append(process)
    for name, pipe in pipes.items():
        print(name, pipe.recv(), "MiB", flush=True)
    groups = [group for size in (2, 3, 4) for group in itertools.combinations(JOBS, size)]
    groups += [(name,) for name in JOBS] * 3
    random.Random(args.seed).shuffle(groups)
    measured = []
    for group in groups:
        for name in group:
            pipes[name].send(args.window)
        measured.append((group, {name: pipes[name].recv() for name in group}))
    for pipe in pipes.values():
        pipe.send(None)
    alone = {}
    for name in JOBS:
        singles = sorted(rates[name] for group, rates in measured if group == (name,))
        alone[name] = singles[len(singles) // 2]
        print(name, "alone", ["%.3f" % rate for rate in singles], flush=True)
    with open(args.out, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["group", "job", "steps_s", "alone_steps_s", "kept"])
        for group, rates in sorted(measured, key=lambda one: (len(one[0]), one[0])):
            for name in group:
                row = ["+".join(group), name, "%.4f" % rates[name], "%.4f" % alone[name]]
                rows.writerow(row + ["%.4f" % (rates[name] / alone[name])])
    for process in processes:
        process.join(10)


if __name__ == "__main__":
    sys.exit(main())
