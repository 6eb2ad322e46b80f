"""A training loop with Hugging Face's Accelerate, which has no callbacks: one object and one call for each step.

    from trainyard.accelerate import Loop
    loop = Loop(accelerator, total_steps=10_000)
    for step in loop.steps():                          # goes on where the last attempt saved
        ...
        loop.step(step + 1, loss=loss)                 # reports; saves and exits when a stop is asked for
    loop.finished()

Call it after ``accelerator.prepare``. Without Trainyard it does nothing.
"""

import json
import os
import time

from .session import SAVED, join

#: The folder of the state, and the file that says which step it holds, written when all else is there.
FOLDER, MARK = "accelerate", "trainyard.json"


class Loop:
    """Steps of a training with an ``Accelerator``, with its state saved by ``save_state``."""

    def __init__(self, accelerator, total_steps=None, session=None):
        self.accelerator = accelerator
        self.session = join() if session is None else session
        self.session.total_steps = total_steps if total_steps is not None else self.session.total_steps
        # Two folders by turns, so that the older state outlives the writing of the newer one.
        self._turn = 0

    def steps(self):
        """Step numbers from where the last attempt saved; loads its state first."""
        return self.session.steps(self.restore())

    def restore(self):
        """Loads the newest state, if there is one; returns the steps it holds."""
        folder = self.session.restore_from
        mark = os.path.join(folder, FOLDER, MARK) if folder else None
        if not mark or not os.path.exists(mark):
            return 0
        began = time.monotonic()
        with open(mark) as file:
            saved = json.load(file)
        self.accelerator.load_state(os.path.join(folder, FOLDER, "state-%d" % saved["turn"]))
        self._turn = 1 - saved["turn"]
        if self.accelerator.is_main_process:
            self.session.restored(saved["done"], seconds=time.monotonic() - began)
        return saved["done"]

    def step(self, done, **fields):
        """Tells that ``done`` steps are done in all; saves where that is asked for, and exits with 85 on a stop."""
        self.session.step(done, **fields)
        if self.session.stop_agreed():
            self.save(done)
            raise SystemExit(SAVED)
        if self.session.save_requested:
            self.save(done)

    def save(self, done, folder=None):
        """Saves the state of all ranks; the state before is there until this one is whole."""
        began = time.monotonic()
        self.session.saving()
        place = os.path.join(folder or self.session.checkpoint_dir or ".", FOLDER)
        turn, self._turn = self._turn, 1 - self._turn
        self.accelerator.save_state(os.path.join(place, "state-%d" % turn))
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            path = os.path.join(place, MARK)
            with open(path + ".partial", "w") as file:
                json.dump({"done": done, "turn": turn}, file)
            os.replace(path + ".partial", path)
            self.session.saved(done, seconds=time.monotonic() - began)

    def finished(self):
        """Tells that all work is done. Call it last."""
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.session.finished()
