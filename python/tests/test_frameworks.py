"""Callbacks in the real frameworks, where they are installed: a run that is stopped and resumed ends as one that is not."""

import importlib
import json
import os
import tempfile
import unittest
import warnings

from trainyard import Session

STEPS, STOP_AFTER = 24, 10


def needs(case, *names):
    """Skips a test where none of some modules is there; the first that is."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    case.skipTest("%s is not here" % " or ".join(names))


class InAFramework(unittest.TestCase):
    """A job whose keeper is on another machine: what it tells is a file."""

    def setUp(self):
        warnings.simplefilter("ignore")
        self.torch = needs(self, "torch")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def session(self, name, resumes=False, stop_after=None):
        """The session of one attempt; asked to stop after so many steps."""
        place = os.path.join(self.folder, name)
        os.makedirs(place, exist_ok=True)
        environ = {
            "TRAINYARD_JOB_ID": "7",
            "TRAINYARD_CHECKPOINT_DIR": place,
            "TRAINYARD_REPORT_FILE": place + ".said",
            "TRAINYARD_ACK_FILE": place + ".ack",
        }
        if resumes:
            environ["TRAINYARD_RESTORE_FROM"] = place
        session = Session(environ, report_every=0.0)
        self.addCleanup(session.close)
        if stop_after is not None:
            step = session.step

            def until(done, **fields):
                if done >= stop_after:
                    session.request_stop()
                return step(done, **fields)

            session.step = until
        return session

    def said(self, name):
        with open(os.path.join(self.folder, name + ".said")) as file:
            return [json.loads(line) for line in file]

    def check(self, fit):
        """``fit`` trains in a session and returns the weights at its end."""
        whole = fit(self.session("whole"), "whole")
        with self.assertRaises(SystemExit) as left:
            fit(self.session("parts", stop_after=STOP_AFTER), "parts")
        self.assertEqual(left.exception.code, 85)
        with open(os.path.join(self.folder, "parts.ack")) as file:
            self.assertEqual(float(file.read()), STOP_AFTER)
        resumed = fit(self.session("parts", resumes=True), "parts")
        self.assertTrue(self.torch.equal(whole, resumed), "%s and %s" % (whole, resumed))
        said = self.said("parts")
        steps = [m["done"] for m in said if m["type"] == "progress"]
        self.assertEqual(steps, [float(step) for step in range(1, STEPS + 1)], "no step twice and none left out")
        self.assertEqual([m["total"] for m in said if m["type"] == "progress"], [STEPS] * STEPS)
        self.assertIn({"type": "saving"}, said)
        saved = [m for m in said if m["type"] == "saved"]
        self.assertEqual(saved[0]["done"], STOP_AFTER)
        self.assertIn(STOP_AFTER, [m["done"] for m in said if m["type"] == "restored"])
        losses = [m["loss"] for m in said if m["type"] == "progress" and "loss" in m]
        self.assertGreater(len(losses), STEPS // 2)
        self.assertLess(losses[-1], losses[0])
        return said

    def data(self):
        """Rows of a linear function, in the same order in every run."""
        draw = self.torch.Generator().manual_seed(1)
        inputs = self.torch.randn(32, 4, generator=draw)
        return inputs, inputs.sum(dim=1, keepdim=True)


class Lightning(InAFramework):
    def test_a_stopped_and_resumed_fit_ends_with_the_same_weights(self):
        lightning = needs(self, "lightning.pytorch", "pytorch_lightning")
        from trainyard.lightning import Loader, TrainyardCallback

        torch, (inputs, targets) = self.torch, self.data()

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                torch.manual_seed(2)
                self.layer = torch.nn.Linear(4, 1)

            def training_step(self, batch, _):
                return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

        def fit(session, name):
            yard, module = TrainyardCallback(session), Module()
            data = torch.utils.data.TensorDataset(inputs, targets)
            trainer = lightning.Trainer(
                callbacks=[yard],
                plugins=yard.plugins(),
                max_epochs=3,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=os.path.join(self.folder, name),
            )
            trainer.fit(module, Loader(data, batch_size=4), ckpt_path=yard.resume_from)
            return module.layer.weight.detach().clone()

        said = self.check(fit)
        self.assertEqual({m.get("epoch") for m in said if m["type"] == "progress"}, {0, 1, 2})


class HuggingFaceTrainer(InAFramework):
    def test_a_stopped_and_resumed_training_ends_with_the_same_weights(self):
        transformers = needs(self, "transformers")
        needs(self, "accelerate")
        from trainyard.transformers import TrainyardCallback

        torch, (inputs, targets) = self.torch, self.data()
        rows = [{"inputs": x, "labels": y} for x, y in zip(inputs, targets)]

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(2)
                self.layer = torch.nn.Linear(4, 1)

            def forward(self, inputs, labels=None):
                told = self.layer(inputs)
                return {"loss": torch.nn.functional.mse_loss(told, labels), "logits": told}

        def fit(session, name):
            yard, module = TrainyardCallback(session), Module()
            arguments = transformers.TrainingArguments(
                output_dir=yard.output_dir("unused"),
                num_train_epochs=3,
                per_device_train_batch_size=4,
                learning_rate=0.05,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                remove_unused_columns=False,
            )
            trainer = transformers.Trainer(module, arguments, train_dataset=rows, callbacks=[yard])
            trainer.train(resume_from_checkpoint=yard.resume_from)
            return module.layer.weight.detach().clone()

        self.check(fit)

    def test_a_checkpoint_that_is_not_whole_is_not_resumed_from(self):
        needs(self, "transformers")
        from trainyard.transformers import TrainyardCallback

        session = self.session("job", resumes=True)
        for step, whole in ((5, True), (10, True), (15, False)):
            place = os.path.join(session.checkpoint_dir, "checkpoint-%d" % step)
            os.makedirs(place)
            if whole:
                open(os.path.join(place, "trainer_state.json"), "w").close()
        newest = os.path.join(session.checkpoint_dir, "checkpoint-10")
        self.assertEqual(TrainyardCallback(session).resume_from, newest)


class Accelerate(InAFramework):
    def test_a_stopped_and_resumed_loop_ends_with_the_same_weights(self):
        accelerate = needs(self, "accelerate")
        from trainyard.accelerate import Loop

        torch, (inputs, targets) = self.torch, self.data()

        def fit(session, name):
            torch.manual_seed(2)
            accelerator = accelerate.Accelerator(cpu=True)
            model = torch.nn.Linear(4, 1)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            model, optimiser = accelerator.prepare(model, optimiser)
            loop = Loop(accelerator, total_steps=STEPS, session=session)
            for step in loop.steps():
                rows = [(4 * step + row) % len(inputs) for row in range(4)]
                optimiser.zero_grad()
                loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
                accelerator.backward(loss)
                optimiser.step()
                loop.step(step + 1, loss=loss.detach(), epoch=step // 8)
            loop.finished()
            return accelerator.unwrap_model(model).weight.detach().clone()

        said = self.check(fit)
        self.assertEqual(said[-1], {"type": "finished"})

    def test_a_save_that_breaks_off_leaves_the_one_before(self):
        accelerate = needs(self, "accelerate")
        from trainyard.accelerate import Loop

        accelerator = accelerate.Accelerator(cpu=True)
        model = accelerator.prepare(self.torch.nn.Linear(4, 1))
        loop = Loop(accelerator, session=self.session("job"))
        for step in (2, 4):
            with self.torch.no_grad():
                model.weight.fill_(float(step))
            loop.save(step)
        self.torch.nn.init.zeros_(model.weight)
        broken = accelerator.save_state
        accelerator.save_state = lambda *_: (_ for _ in ()).throw(OSError("the disk is full"))
        with self.assertRaises(OSError):
            loop.save(6)
        accelerator.save_state = broken
        again = Loop(accelerator, session=self.session("job", resumes=True))
        self.assertEqual(again.restore(), 4)
        self.assertEqual(float(model.weight[0, 0]), 4.0)


if __name__ == "__main__":
    unittest.main()
