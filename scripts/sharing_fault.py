"""A training that writes where nothing is after so many seconds, or never: sharing_fault.py SECONDS|never [STEPS]

With FAKE_DRIVER it needs no PyTorch: a step takes 50 ms. There a job that is a client of the stand-in of MPS ends when
that says FAULT, as a program does whose neighbour brought MPS down.
"""

import os
import pathlib
import sys
import time


def stand_in(seconds, steps):
    """Steps without a GPU."""
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    control = [pathlib.Path(word).parent for word in os.environ.get("FAKE_MPS", "").split() if word]
    began = time.monotonic()
    for _ in range(steps):
        time.sleep(0.05)
        if seconds is not None and time.monotonic() - began > seconds:
            sys.exit(1)
        if pipes and any((folder / "status").exists() for folder in control):
            sys.exit(1)


def train(seconds, steps):
    """Steps by PyTorch."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from sharing_worker import Torch

    torch = Torch()
    step, began = torch.make("medium"), time.monotonic()
    for _ in range(steps):
        step()
        torch.torch.cuda.synchronize()
        if seconds is not None and time.monotonic() - began > seconds:
            sys.exit(f"it heard: {torch.fault()}")


def main():
    seconds = None if sys.argv[1] == "never" else float(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    (stand_in if "FAKE_DRIVER" in os.environ else train)(seconds, steps)
    print(f"done {steps} steps", flush=True)


if __name__ == "__main__":
    main()
