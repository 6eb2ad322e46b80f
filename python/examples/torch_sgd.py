"""A small network in PyTorch, on a GPU where there is one, with the same final loss however often it is resumed.

    trainyard run --gpus 1 -- python3 python/examples/torch_sgd.py --steps 2000
"""

import argparse
import os
import time

import torch

import trainyard
from trainyard.noise import TorchNoiseScale


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=500)
    flags.add_argument("--width", type=int, default=64)
    flags.add_argument("--parts", type=int, default=2, help="parts of an accumulated batch")
    flags.add_argument("--stop-after", type=int, help="behave as if asked to stop after so many steps")
    flags = flags.parse_args()

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(
        torch.nn.Linear(16, flags.width), torch.nn.Tanh(), torch.nn.Linear(flags.width, 1)
    ).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    yard = trainyard.join(total_steps=flags.steps)
    path = os.path.join(yard.checkpoint_dir or ".", "torch_sgd.pt")
    start = 0
    if yard.restore_from and os.path.exists(path):
        began = time.monotonic()
        state = torch.load(path, map_location=device)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        start = state["step"]
        yard.restored(start, seconds=time.monotonic() - began)
        print("resumed at step", start, flush=True)

    noise = TorchNoiseScale(model, examples=32)
    loss = None
    for step in yard.steps(start):
        loss = descend(model, optimiser, noise, step, flags.parts, device)
        if flags.stop_after == step + 1:
            yard.request_stop()
        if yard.step(step + 1, loss=loss, noise_scale=noise.value, accumulation=flags.parts - 1):
            began = time.monotonic()
            save(path, model, optimiser, step + 1)
            yard.exit_saved(step + 1, seconds=time.monotonic() - began)
    save(path, model, optimiser, flags.steps)
    yard.finished()
    print("final loss", repr(loss))


def descend(model, optimiser, noise, step, parts, device):
    """One step on a batch that depends on the step alone."""
    draw = torch.Generator().manual_seed(step)
    optimiser.zero_grad()
    whole = 0.0
    for _ in range(parts):
        inputs = torch.randn(32, 16, generator=draw).to(device)
        target = torch.sin(inputs.sum(dim=1, keepdim=True))
        loss = torch.nn.functional.mse_loss(model(inputs), target)
        loss.backward()
        noise.accumulated()
        whole += float(loss.detach()) / parts
    noise.step()
    for parameter in model.parameters():
        parameter.grad /= parts
    optimiser.step()
    return whole


def save(path, model, optimiser, step):
    """Writes a checkpoint so that there is always a whole one."""
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}
    torch.save(state, path + ".partial")
    os.replace(path + ".partial", path)


if __name__ == "__main__":
    main()
