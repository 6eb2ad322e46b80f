"""A callback for the Trainer of Hugging Face's transformers: reports, saves when asked to stop, resumes.

    from trainyard.transformers import TrainyardCallback
    yard = TrainyardCallback()
    arguments = TrainingArguments(output_dir=yard.output_dir("out"), ...)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[yard])
    trainer.train(resume_from_checkpoint=yard.resume_from)

Without Trainyard it does nothing.
"""

import os
import re
import time

from transformers import TrainerCallback

from .session import SAVED, join


class TrainyardCallback(TrainerCallback):
    """Reports to the session of this process, and obeys its stops: the Trainer saves, and the process exits with 85."""

    def __init__(self, session=None):
        self.session = join() if session is None else session
        self._stopped = False
        self._loss = None
        self._began = None

    def output_dir(self, otherwise):
        """Where checkpoints belong: the job's own directory, or ``otherwise`` where Trainyard does not run it."""
        return self.session.checkpoint_dir or otherwise

    @property
    def resume_from(self):
        """The newest whole checkpoint of the job, for ``train(resume_from_checkpoint=...)``; None where there is none."""
        folder = self.session.restore_from
        if not folder or not os.path.isdir(folder):
            return None
        steps = []
        for name in os.listdir(folder):
            match = re.fullmatch(r"checkpoint-(\d+)", name)
            # The Trainer writes its state last.
            if match and os.path.exists(os.path.join(folder, name, "trainer_state.json")):
                steps.append(int(match.group(1)))
        return os.path.join(folder, "checkpoint-%d" % max(steps)) if steps else None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.max_steps and state.max_steps > 0:
            self.session.total_steps = int(state.max_steps)
        if state.global_step and self.resume_from:
            self.session.restored(state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        self._loss = (logs or {}).get("loss", self._loss)

    def on_step_end(self, args, state, control, **kwargs):
        epoch = None if state.epoch is None else int(state.epoch)
        self.session.step(state.global_step, loss=self._loss, epoch=epoch)
        if self.session.stop_agreed():
            self._stopped = True
            control.should_training_stop = control.should_save = True
        elif self.session.save_requested:
            control.should_save = True
        if control.should_save and self._began is None:
            self._began = time.monotonic()
            self.session.saving()
        return control

    def on_save(self, args, state, control, **kwargs):
        began, self._began = self._began, None
        if state.is_world_process_zero:
            self.session.saved(state.global_step, seconds=None if began is None else time.monotonic() - began)

    def on_train_end(self, args, state, control, **kwargs):
        if self._stopped and state.global_step < (state.max_steps or 0):
            raise SystemExit(SAVED)
