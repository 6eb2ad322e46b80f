"""The trials of an Optuna study as jobs, so that a policy such as HyperSched divides GPUs among them.

    from trainyard import Client
    from trainyard.optuna import Search

    def job(trial):
        rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        return {"argv": ["python3", "train.py", "--rate", str(rate)], "gpus_max": 4, "steps": 5000}

    search = Search(Client(), optuna.create_study(), job, deadline_seconds=3600)
    search.run(trials=40, at_once=8)

A trial tells its loss by epochs (``yard.step(done, loss=..., epoch=...)``), which is what both Optuna and HyperSched go
by. A trial that the policy gives up, or that the study's own pruner does, is pruned in the study.
"""

import time

import optuna

from .client import OVER, Problem


class Search:
    """Runs the trials of one study, each as a job.

    ``job`` takes a trial of Optuna and returns the job that tries it. All jobs belong to the search ``name``, by default
    the study's, and end by ``deadline_seconds`` from the start of :meth:`run`. ``value`` takes what a finished job told
    last and returns the trial's value; by default its loss.
    """

    def __init__(self, client, study, job, name=None, deadline_seconds=None, value=None):
        self.client, self.study, self.job = client, study, job
        self.name = name or study.study_name
        self.deadline_seconds = deadline_seconds
        self._value = value or (lambda report: report.get("loss"))
        self._open = {}  # id of the job: trial, epoch told last
        self._is_exhausted = False
        self._ends = None
        #: The job of each trial, by the trial's number.
        self.jobs = {}

    def run(self, trials, at_once=None, every=1.0):
        """Tries so many sets of parameters, ``at_once`` of them submitted at a time (all by default); the study.

        All at once is what a policy for searches wants, because it decides itself which of them run. Fewer let a
        sampler learn from those that ended.
        """
        at_once = trials if at_once is None else at_once
        if self.deadline_seconds is not None:
            self._ends = time.monotonic() + self.deadline_seconds
        asked = 0
        try:
            while asked < trials or self._open:
                while asked < trials and len(self._open) < at_once and not self._is_over():
                    self._submit()
                    asked += 1
                if self._is_over():
                    asked = trials
                self.look()
                if self._open:
                    time.sleep(every)
        except BaseException:
            for job in self._open:
                self._cancel(job, "its study was broken off")
            raise
        return self.study

    def look(self):
        """Hears of each job that runs, and tells the study."""
        for job, (trial, told) in list(self._open.items()):
            detail = self.client.job(job)
            told = self._hear(trial, detail.get("report") or {}, told)
            if detail["state"] in OVER:
                del self._open[job]
                self._tell(trial, detail)
            elif told is None:
                self._cancel(job, "pruned by its study")
                self._open[job] = (trial, -1)
                trial.set_user_attr("pruned_by", "study")
            else:
                self._open[job] = (trial, told)

    def _submit(self):
        trial = self.study.ask()
        try:
            job = dict(self.job(trial))
            job.setdefault("name", "%s-%d" % (self.name, trial.number))
            job["search"] = self.name
            if self._ends is not None:
                job["deadline_seconds"] = max(1.0, self._ends - time.monotonic())
            (number,) = self.client.submit(job)
        except BaseException:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            raise
        trial.set_user_attr("job", number)
        self.jobs[trial.number] = number
        self._open[number] = (trial, -1)

    def _hear(self, trial, report, told):
        """The epoch that was told last; None if the study's pruner gives the trial up."""
        epoch, loss = report.get("epoch"), report.get("loss")
        if epoch is None or loss is None or epoch <= told or "pruned_by" in trial.user_attrs:
            return told
        trial.report(float(loss), int(epoch))
        return None if trial.should_prune() else int(epoch)

    def _tell(self, trial, detail):
        states, state = optuna.trial.TrialState, detail["state"]
        value = self._value(detail.get("report") or {})
        try:
            if state == "finished" and value is not None:
                self.study.tell(trial, float(value))
            elif state == "pruned" or "pruned_by" in trial.user_attrs:
                # Optuna takes the value that was reported last.
                self.study.tell(trial, state=states.PRUNED)
            else:
                trial.set_user_attr("ended", state)
                self.study.tell(trial, state=states.FAIL)
        except RuntimeError as error:
            # A sampler that has tried everything stops the study, which Optuna allows inside of `optimize` alone. The
            # trial itself is told by then.
            if "stop" not in str(error):
                raise
            self._is_exhausted = True

    def _cancel(self, job, reason):
        try:
            self.client.cancel(job, reason)
        except Problem:
            # It has ended meanwhile, and its end is seen at the next look.
            pass

    def _is_over(self):
        return self._is_exhausted or (self._ends is not None and time.monotonic() >= self._ends)
