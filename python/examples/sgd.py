"""Stochastic gradient descent in plain Python, with the same final loss however often it is stopped and resumed.

    trainyard run --gpus 1 -- python3 python/examples/sgd.py --steps 2000
"""

import argparse
import json
import os
import random
import time

import trainyard


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=500)
    flags.add_argument("--step-seconds", type=float, default=0.0, help="how long a step takes at least")
    flags.add_argument("--scales", action="store_true", help="on several GPUs a step takes so many times less")
    flags.add_argument("--stop-after", type=int, help="behave as if asked to stop after so many steps")
    flags = flags.parse_args()

    yard = trainyard.join(total_steps=flags.steps)
    path = os.path.join(yard.checkpoint_dir or ".", "sgd.json")
    weights, start = [0.0] * 8, 0
    if yard.restore_from and os.path.exists(path):
        began = time.monotonic()
        with open(path) as file:
            weights, start = json.load(file)
        yard.restored(start, seconds=time.monotonic() - began)
        print("resumed at step", start, flush=True)

    gpus = int(os.environ.get("TRAINYARD_GPUS") or 1) if flags.scales else 1
    loss = None
    for step in yard.steps(start):
        loss = descend(weights, step)
        time.sleep(flags.step_seconds / gpus)
        if flags.stop_after == step + 1:
            yard.request_stop()
        if yard.step(step + 1, loss=loss):
            began = time.monotonic()
            save(path, weights, step + 1)
            yard.exit_saved(step + 1, seconds=time.monotonic() - began)
    save(path, weights, flags.steps)
    yard.finished()
    print("final loss", repr(loss))


def descend(weights, step):
    """One step on a batch that depends on the step alone."""
    draw = random.Random(step)
    loss, gradient = 0.0, [0.0] * len(weights)
    for _ in range(16):
        inputs = [draw.gauss(0.0, 1.0) for _ in weights]
        target = sum((index + 1) * value for index, value in enumerate(inputs)) + draw.gauss(0.0, 0.1)
        error = sum(w * x for w, x in zip(weights, inputs)) - target
        loss += error * error / 16
        for index, value in enumerate(inputs):
            gradient[index] += 2.0 * error * value / 16
    for index, slope in enumerate(gradient):
        weights[index] -= 0.02 * slope
    return loss


def save(path, weights, step):
    """Writes a checkpoint so that there is always a whole one."""
    with open(path + ".partial", "w") as file:
        json.dump([weights, step], file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".partial", path)


if __name__ == "__main__":
    main()
