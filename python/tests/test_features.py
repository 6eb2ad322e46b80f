"""Features of operators: by hand for small models where PyTorch is installed, and as a table of a profile anywhere."""

import importlib
import unittest

from trainyard.features import describe, profile_text


class AsAProfile(unittest.TestCase):
    def test_a_table_has_a_line_for_each_feature(self):
        text = profile_text("our-net", {"batch": 8.0, "convolution": 0.25})
        self.assertEqual(
            text, "# features of our-net\n[model.features]\nbatch = 8.0\nconvolution = 0.25\n"
        )

    def test_a_number_that_is_none_is_refused_with_its_name(self):
        with self.assertRaisesRegex(ValueError, "flops of our-net"):
            profile_text("our-net", {"flops": float("nan")})


class OfAModel(unittest.TestCase):
    def setUp(self):
        try:
            self.torch = importlib.import_module("torch")
        except ImportError:
            self.skipTest("torch is not here")

    def test_a_convolution_and_a_layer_are_counted_by_hand(self):
        nn = self.torch.nn
        model = nn.Sequential(
            nn.Conv2d(3, 4, kernel_size=3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
        )
        features = describe(model, self.torch.zeros(2, 3, 8, 8))
        convolution = 2 * (2 * 4 * 8 * 8) * 3 * 9
        layer = 2 * (2 * 10) * 256
        rest = 2 * 4 * 8 * 8 * 2
        self.assertEqual(features["batch"], 2.0)
        self.assertEqual(features["operators"], 4.0)
        self.assertEqual(features["parameters"], 4 * 27 + 4 + 256 * 10 + 10)
        self.assertEqual(features["flops"], 3.0 * (convolution + layer + rest))
        self.assertAlmostEqual(features["convolution"], convolution / (convolution + layer + rest))
        self.assertEqual(features["half_precision"], 0.0)
        self.assertTrue(model.training)

    def test_what_cannot_be_traced_is_watched(self):
        torch = self.torch

        class Branching(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.layer(x) if float(x.sum()) > -1.0 else x

        features = describe(Branching(), torch.ones(5, 4))
        self.assertEqual(features["flops"], 3.0 * 2 * 5 * 4 * 4)
        self.assertEqual(features["matrix"], 1.0)

    def test_recurrent_cells_count_each_gate_and_step(self):
        lstm = self.torch.nn.LSTM(6, 8, num_layers=2)
        features = describe(lstm, self.torch.zeros(7, 3, 6))
        work = 4 * 2 * (7 * 3) * 8 * ((6 + 8) + (8 + 8))
        self.assertEqual(features["flops"], 3.0 * work)
        self.assertEqual(features["recurrent"], 1.0)

    def test_half_precision_is_seen(self):
        layer = self.torch.nn.Linear(4, 4).bfloat16()
        self.assertEqual(describe(layer, self.torch.zeros(2, 4).bfloat16())["half_precision"], 1.0)


if __name__ == "__main__":
    unittest.main()
