"""A training that follows the batch it is told, and counts its progress in steps at its first batch.

    name = "goodput"
    command = ["python3", "python/examples/torch_goodput.py", "--steps", "20000"]
    gpus = 1
    batch = 64
    batch_max = 8192
    batch_per_gpu_min = 32
    batch_per_gpu_max = 4096

With such a job file a goodput policy like `pollux` chooses the batch by what this reports: the time of a step and the
gradient noise.
A step at a larger batch is worth more than one at the first, by the gain of AdaScale (Johnson et al., ICML 2020), and
the learning rate grows by that gain. Without a policy that chooses, the first batch stays.
"""

import argparse
import os
import time

import torch

import trainyard
from trainyard.noise import TorchNoiseScale

INPUTS = 64
# A step is cut in two, so that the noise shows in the difference of the parts.
PARTS = 2


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=float, default=2000, help="progress to make, in steps at the first batch")
    flags.add_argument("--batch", type=int, default=64, help="the first batch")
    flags.add_argument("--width", type=int, default=1024)
    flags.add_argument("--layers", type=int, default=8)
    flags.add_argument("--rate", type=float, default=0.05, help="the learning rate at the first batch")
    flags.add_argument("--seed", type=int, default=1, help="of the first weights")
    flags = flags.parse_args()

    torch.manual_seed(flags.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    teacher, model = network(32, 1).to(device), network(flags.width, flags.layers).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=flags.rate)
    noise = TorchNoiseScale(model, examples=flags.batch // PARTS, smoothing=0.99)

    yard = trainyard.join(total_steps=flags.steps)
    path = os.path.join(yard.checkpoint_dir or ".", "torch_goodput.pt")
    done, steps = restore(yard, path, model, device)
    seconds = None
    began = time.monotonic()
    while done < flags.steps:
        batch = max(yard.batch or flags.batch, PARTS)
        gain = worth(noise.value, flags.batch, batch)
        optimiser.param_groups[0]["lr"] = flags.rate * gain
        started = time.monotonic()
        loss = descend(model, teacher, optimiser, noise, batch // PARTS, steps, device)
        took = time.monotonic() - started
        seconds = took if seconds is None else 0.9 * seconds + 0.1 * took
        done, steps = done + gain, steps + 1
        stop = yard.step(
            done, loss=loss, batch=batch, accumulation=PARTS - 1, noise_scale=noise.value, step_seconds=seconds
        )
        if stop:
            torch.save({"model": model.state_dict(), "done": done, "steps": steps}, path)
            yard.exit_saved(done)
    yard.finished()
    took = time.monotonic() - began
    print("final loss %.5f, %d steps in %.1f s, last batch %d" % (examine(model, teacher, device), steps, took, batch))


def network(width, layers):
    """Layers of one width with a step from input to output beside each."""
    middle = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(layers - 1)]
    first = torch.nn.Sequential(torch.nn.Linear(INPUTS, width), torch.nn.Tanh())
    return torch.nn.Sequential(first, *middle, torch.nn.Linear(width, 1))


def restore(yard, path, model, device):
    """Progress and steps of an earlier launch, if there was one."""
    if not (yard.restore_from and os.path.exists(path)):
        return 0.0, 0
    state = torch.load(path, map_location=device)
    model.load_state_dict(state["model"])
    yard.restored(state["done"])
    return state["done"], state["steps"]


def worth(noise, first, batch):
    """What a step at a batch is worth in steps at the first; no more than is known while the noise is not."""
    if noise is None:
        return 1.0
    return (noise / first + 1.0) / (noise / batch + 1.0)


def draw(size, teacher, seed, device):
    """Examples that depend on the seed alone: what a small network says, and much noise."""
    source = torch.Generator(device=device).manual_seed(seed)
    inputs = torch.randn(size, INPUTS, generator=source, device=device)
    with torch.no_grad():
        target = 4.0 * teacher(inputs)
    return inputs, target + torch.randn(size, 1, generator=source, device=device)


def descend(model, teacher, optimiser, noise, size, step, device):
    """One step on a batch of so many examples in each part."""
    optimiser.zero_grad()
    noise.examples = size
    whole = 0.0
    for part in range(PARTS):
        inputs, target = draw(size, teacher, 1 + step * PARTS + part, device)
        loss = torch.nn.functional.mse_loss(model(inputs), target)
        loss.backward()
        noise.accumulated()
        whole += float(loss.detach()) / PARTS
    noise.step()
    for parameter in model.parameters():
        parameter.grad /= PARTS
    optimiser.step()
    return whole


def examine(model, teacher, device):
    """The loss on examples that were never trained on."""
    inputs, target = draw(20000, teacher, 0, device)
    with torch.no_grad():
        return float(torch.nn.functional.mse_loss(model(inputs), target))


if __name__ == "__main__":
    main()
