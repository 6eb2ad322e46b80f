"""Data-parallel training that changes its number of ranks while it runs.

    from trainyard import resize

    def train(ring):                                   # runs in every worker
        model, batches = Net(), resize.Batches(len(data), size=64)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        rate = resize.LearningRate(optimiser, batch=64)
        ring.share(model=model, optimiser=optimiser, batches=batches, rate=rate)
        for mine in batches:
            ring.descend(lambda ddp: loss_of(ddp, data, mine) * batches.weight)
            if ring.step(loss=...):                    # true: a stop was agreed on
                save(...); ring.exit_saved()

    if __name__ == "__main__":
        resize.run(train)

The process that the job starts becomes an agent, which starts the same command once for each GPU (see
:mod:`trainyard.rendezvous`). When the number of GPUs changes, workers that stay keep their model in memory: they leave
the old process group at a step that all agree on and meet in a new one with those that come, which get the state of
rank 0. Nothing is read from disk, and no process that stays starts again.
"""

import datetime
import io
import os
import sys
import threading

from .batches import Batches
from .rate import LearningRate
from .rendezvous import ADDRESS, Agent, Seat, own_command
from .session import join

__all__ = ["Agent", "Batches", "LearningRate", "Ring", "run"]

#: Seconds that a collective may take before a worker gives up.
COLLECTIVE_SECONDS = 600


def run(train, devices=None, session=None):
    """Trains in as many workers as the job has GPUs, and follows its size; exits with the code of the training.

    In a worker, which finds its agent by its environment, it calls ``train`` with a :class:`Ring`. Elsewhere it becomes
    the agent. ``devices`` are the workers' devices to begin with: by default the job's GPUs, one worker without any.
    """
    if os.environ.get(ADDRESS):
        ring = Ring(session)
        train(ring)
        ring.close()
        return
    session = join() if session is None else session
    agent = Agent(own_command(), _own_devices() if devices is None else devices)
    done = threading.Event()
    follower = threading.Thread(target=_follow, args=(session, agent, done), daemon=True)
    follower.start()
    code = agent.run()
    done.set()
    follower.join()
    session.close()
    sys.exit(code)


