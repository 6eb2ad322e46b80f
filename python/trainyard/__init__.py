"""What a training loop says to Trainyard and hears from it.

    import trainyard
    yard = trainyard.join(total_steps=10_000)
    for step in yard.steps(load_checkpoint(yard.restore_from)):
        if yard.step(step + 1, loss=train_one_step(yard.batch or 32)):   # true: a stop was asked for
            save_checkpoint(step + 1)
            yard.exit_saved(step + 1)
    yard.finished()

Everything is a no-op where no Trainyard runs the program. Standard library only.

- ``Client``: submits jobs and asks about them.
- ``trainyard.lightning``, ``trainyard.transformers``, ``trainyard.accelerate``: the same for these frameworks.
- ``trainyard.resize``: data-parallel training that changes its number of ranks while it runs.
- ``trainyard.optuna``: the trials of a study as jobs.
"""

from .client import Client, Problem
from .noise import NoiseScale
from .session import Session, join

__all__ = ["Client", "NoiseScale", "Problem", "Session", "join"]
__version__ = "0.1.0"
