import math
import unittest

from trainyard.batches import Batches
from trainyard.rate import LearningRate, factor


def drawn(sizes, length=103, size=16, epochs=2):
    """The batches over all ranks of a run whose number of ranks changes after each of its steps, as sizes say."""
    ranks, state, batches, step = [], None, [], 0
    while True:
        world = sizes[step % len(sizes)]
        ranks = [Batches(length, size, seed=3, epochs=epochs, rank=rank, world=world) for rank in range(world)]
        if state is not None:
            for rank in ranks:
                rank.load_state_dict(state)
        parts = [next(iter(rank), None) for rank in ranks]
        if parts[0] is None:
            return batches
        batches.append((ranks[0].epoch, sorted(index for part in parts for index in part)))
        weights = [rank.weight for rank in ranks]
        assert math.isclose(sum(weights), world), weights
        states = [rank.state_dict() for rank in ranks]
        assert all(other == states[0] for other in states)
        state, step = states[0], step + 1


class SamplerState(unittest.TestCase):
    def test_every_sample_comes_once_in_each_epoch_however_the_number_of_ranks_changes(self):
        for sizes in ([1], [4], [1, 2, 4, 3], [7, 1]):
            batches = drawn(sizes)
            for epoch in (0, 1):
                seen = sorted(index for at, batch in batches if at == epoch for index in batch)
                self.assertEqual(seen, list(range(103)), sizes)

    def test_batches_over_all_ranks_are_those_of_one_rank(self):
        self.assertEqual(drawn([1]), drawn([3, 1, 2]))

    def test_epochs_have_orders_of_their_own(self):
        batches = drawn([1])
        half = len(batches) // 2
        self.assertNotEqual([b for _, b in batches[:half]], [b for _, b in batches[half:]])

    def test_a_rest_that_is_too_small_for_all_ranks_is_left_out_of_the_epoch(self):
        ends = [batch for epoch, batch in drawn([8], length=17, size=8) if epoch == 0]
        self.assertEqual([len(batch) for batch in ends], [8, 8])

    def test_a_batch_that_is_too_small_for_all_ranks_is_refused(self):
        with self.assertRaises(ValueError):
            Batches(100, 4, world=5)


class Optimiser:
    def __init__(self, *rates):
        self.param_groups = [{"lr": rate, "initial_lr": rate} for rate in rates]

    @property
    def rates(self):
        return [group["lr"] for group in self.param_groups]


class Rates(unittest.TestCase):
    def test_rules_give_what_their_papers_say(self):
        self.assertEqual(factor("linear", 32, 128), 4.0)
        self.assertEqual(factor("sqrt", 32, 128), 2.0)
        self.assertEqual(factor("none", 32, 128), 1.0)
        self.assertAlmostEqual(factor("gain", 32, 128, noise_scale=1e9), 4.0, places=5)
        self.assertAlmostEqual(factor("gain", 32, 128, noise_scale=1e-9), 1.0, places=5)
        self.assertAlmostEqual(factor("gain", 32, 128, noise_scale=32), 2 / 1.25)
        with self.assertRaises(ValueError):
            factor("cubic", 1, 2)

    def test_a_larger_rate_is_reached_in_equal_parts_and_a_smaller_one_at_once(self):
        optimiser = Optimiser(0.1, 0.2)
        rate = LearningRate(optimiser, 32, warmup=3)
        rate.follow(128)
        seen = []
        for _ in range(4):
            rate.step()
            seen.append(round(optimiser.rates[0], 9))
        self.assertEqual(seen, [0.2, 0.3, 0.4, 0.4])
        rate.follow(32)
        self.assertAlmostEqual(optimiser.rates[0], 0.1)
        self.assertAlmostEqual(optimiser.rates[1], 0.2)

    def test_a_schedule_goes_on_from_the_changed_rate(self):
        class Scheduler:
            base_lrs = [0.1]

        optimiser, scheduler = Optimiser(0.01), Scheduler()
        LearningRate(optimiser, 32, schedulers=[scheduler]).follow(64)
        self.assertAlmostEqual(optimiser.rates[0], 0.02)
        self.assertAlmostEqual(scheduler.base_lrs[0], 0.2)

    def test_its_state_goes_on_in_the_middle_of_a_warm_up(self):
        one, other = Optimiser(0.1), Optimiser(0.1)
        first = LearningRate(one, 32, warmup=4)
        first.follow(64)
        first.step()
        second = LearningRate(other, 32, warmup=4)
        second.load_state_dict(first.state_dict())
        other.param_groups[0]["lr"] = one.rates[0]
        for _ in range(5):
            first.step()
            second.step()
        self.assertAlmostEqual(one.rates[0], 0.2)
        self.assertEqual(one.rates, other.rates)

    def test_parts_cut_a_batch_by_speed_and_weights_keep_its_mean(self):
        parts = [0.6, 0.3, 0.1]
        whole = next(iter(Batches(100, 20)))
        samplers = [Batches(100, 20, rank=rank, world=3, parts=parts) for rank in range(3)]
        mine = [next(iter(sampler)) for sampler in samplers]
        self.assertEqual(sum(mine, []), whole)
        self.assertEqual([len(part) for part in mine], [11, 6, 3])
        weighted = sum(sampler.weight * sum(part) / len(part) for part, sampler in zip(mine, samplers)) / 3
        self.assertAlmostEqual(weighted, sum(whole) / len(whole))
        # The last batch of an epoch is smaller, and each rank still has a sample of it.
        last = Batches(103, 20, epochs=1, rank=2, world=3, parts=parts)
        self.assertTrue(all(list(last)))
        with self.assertRaises(ValueError):
            Batches(100, 20, world=3, parts=[1, 2])


if __name__ == "__main__":
    unittest.main()