class Ring:
    """The ranks that train together now, as one worker sees them. PyTorch is needed."""

    def __init__(self, session=None):
        self._seat = Seat()
        self.session = join() if session is None else session
        #: Steps that were trained in all.
        self.done = 0
        self._parts = {}
        self._model = None
        self._batches = None
        self._rate = None
        self._generation = None
        self.rank, self.world = None, None
        #: The model as DDP wraps it in the present generation.
        self.ddp = None

    def share(self, model, optimiser, batches, rate=None, done=0, batch_per_rank=None, **others):
        """Meets the others, and says what a worker that comes later needs: everything with a ``state_dict``.

        Call it once, before training, with the state that was loaded from a checkpoint if there was one; those that
        come later get it from rank 0. With ``batch_per_rank`` the batch over all ranks grows with their number, and
        ``rate`` follows it; without, the batch stays as it is and so does the rate.
        """
        self._parts = dict(others, model=model, optimiser=optimiser, batches=batches)
        if rate is not None:
            self._parts["rate"] = rate
        self._model, self._batches, self._rate = model, batches, rate
        self._batch_per_rank = batch_per_rank
        self.done = done
        self._meet(self._seat.wait_generation())

    def descend(self, loss_of):
        """One step of the optimiser on the loss of this rank's part of the batch; the loss over the whole batch."""
        import torch.distributed as distributed

        optimiser = self._parts["optimiser"]
        optimiser.zero_grad()
        loss = loss_of(self.ddp)
        loss.backward()
        optimiser.step()
        if self._rate is not None:
            self._rate.step()
        # Each part is weighed by its samples, so that the mean over ranks is the mean over samples.
        whole = loss.detach().clone()
        distributed.all_reduce(whole)
        return float(whole) / self.world

    def step(self, **fields):
        """Ends a step: reports it, goes over to a new generation if there is one; returns whether to save and exit."""
        self.done += 1
        self.session.step(self.done, batch=self._batches.size, **fields)
        stop, number = self._agree()
        if stop:
            return True
        if number != self._generation["number"]:
            self._meet(self._seat.wait_generation(number))
        return False

    def exit_saved(self, seconds=None):
        """Waits until all ranks have saved, then exits with the code that means "start me again"."""
        import torch.distributed as distributed

        distributed.barrier()
        if self.rank == 0:
            self.session.saved(self.done, seconds)
        self._end_group()
        sys.stdout.flush()
        sys.exit(85)

    def close(self):
        """Leaves the group at the end of the training."""
        self._end_group()
        self.session.close()

    # Inside.

    def _agree(self):
        """Whether any rank was asked to stop, and the newest generation that all of them have heard of."""
        import torch
        import torch.distributed as distributed

        newest = self._seat.newest()["number"]
        stop = self.session.stop_requested or self._seat.stop_requested
        # The least number and the least of "no stop": one collective for both.
        heard = torch.tensor([newest, int(not stop)], device=self._device())
        distributed.all_reduce(heard, op=distributed.ReduceOp.MIN)
        return not bool(heard[1]), int(heard[0])

    def _meet(self, generation):
        import torch.distributed as distributed

        self._end_group()
        members, number = generation["members"], generation["number"]
        if self._seat.member not in members:
            self._seat.leaving()
            self.session.close()
            sys.stdout.flush()
            sys.exit(0)
        self._generation = generation
        self.rank, self.world = members.index(self._seat.member), len(members)
        self.session.rank, self.session.world_size = self.rank, self.world
        timeout = datetime.timedelta(seconds=COLLECTIVE_SECONDS)
        backend = "nccl" if self._device() == "cuda" else "gloo"
        store = self._store(number, timeout)
        distributed.init_process_group(
            backend, store=store, rank=self.rank, world_size=self.world, timeout=timeout
        )
        if not generation["fresh"]:
            self._hand_over()
        self._place()
        # DDP also gives every rank the parameters of rank 0, once more.
        self.ddp = self._wrapped()
        distributed.barrier()
        if self.rank == 0:
            self._seat.met()

    def _store(self, number, timeout):
        import torch.distributed as distributed

        if self.rank == 0:
            # Port 0: the system chooses one that is free, and no other process can take it in between.
            store = distributed.TCPStore("127.0.0.1", 0, self.world, True, timeout, wait_for_workers=False)
            self._seat.offer_address(store.port)
            return store
        port = self._seat.wait_address(number)
        return distributed.TCPStore("127.0.0.1", port, self.world, False, timeout)

    def _hand_over(self):
        """Gives the state of rank 0, which trained before, to all."""
        import torch
        import torch.distributed as distributed

        device = self._device()
        data = torch.empty(0, dtype=torch.uint8)
        if self.rank == 0:
            buffer = io.BytesIO()
            state = {name: part.state_dict() for name, part in self._parts.items()}
            torch.save({"parts": state, "done": self.done}, buffer)
            data = torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)
        length = torch.tensor([data.numel()], device=device)
        distributed.broadcast(length, 0)
        data = data.to(device) if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8, device=device)
        distributed.broadcast(data, 0)
        if self.rank == 0:
            return
        # Written by rank 0 of the same job a moment ago, so that it is as safe as this program.
        whole = torch.load(io.BytesIO(data.cpu().numpy().tobytes()), map_location=device, weights_only=False)
        for name, part in self._parts.items():
            part.load_state_dict(whole["parts"][name])
        self.done = whole["done"]

    def _place(self):
        if self._batch_per_rank:
            self._batches.size = self._batch_per_rank * self.world
        self._batches.place(self.rank, self.world)
        if self._rate is not None:
            self._rate.follow(self._batches.size)

    def _wrapped(self):
        import torch

        if self._device() == "cuda":
            return torch.nn.parallel.DistributedDataParallel(self._model, device_ids=[torch.cuda.current_device()])
        return torch.nn.parallel.DistributedDataParallel(self._model)

    def _end_group(self):
        import torch.distributed as distributed

        self.ddp = None
        if distributed.is_initialized():
            distributed.destroy_process_group()

    def _device(self):
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"


def _follow(session, agent, done):
    """Passes stops and sizes from the job's keeper on to the agent."""
    told, answered = None, True
    while not done.wait(0.1):
        if session.stop_requested:
            agent.stop()
            return
        if session.devices is not None and session.devices != told:
            told, answered = session.devices, False
            agent.resize(told)
        if not answered and sorted(map(str, agent.devices or [])) == sorted(told):
            # Those that left are gone, so that their GPUs are free.
            session.resized(told)
            answered = True


def _own_devices():
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible or 1
