#!/usr/bin/env python3
"""Records loss curves of real trainings that are hard to fit: python3 scripts/loss-curves.py OUT

Writes OUT/NAME.csv with the columns epoch and loss, the mean training loss of each epoch:

    smooth     a small transformer on a synthetic language, its learning rate fixed
    noisy      the same with a batch of four and short epochs
    stepped    a convolutional network whose learning rate falls to a tenth twice
    divergent  a deep network whose learning rate is so large that the loss grows in the end

Needs PyTorch; with a GPU about two minutes. All data is drawn from seeds.
"""

import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def language(count, length, words, source):
    """Sentences in which a word follows from the two before it, nine times of ten."""
    text = torch.randint(words, (count, length), generator=source)
    surprise = torch.rand(count, length, generator=source) < 0.1
    for at in range(2, length):
        follows = (text[:, at - 1] * 7 + text[:, at - 2] * 3 + 1) % words
        text[:, at] = torch.where(surprise[:, at], text[:, at], follows)
    return text.to(DEVICE)


class Reader(nn.Module):
    """Two layers of a transformer that read forwards."""

    def __init__(self, words, length):
        super().__init__()
        self.words, self.places = nn.Embedding(words, 128), nn.Embedding(length, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(128, words)

    def forward(self, text):
        length = text.shape[1]
        hidden = self.words(text) + self.places(torch.arange(length, device=text.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        return self.out(self.layers(hidden, mask=mask, is_causal=True))


def read(batch, steps, epochs, rate):
    """Mean loss of each epoch of a transformer."""
    source = torch.Generator().manual_seed(1)
    words, length = 64, 32
    text = language(8192, length, words, source)
    model = Reader(words, length).to(DEVICE)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        whole = 0.0
        for _ in range(steps):
            part = text[torch.randint(len(text), (batch,), generator=source).to(DEVICE)]
            guess = model(part[:, :-1])
            loss = functional.cross_entropy(guess.reshape(-1, words), part[:, 1:].reshape(-1))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            whole += float(loss.detach())
        yield whole / steps


def pictures(source):
    """Pictures of ten patterns under noise, a tenth of them with a wrong label."""
    patterns = torch.randn(10, 1, 16, 16, generator=source)
    labels = torch.randint(10, (16384,), generator=source)
    images = 0.35 * patterns[labels] + torch.randn(16384, 1, 16, 16, generator=source)
    wrong = torch.rand(16384, generator=source) < 0.1
    labels = torch.where(wrong, torch.randint(10, (16384,), generator=source), labels)
    return images.to(DEVICE), labels.to(DEVICE)


def see(epochs, falls):
    """Mean loss of each epoch of a convolutional network whose learning rate falls."""
    source = torch.Generator().manual_seed(2)
    images, labels = pictures(source)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 10),
    ).to(DEVICE)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, falls, 0.1)
    for _ in range(epochs):
        yield one_epoch(model, optimiser, images, labels, source)
        schedule.step()


def one_epoch(model, optimiser, images, labels, source):
    """Mean loss of one pass."""
    whole, parts = 0.0, 0
    for part in torch.randperm(len(images), generator=source).to(DEVICE).split(256):
        loss = functional.cross_entropy(model(images[part]), labels[part])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        whole, parts = whole + float(loss.detach()), parts + 1
    return whole / parts


def overshoot(epochs):
    """Mean loss of each epoch of a network whose learning rate grows until training breaks."""
    source = torch.Generator().manual_seed(3)
    images, labels = pictures(source)
    images = images.flatten(1)
    layers = [layer for _ in range(6) for layer in (nn.LazyLinear(256), nn.ReLU())]
    model = nn.Sequential(*layers, nn.LazyLinear(10)).to(DEVICE)
    model(images[:2])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        optimiser.param_groups[0]["lr"] = 0.05 * 1.12**epoch
        yield one_epoch(model, optimiser, images, labels, source)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    curves = {
        "smooth": read(128, 50, 60, 1e-3),
        "noisy": read(4, 10, 200, 3e-4),
        "stepped": see(60, [30, 45]),
        "divergent": overshoot(60),
    }
    for name, curve in curves.items():
        rows = ["%d,%.6g" % (epoch + 1, loss) for epoch, loss in enumerate(curve)]
        (out / (name + ".csv")).write_text("\n".join(["epoch,loss", *rows]) + "\n")
        print(name, rows[0], rows[-1], flush=True)


if __name__ == "__main__":
    main()
