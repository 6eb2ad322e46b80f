"""Batches that do not depend on how many ranks train: a change of size repeats no sample and leaves none out."""

import random


class Batches:
    """The batches of one rank: its part of each batch over all ranks, as lists of indices.

    The order of an epoch depends on ``seed`` and the epoch alone, and a batch over all ranks is the next ``size``
    samples of it, however many ranks there are. Its state is the epoch and the samples taken of it. Use it as the
    ``batch_sampler`` of a ``DataLoader`` without workers that fetch ahead of it, or index the data directly:

        batches = Batches(len(data), size=256)
        for mine in batches:
            loss = model(data[mine]).mean() * batches.weight

    ``weight`` makes the average over ranks that DDP takes the mean over the whole batch, also where the batch cannot be
    cut evenly: it is 1 where it can. ``parts`` cuts it by the speed of each rank's GPU instead
    (``Session.batch_parts``): fast ranks get more samples, and all of them end a step at once.
    """

    def __init__(self, length, size, seed=0, epochs=None, rank=0, world=1, parts=None):
        if length < 1 or size < 1:
            raise ValueError("length (%r) and size (%r) must be at least 1" % (length, size))
        self.length, self.size, self.seed, self.epochs = length, size, seed, epochs
        self.epoch, self.taken = 0, 0
        #: Weight of this rank's mean loss in the batch that was yielded last.
        self.weight = 1.0
        self._order, self._order_of = None, None
        self.place(rank, world, parts)

    def place(self, rank, world, parts=None):
        """This rank is ``rank`` of ``world`` from the next batch on. A batch has at least one sample for each rank."""
        if not 0 <= rank < world:
            raise ValueError("rank %r of %r" % (rank, world))
        if world > self.size:
            raise ValueError("a batch of %d samples is too small for %d ranks" % (self.size, world))
        if parts is not None and (len(parts) != world or min(parts) <= 0):
            raise ValueError("parts (%r) must be %d numbers above 0" % (parts, world))
        self.rank, self.world, self.parts = rank, world, parts

    def __iter__(self):
        while self.epochs is None or self.epoch < self.epochs:
            left = self.length - self.taken
            # What is left over at the end of an epoch goes into it, unless some rank would have none of it.
            if left < self.size and (left < self.world or left == 0):
                self.epoch, self.taken = self.epoch + 1, 0
                continue
            whole = self._ordered()[self.taken : self.taken + self.size]
            mine = self._mine(whole)
            self.weight = len(mine) * self.world / len(whole)
            # Taken before it is used: a state that is saved after the step holds this batch.
            self.taken += len(whole)
            yield mine

    def state_dict(self):
        """What another rank, of another number of ranks, needs to go on from here."""
        return {"epoch": self.epoch, "taken": self.taken, "size": self.size, "seed": self.seed}

    def load_state_dict(self, state):
        """Goes on from a state, also one of another number of ranks or size of batches."""
        self.epoch, self.taken = state["epoch"], state["taken"]
        self.seed, self.size = state["seed"], state["size"]
        self.place(self.rank, self.world, self.parts)

    def _mine(self, whole):
        if self.parts is None:
            return whole[self.rank :: self.world]
        # One sample for each rank first; the rest by parts, cut where the running sum of parts says.
        spare, total = len(whole) - self.world, sum(self.parts)
        cut = lambda rank: rank + round(spare * sum(self.parts[:rank]) / total)
        return whole[cut(self.rank) : cut(self.rank + 1)]

    def _ordered(self):
        key = (self.seed, self.epoch)
        if self._order_of != key:
            self._order = list(range(self.length))
            random.Random("%d:%d" % key).shuffle(self._order)
            self._order_of = key
        return self._order
