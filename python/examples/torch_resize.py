"""Data-parallel training that changes its number of ranks in place, with the same loss whatever the number is.

    trainyard run --gpus 1 -- python3 python/examples/torch_resize.py --steps 2000
"""

import argparse
import os
import time

import torch

from trainyard import resize


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=200)
    flags.add_argument("--batch", type=int, default=24)
    flags.add_argument("--batch-per-rank", type=int, help="let the batch grow with the ranks, and the rate with it")
    flags.add_argument("--step-seconds", type=float, default=0.0, help="the least time of a step")
    flags = flags.parse_args()
    resize.run(lambda ring: train(ring, flags))


def train(ring, flags):
    """Runs in every worker."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = torch.randn(400, 16, device=device)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = resize.Batches(len(inputs), size=flags.batch)
    rate = resize.LearningRate(optimiser, batch=flags.batch, warmup=10)
    ring.session.total_steps = flags.steps
    path = os.path.join(ring.session.checkpoint_dir or ".", "torch_resize.pt")
    done = load(path, model, optimiser, batches, rate) if ring.session.restore_from else 0
    ring.share(model, optimiser, batches, rate, done=done, batch_per_rank=flags.batch_per_rank)

    loss = None
    for mine in batches:
        if ring.done >= flags.steps:
            break
        began = time.monotonic()
        world, size = ring.world, batches.size

        def loss_of(ddp):
            return torch.nn.functional.mse_loss(ddp(inputs[mine]), targets[mine]) * batches.weight

        loss = ring.descend(loss_of)
        if ring.rank == 0:
            lr = optimiser.param_groups[0]["lr"]
            print("step", ring.done + 1, "ranks", world, "batch", size, "rate %.4f" % lr, "pid", os.getpid(), flush=True)
        time.sleep(max(0.0, flags.step_seconds - (time.monotonic() - began)))
        if ring.step(loss=loss, epoch=batches.epoch):
            if ring.rank == 0:
                parts = {"model": model, "optimiser": optimiser, "batches": batches, "rate": rate}
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(dict(state, done=ring.done), path + ".partial")
                os.replace(path + ".partial", path)
            ring.exit_saved()
    if ring.rank == 0:
        print("final loss", repr(loss), flush=True)


def load(path, model, optimiser, batches, rate):
    """Reads the newest checkpoint, if there is one; the steps it holds."""
    if not os.path.exists(path):
        return 0
    state = torch.load(path)
    for name, part in (("model", model), ("optimiser", optimiser), ("batches", batches), ("rate", rate)):
        part.load_state_dict(state[name])
    return state["done"]


if __name__ == "__main__":
    main()
