import os
import random
import tempfile
import unittest

import trainyard
from trainyard import NoiseScale
from trainyard.noise import TorchNoiseScale

try:
    import torch
except ImportError:
    torch = None


class Estimate(unittest.TestCase):
    def test_the_noise_scale_of_a_known_law_is_found(self):
        """Gradients of single examples are normal with known mean and variance, so that B = S / |G|^2 is known."""
        draw = random.Random(7)
        mean, deviation, parameters = 0.5, 2.0, 50
        truth = deviation**2 * parameters / (mean**2 * parameters)
        small, ranks = 4, 8
        scale = NoiseScale(smoothing=0.995)
        for _ in range(1500):
            means = [
                [draw.gauss(mean, deviation / small**0.5) for _ in range(parameters)] for _ in range(ranks)
            ]
            whole = [sum(column) / ranks for column in zip(*means)]
            each = sum(sum(g * g for g in gradient) for gradient in means) / ranks
            scale.update(each, small, sum(g * g for g in whole), small * ranks)
        self.assertLess(abs(scale.value / truth - 1.0), 0.1, (scale.value, truth))

    def test_without_noise_the_scale_is_nothing_and_without_signal_there_is_none(self):
        scale = NoiseScale()
        self.assertIsNone(scale.value)
        self.assertEqual(scale.update(4.0, 1, 4.0, 8), 0.0)
        self.assertIsNone(NoiseScale().update(8.0, 1, 1.0, 8))

    def test_batches_that_cannot_be_are_refused(self):
        with self.assertRaises(ValueError):
            NoiseScale().update(1.0, 8, 1.0, 8)
        with self.assertRaises(ValueError):
            NoiseScale(smoothing=1.0)


@unittest.skipIf(torch is None, "PyTorch is not here")
class Torch(unittest.TestCase):
    def test_accumulated_gradients_give_what_their_norms_say(self):
        model = torch.nn.Linear(3, 1, bias=False)
        watch = TorchNoiseScale(model, examples=2)
        parts = [torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[3.0, 1.0, 0.0]])]
        for part in parts:
            (model.weight * part).sum().backward()
            watch.accumulated()
        # |g_small|^2 = (5 + 10) / 2, |g_large|^2 = |(2, 1.5, 0)|^2 = 6.25.
        expected = NoiseScale().update(7.5, 2, 6.25, 4)
        self.assertAlmostEqual(watch.step(), expected, places=5)
        self.assertIsNotNone(expected)

    def test_ranks_of_ddp_agree_and_average_as_without_the_hook(self):
        if not torch.distributed.is_available():
            self.skipTest("torch.distributed is not here")
        import torch.multiprocessing as processes

        with tempfile.TemporaryDirectory() as folder:
            try:
                processes.spawn(_rank, args=(folder,), nprocs=2)
            except RuntimeError as error:
                if "gloo" in str(error).lower():
                    self.skipTest("gloo is not here")
                raise
            results = [torch.load(os.path.join(folder, str(rank))) for rank in range(2)]
        # Gradients (1, 0) and (3, 4): mean (2, 2); squared norms 1, 25 and 8.
        expected = NoiseScale().update(13.0, 16, 8.0, 32)
        for gradient, value in results:
            self.assertEqual(gradient, [[2.0, 2.0]])
            self.assertAlmostEqual(value, expected, places=4)


def _rank(rank, folder):
    import torch.distributed as distributed

    address = "file://" + os.path.join(folder, "meeting")
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    model = torch.nn.Linear(2, 1, bias=False)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    watch = TorchNoiseScale(ddp, examples=16)
    inputs = torch.tensor([[1.0, 0.0]]) if rank == 0 else torch.tensor([[3.0, 4.0]])
    ddp(inputs).sum().backward()
    value = watch.step()
    session = trainyard.Session({})
    assert not session.stop_agreed()
    if rank == 1:
        session.request_stop()
    assert session.stop_agreed(), "rank 0 hears of it too"
    torch.save((model.weight.grad.tolist(), value), os.path.join(folder, str(rank)))
    distributed.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
