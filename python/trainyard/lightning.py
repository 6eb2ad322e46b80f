"""A callback for Lightning: reports steps, saves and exits when a stop is asked for, resumes where it left off.

    from trainyard.lightning import Loader, TrainyardCallback
    yard = TrainyardCallback()
    trainer = lightning.Trainer(callbacks=[yard], plugins=yard.plugins(), max_epochs=90)
    trainer.fit(model, Loader(data, batch_size=32), ckpt_path=yard.resume_from)

Works with the packages ``lightning`` and ``pytorch_lightning``. Without Trainyard it does nothing.
"""

import os
import time

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
except ImportError:
    from pytorch_lightning import Callback
    from pytorch_lightning.plugins.environments import LightningEnvironment, TorchElasticEnvironment

from torch.utils.data import DataLoader

from .session import SAVED, join

#: The name of the checkpoint that is written when a stop is asked for.
FILE = "trainyard.ckpt"


class Loader(DataLoader):
    """A ``DataLoader`` that goes on in the middle of an epoch; Lightning begins an epoch again with any other.

    Batches that were trained on are drawn and left out. The order must be the same again: without ``shuffle``, or with a
    sampler whose order depends on the epoch alone, as that of ``DistributedSampler``, which Lightning puts in place on
    several ranks.
    """

    _taken, _skip = 0, 0

    def __iter__(self):
        skip, self._skip = self._skip, 0
        for number, batch in enumerate(super().__iter__()):
            if number >= skip:
                self._taken = number + 1
                yield batch
        self._taken = 0

    def state_dict(self):
        """How many batches of the epoch were taken."""
        return {"taken": self._taken}

    def load_state_dict(self, state):
        """Leaves out what was taken, at the next beginning of an epoch."""
        self._skip = state["taken"]


class TrainyardCallback(Callback):
    """Reports to the session of this process, and obeys its stops.

    ``loss`` names the metric that is reported as the loss, of those that were logged; by default what the training step
    returned. Where a stop is asked for, ``fit`` saves, and the process exits with code 85.
    """

    def __init__(self, session=None, loss=None):
        self.session = join() if session is None else session
        self._loss = loss
        self._stopped = False

    @property
    def resume_from(self):
        """The checkpoint to go on from, for ``fit(ckpt_path=...)``; None where there is none."""
        folder = self.session.restore_from
        path = os.path.join(folder, FILE) if folder else None
        return path if path and os.path.exists(path) else None

    def plugins(self):
        """Plugins for the Trainer: Lightning would take the environment of a job for that of a Slurm step."""
        if self.session.job is None:
            return []
        # One process for each GPU, started by Trainyard or torchrun; else Lightning starts them itself.
        started = self.session.world_size > 1
        return [TorchElasticEnvironment() if started else LightningEnvironment()]

    def on_train_start(self, trainer, module):
        if trainer.global_step and self.resume_from:
            self.session.restored(trainer.global_step)
        total = trainer.estimated_stepping_batches
        if total != float("inf") and total > 0:
            self.session.total_steps = int(total)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        done = trainer.global_step
        self.session.step(done, loss=self._loss_of(trainer, outputs), epoch=trainer.current_epoch)
        if self._stopped:
            return
        if self.session.stop_agreed():
            # The strategy's own save is collective: every rank comes here at the same step.
            self._save(trainer, done)
            self._stopped = trainer.should_stop = True
        elif self.session.save_requested:
            self._save(trainer, done)

    def on_train_end(self, trainer, module):
        # `fit` itself is over: loggers and loaders were closed as in any run.
        if self._stopped:
            raise SystemExit(SAVED)

    def _loss_of(self, trainer, outputs):
        if self._loss is not None:
            return trainer.callback_metrics.get(self._loss)
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        return loss.detach() if hasattr(loss, "detach") else loss

    def _save(self, trainer, done):
        folder = self.session.checkpoint_dir or trainer.default_root_dir
        path, began = os.path.join(folder, FILE), time.monotonic()
        self.session.saving()
        trainer.save_checkpoint(path)
        trainer.strategy.barrier("trainyard")
        if trainer.is_global_zero:
            self.session.saved(done, seconds=time.monotonic() - began)
