"""The adapter for Optuna with a daemon that is played: what is submitted, and what the study learns."""

import unittest

try:
    import optuna
except ImportError:
    optuna = None


class Played:
    """Jobs whose loss falls by their own parameter; one is given up by the policy, one fails."""

    def __init__(self, ends):
        self.ends, self.specs, self.looks, self.cancelled = ends, {}, {}, []

    def submit(self, job):
        number = len(self.specs) + 1
        self.specs[number], self.looks[number] = job, 0
        return [number]

    def job(self, number):
        self.looks[number] += 1
        epoch = self.looks[number]
        state = self.ends[number] if epoch >= 5 else "running"
        if number in self.cancelled:
            state = "cancelled"
        return {"state": state, "report": {"epoch": epoch, "loss": self.specs[number]["loss"] / epoch}}

    def cancel(self, number, reason):
        self.cancelled.append(number)


@unittest.skipIf(optuna is None, "Optuna is not here")
class Searches(unittest.TestCase):
    def setUp(self):
        from trainyard.optuna import Search

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.search = Search

    def study(self, pruner=None):
        sampler = optuna.samplers.RandomSampler(seed=1)
        return optuna.create_study(study_name="width", sampler=sampler, pruner=pruner or optuna.pruners.NopPruner())

    def job(self, trial):
        return {"argv": ["train"], "loss": trial.suggest_float("loss", 1.0, 2.0)}

    def test_ends_of_jobs_become_ends_of_trials(self):
        client = Played({1: "finished", 2: "pruned", 3: "failed", 4: "finished"})
        study = self.search(client, self.study(), self.job).run(trials=4, every=0.0)
        states = [trial.state.name for trial in study.trials]
        self.assertEqual(states, ["COMPLETE", "PRUNED", "FAIL", "COMPLETE"])
        first, second = study.trials[:2]
        self.assertEqual(first.value, first.params["loss"] / 5)
        self.assertEqual(sorted(second.intermediate_values), [1, 2, 3, 4, 5])
        self.assertEqual([trial.user_attrs["job"] for trial in study.trials], [1, 2, 3, 4])

    def test_all_jobs_are_trials_of_one_search_and_end_by_one_deadline(self):
        client = Played(dict.fromkeys(range(1, 4), "finished"))
        self.search(client, self.study(), self.job, deadline_seconds=60).run(trials=3, at_once=1, every=0.0)
        for number, spec in client.specs.items():
            self.assertEqual((spec["search"], spec["name"]), ("width", "width-%d" % (number - 1)))
            self.assertTrue(50.0 < spec["deadline_seconds"] <= 60.0, spec)

    def test_no_trial_begins_after_the_deadline(self):
        client = Played(dict.fromkeys(range(1, 9), "finished"))
        study = self.search(client, self.study(), self.job, deadline_seconds=0.0).run(trials=8, every=0.0)
        self.assertEqual((len(study.trials), client.specs), (0, {}))

    def test_a_trial_that_the_study_prunes_is_cancelled(self):
        client = Played(dict.fromkeys(range(1, 5), "finished"))
        pruner = optuna.pruners.ThresholdPruner(upper=0.6, n_warmup_steps=2)
        study = self.search(client, self.study(pruner), self.job).run(trials=4, every=0.0)
        bad = [trial.number + 1 for trial in study.trials if trial.params["loss"] / 2 > 0.6]
        self.assertTrue(0 < len(bad) < 4, bad)
        self.assertEqual(client.cancelled, bad)
        for trial in study.trials:
            self.assertEqual(trial.state.name, "PRUNED" if trial.number + 1 in bad else "COMPLETE")

    def test_a_sampler_that_has_tried_everything_ends_the_search(self):
        client = Played(dict.fromkeys(range(1, 9), "finished"))
        sampler = optuna.samplers.GridSampler({"loss": [1.0, 1.5]})
        study = optuna.create_study(study_name="grid", sampler=sampler)
        self.search(client, study, self.job).run(trials=8, at_once=1, every=0.0)
        self.assertEqual([trial.value for trial in study.trials], [trial.params["loss"] / 5 for trial in study.trials])
        self.assertEqual({trial.state.name for trial in study.trials}, {"COMPLETE"})
        self.assertEqual(len(study.trials), 2)

    def test_a_study_that_is_broken_off_cancels_its_jobs(self):
        client = Played(dict.fromkeys(range(1, 4), "finished"))
        job = client.job

        def broken(number):
            if number == 3:
                raise KeyboardInterrupt
            return job(number)

        client.job = broken
        with self.assertRaises(KeyboardInterrupt):
            self.search(client, self.study(), self.job).run(trials=3, every=0.0)
        self.assertEqual(client.cancelled, [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
