"""The blocks of the guide's page run as they stand there, where what they need is installed."""

import importlib
import os
import re
import tempfile
import unittest
import warnings

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/guide/python.md")


def blocks():
    with open(PAGE) as file:
        found = re.findall(r"```python\n# needs (\w+)\n(.*?)```", file.read(), re.DOTALL)
    return dict(found)


class Guide(unittest.TestCase):
    def run_block(self, need, **given):
        try:
            importlib.import_module(need)
        except ImportError:
            self.skipTest("%s is not here" % need)
        warnings.simplefilter("ignore")
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                names = dict(given)
                exec(compile(blocks()[need], "%s of the guide" % need, "exec"), names)
                return names
            finally:
                os.chdir(before)

    def given(self):
        """A module that three frameworks understand, and rows for it."""
        import torch

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def forward(self, inputs, labels=None):
                told = self.layer(inputs)
                return {"loss": torch.nn.functional.mse_loss(told, labels), "logits": told}

        rows = [{"inputs": torch.randn(4), "labels": torch.randn(1)} for _ in range(16)]
        return Module(), rows

    def test_every_block_is_tried(self):
        self.assertEqual(set(blocks()), {"lightning", "transformers", "accelerate", "optuna"})

    def test_lightning(self):
        try:
            import lightning
            import torch
        except ImportError:
            self.skipTest("lightning is not here")

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def training_step(self, batch, _):
                return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.05)

        dataset = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
        names = self.run_block("lightning", module=Module(), dataset=dataset)
        self.assertEqual(names["trainer"].global_step, 8)

    def test_transformers(self):
        try:
            module, rows = self.given()
        except ImportError:
            self.skipTest("PyTorch is not here")
        names = self.run_block("transformers", module=module, rows=rows)
        self.assertGreater(names["trainer"].state.global_step, 0)

    def test_accelerate(self):
        try:
            module, rows = self.given()
        except ImportError:
            self.skipTest("PyTorch is not here")
        names = self.run_block("accelerate", module=module, rows=rows)
        self.assertEqual(names["step"], 7)

    def test_optuna(self):
        from tests.test_optuna import Played

        class Client(Played):
            def submit(self, job):
                return super().submit(dict(job, loss=1.0))

        client = Client(dict.fromkeys(range(1, 4), "finished"))
        names = self.run_block("optuna", client=client)
        self.assertEqual(len(names["study"].trials), 3)
        self.assertEqual({spec["search"] for spec in client.specs.values()}, {"rates"})


if __name__ == "__main__":
    unittest.main()
