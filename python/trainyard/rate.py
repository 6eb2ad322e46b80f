"""How the learning rate follows the batch size."""

import math


def factor(rule, before, after, noise_scale=None):
    """By how much the learning rate grows when the batch over all ranks goes from ``before`` to ``after``.

    - ``linear``: with the batch (Goyal and others, "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 2.1).
    - ``sqrt``: with its square root, as the variance of Adam's steps asks for (Malladi and others, arXiv:2205.10287).
    - ``gain``: with the gain of AdaScale, ``(S + G) / (S b/B + G)`` for the noise scale ``S/G`` at ``before`` (Johnson
      and others, arXiv:2007.05105, section 3): close to ``linear`` where noise rules, close to 1 where it does not.
    - ``none``: not at all.
    """
    if before < 1 or after < 1:
        raise ValueError("batches of %r and %r samples" % (before, after))
    times = after / before
    if rule == "none":
        return 1.0
    if rule == "linear":
        return times
    if rule == "sqrt":
        return math.sqrt(times)
    if rule == "gain":
        if noise_scale is None:
            return 1.0
        # The noise scale is in examples: at `before` of them, noise is so many times the signal.
        noise = noise_scale / before
        return (noise + 1.0) / (noise / times + 1.0)
    raise ValueError("%r: expected linear, sqrt, gain or none" % (rule,))


class LearningRate:
    """Keeps the learning rate of an optimiser of PyTorch right for the batch size.

    ``batch`` is the size over all ranks for which the optimiser's rates were chosen. A growing rate is reached over
    ``warmup`` steps, in equal parts, because a jump can make training diverge; a falling one at once. Schedulers given
    here go on as they are, from the changed rate: their ``base_lrs`` are changed with it.
    """

    def __init__(self, optimiser, batch, rule="linear", warmup=0, schedulers=()):
        factor(rule, batch, batch)
        self.optimiser, self.rule, self.warmup = optimiser, rule, warmup
        self.schedulers = tuple(schedulers)
        #: The batch size that the rate is for, or is on its way to.
        self.batch = batch
        self._first = batch
        self._now, self._goal, self._part = 1.0, 1.0, 0.0

    @property
    def factor(self):
        """The present rate over that of the first batch size."""
        return self._now

    def follow(self, batch, noise_scale=None):
        """The batch over all ranks has so many samples from now on."""
        if batch == self.batch:
            return
        if self.rule == "gain":
            self._goal *= factor(self.rule, self.batch, batch, noise_scale)
        else:
            # From the first size and not from the last: there and back again is exactly where it was.
            self._goal = factor(self.rule, self._first, batch)
        self.batch = batch
        if self._goal <= self._now or self.warmup < 1:
            self._set(self._goal)
        else:
            self._part = (self._goal - self._now) / self.warmup

    def step(self):
        """One step was trained; call it after the optimiser's own."""
        if self._now < self._goal:
            self._set(min(self._goal, self._now + self._part))

    def state_dict(self):
        """What another process needs to go on; the optimiser's state holds the rates themselves."""
        names = ("batch", "_first", "_now", "_goal", "_part")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state):
        """Goes on from a state. The optimiser's own is loaded beside it."""
        for name, value in state.items():
            setattr(self, name, value)

    def _set(self, now):
        times, self._now = now / self._now, now
        for group in self.optimiser.param_groups:
            group["lr"] *= times
            if "initial_lr" in group:
                group["initial_lr"] *= times
        for scheduler in self.schedulers:
            scheduler.base_lrs = [rate * times for rate in scheduler.base_lrs]
