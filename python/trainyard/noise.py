"""The gradient noise scale: how large a batch still pays.

With G the true gradient and S the sum of the variances of its components for one example, the simple noise scale is
B = S / |G|^2 (McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162,
section 2.2). Neither is known, but the squared norm of a gradient over b examples has the expectation |G|^2 + S / b,
so that two batch sizes, small b and large B, give both without bias (their appendix A.1):

    |G|^2 ~ (B |g_B|^2 - b |g_b|^2) / (B - b)
    S     ~ (|g_b|^2 - |g_B|^2) / (1/b - 1/B)

The two are smoothed one by one, because their quotient is biased, and divided afterwards.
In data-parallel training the small batch is that of one rank and the large one that of all, so the estimate costs two
norms; on one device, gradients of the parts of an accumulated batch serve as the small ones.
"""


class NoiseScale:
    """Smooths squared norms of small-batch and large-batch gradients into a noise scale, in examples."""

    def __init__(self, smoothing=0.95):
        if not 0.0 <= smoothing < 1.0:
            raise ValueError("smoothing must be at least 0 and below 1, not %r" % (smoothing,))
        self.smoothing = smoothing
        self._weight = 0.0
        self._signal = 0.0
        self._noise = 0.0

    def update(self, small_squared, small_batch, large_squared, large_batch):
        """Takes the squared norms of one step: the mean over the small batches, and of the large one."""
        if not 0 < small_batch < large_batch:
            raise ValueError(
                "the small batch (%r) must be smaller than the large one (%r)" % (small_batch, large_batch)
            )
        signal = (large_batch * large_squared - small_batch * small_squared) / (large_batch - small_batch)
        noise = (small_squared - large_squared) / (1.0 / small_batch - 1.0 / large_batch)
        keep = self.smoothing
        self._weight = keep * self._weight + (1.0 - keep)
        self._signal = keep * self._signal + (1.0 - keep) * signal
        self._noise = keep * self._noise + (1.0 - keep) * noise
        return self.value

    @property
    def value(self):
        """The noise scale in examples; None before there is one that means something."""
        if self._weight == 0.0 or self._signal <= 0.0 or self._noise < 0.0:
            return None
        return self._noise / self._signal


class TorchNoiseScale:
    """Watches the gradients of a PyTorch model.

    Across ranks: ``watch = TorchNoiseScale(ddp_model, examples_per_rank)`` registers a communication hook that takes
    the norm of every bucket before and after it is averaged; call ``watch.step()`` after ``backward``.

    On one device: call ``watch.accumulated()`` after each ``backward`` of an accumulated batch, with gradients summed
    and not averaged, and ``watch.step()`` before the optimiser steps.
    """

    def __init__(self, model, examples, smoothing=0.95):
        self.model = model
        self.examples = examples
        self.scale = NoiseScale(smoothing)
        self._before = None
        self._after = None
        self._previous = None
        self._parts = []
        self._distributed = hasattr(model, "register_comm_hook")
        if self._distributed:
            model.register_comm_hook(self, _hook)

    @property
    def value(self):
        """The noise scale in examples, or None."""
        return self.scale.value

    def accumulated(self):
        """Notes the gradient of one part of an accumulated batch: what was added since the last part."""
        import torch

        gradients = [p.grad.detach() for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
        part = flat if self._previous is None else flat - self._previous
        self._parts.append(float(part.pow(2).sum()))
        self._previous = flat.clone()

    def step(self):
        """Ends an optimiser step; returns the noise scale or None."""
        if self._distributed:
            return self._step_of_ranks()
        parts, whole = self._parts, self._previous
        self._parts, self._previous = [], None
        if len(parts) < 2:
            return self.value
        count = len(parts)
        large = float(whole.pow(2).sum()) / count**2
        return self.scale.update(sum(parts) / count, self.examples, large, self.examples * count)

    def _step_of_ranks(self):
        import torch
        import torch.distributed as distributed

        before, after = self._before, self._after
        self._before = self._after = None
        if before is None or after is None:
            return self.value
        ranks = distributed.get_world_size()
        if ranks < 2:
            return self.value
        mean = before.clone()
        distributed.all_reduce(mean)
        small = float(mean) / ranks
        return self.scale.update(small, self.examples, float(after), self.examples * ranks)

    def _add(self, name, value):
        held = getattr(self, name)
        setattr(self, name, value if held is None else held + value)


def _hook(watch, bucket):
    """Averages a bucket as DDP does, and takes its norm before and after."""
    import torch.distributed as distributed

    gradient = bucket.buffer()
    watch._add("_before", gradient.detach().float().pow(2).sum())
    gradient.div_(distributed.get_world_size())
    future = distributed.all_reduce(gradient, async_op=True).get_future()

    def averaged(done):
        mean = done.value()[0]
        watch._add("_after", mean.detach().float().pow(2).sum())
        return mean

    return future.then(averaged)
