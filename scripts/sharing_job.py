"""A training that knows nothing of sharing, of suspension or of the daemon: python3 scripts/sharing_job.py KIND STEPS GIB

KIND is heavy, medium or small (see sharing_worker.py), GIB the GPU memory that it holds beside its model. It prints its
steps and, at the end, a checksum of all it holds: the same for the same arguments, however often it was put aside.
With FAKE_DRIVER, a folder with the driver's stand-in, it needs no PyTorch: a step takes 50 ms.
"""

import os
import pathlib
import sys
import time


def stand_in(steps):
    """Counts, and is known to the stand-in of the driver as a process that uses the GPU."""
    mark = pathlib.Path(os.environ["FAKE_DRIVER"]) / str(os.getpid())
    mark.write_text("0\n")
    total, began = 0, time.monotonic()
    for step in range(steps):
        time.sleep(0.05)
        total = (total * 31 + step) % 1_000_003
        if step % 20 == 0:
            print("step", step, flush=True)
    mark.unlink()
    return total, time.monotonic() - began


def train(kind, steps, gib):
    """Steps by PyTorch, unmodified."""
    import torch

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from sharing_worker import Torch

    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    held = torch.arange(int(gib * 2**30) // 8, dtype=torch.int64, device="cuda") if gib else None
    step = Torch().make(kind)
    began = time.monotonic()
    for number in range(steps):
        step()
        if number % 50 == 0:
            torch.cuda.synchronize()
            print("step", number, f"{time.monotonic() - began:.1f}", flush=True)
    torch.cuda.synchronize()
    trained = time.monotonic() - began
    return int(held.sum().item()) if held is not None else 0, trained


def main():
    kind, steps, gib = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    total, trained = stand_in(steps) if "FAKE_DRIVER" in os.environ else train(kind, steps, gib)
    print(f"done {steps} steps checksum {total} trained {trained:.2f}", flush=True)


if __name__ == "__main__":
    main()
