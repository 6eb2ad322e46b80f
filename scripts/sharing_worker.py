"""One program on a GPU that does what the lines of its input say, an answer of one line for each.

python3 scripts/sharing_worker.py [torch|driver]

`torch` needs PyTorch. `driver` launches by libcuda.so.1 alone, one microsecond for each block: it is meant for the
stand-in of the driver in crates/live/preload/tests/fixtures, and shows that the script works, not what a GPU does.
Moments are those of the monotonic clock, which all programs of a machine share.
"""

import collections
import ctypes
import json
import os
import sys
import time

LAUNCHES = 500
"""Tiny kernels in one step of the kind `launch`."""
WILD = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry wild()
{
    .reg .b64 %where;
    .reg .b32 %what;
    mov.u64 %where, 4096;
    mov.u32 %what, 1;
    st.global.u32 [%where], %what;
    ret;
}
"""
"""A kernel that writes where nothing is."""


class Torch:
    """Steps by PyTorch, unmodified."""

    def __init__(self):
        import torch

        self.torch = torch
        self.steps = {}
        self.held = []
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = True

    def make(self, kind):
        """The function that does one step of that kind."""
        if kind not in self.steps:
            base, _, way = kind.partition("-")
            step = getattr(self, base)()
            if way == "graph":
                step = self.recorded(step)
            elif way == "fused":
                step = self.fused()
            for _ in range(3):
                step()
            self.torch.cuda.synchronize()
            self.steps[kind] = step
        return self.steps[kind]

    def recorded(self, step):
        """The same as a CUDA graph."""
        torch = self.torch
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def trained(self, model, batch, optimizer, half=False):
        """A step of training: forward, backward, optimiser."""
        torch = self.torch

        def step():
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()

        return step

    def layers(self, count, width, half=False):
        """A row of linear layers."""
        torch = self.torch
        rows = [part for _ in range(count) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        return torch.nn.Sequential(*rows).cuda().to(torch.bfloat16 if half else torch.float32)

    def heavy(self):
        """A step of some 30 ms that few kernels make."""
        torch = self.torch
        model = self.layers(6, 8192, half=True)
        batch = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        return self.trained(model, batch, torch.optim.SGD(model.parameters(), lr=1e-3))

    def medium(self):
        """A step of some 10 ms of a transformer."""
        torch = self.torch
        layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
        batch = torch.randn(16, 256, 1024, device="cuda")
        return self.trained(model, batch, torch.optim.AdamW(model.parameters(), fused=True), half=True)

    def small(self):
        """A step that is bound by launches, as small models are."""
        model = self.layers(16, 512)
        batch = self.torch.randn(64, 512, device="cuda")
        return self.trained(model, batch, self.torch.optim.SGD(model.parameters(), lr=1e-3))

    def fused(self):
        """The model of `small`, compiled."""
        torch = self.torch
        model = self.layers(16, 512)
        batch = torch.randn(64, 512, device="cuda")
        compiled = torch.compile(model)
        return self.trained(compiled, batch, torch.optim.SGD(model.parameters(), lr=1e-3))

    def launch(self):
        """Tiny kernels."""
        cell = self.torch.zeros(1024, device="cuda")

        def step():
            for _ in range(LAUNCHES):
                cell.add_(1.0)

        return step

    def mark(self):
        """Something to wait for: all that was launched until now."""
        event = self.torch.cuda.Event()
        event.record()
        return event.synchronize

    def take(self, size):
        """Allocates memory and writes to it; the name of the error where it is refused."""
        try:
            self.held.append(self.torch.empty(size, dtype=self.torch.uint8, device="cuda").fill_(1))
            self.torch.cuda.synchronize()
        except self.torch.cuda.OutOfMemoryError as error:
            return type(error).__name__
        return None

    def free(self):
        """Gives all of it back."""
        self.held.clear()
        self.torch.cuda.empty_cache()

    def fault(self):
        """Writes where nothing is; what the program hears of it."""
        torch = self.torch
        try:
            torch.zeros(1, device="cuda")
            cuda, module, kernel = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
            if cuda.cuModuleLoadData(ctypes.byref(module), WILD) == 0:
                cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"wild")
                cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
            else:
                # Without a compiler for kernels: an index that a kernel finds out of bounds.
                torch.zeros(8, device="cuda")[torch.full((8,), 1 << 40, device="cuda")].sum()
            torch.cuda.synchronize()
        except RuntimeError as error:
            return str(error)[:200]
        return None

    def told(self):
        """What the program is told of the GPU's memory."""
        free, total = self.torch.cuda.mem_get_info()
        properties = self.torch.cuda.get_device_properties(0)
        return {
            "free": free,
            "total": total,
            "total_by_properties": properties.total_memory,
            "reserved": self.torch.cuda.memory_reserved(),
        }


class Driver:
    """Steps by calls of the driver."""

    KINDS = {"heavy": (30, 1000), "medium": (5, 1000), "small": (20, 50), "launch": (LAUNCHES, 0)}

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert self.cuda.cuInit(0) == 0, "cuInit"
        assert self.cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0, "cuCtxCreate"
        self.held = []

    def make(self, kind):
        """The function that does one step of that kind."""
        base, _, way = kind.partition("-")
        count, length = self.KINDS[base]
        if way:
            return lambda: self.cuda.cuGraphLaunch(ctypes.c_void_p(count * length), None)

        def step():
            for _ in range(count):
                status = self.cuda.cuLaunchKernel(None, length, 1, 1, 1, 1, 1, 0, None, None, None)
                assert status == 0, f"cuLaunchKernel: {status}"

        return step

    def mark(self):
        """Something to wait for."""
        return self.cuda.cuCtxSynchronize

    def take(self, size):
        """Allocates memory; the driver's number where it is refused."""
        pointer = ctypes.c_uint64()
        status = self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        if status == 0:
            self.held.append(pointer)
        return None if status == 0 else str(status)

    def free(self):
        """Gives all of it back."""
        for pointer in self.held:
            self.cuda.cuMemFree_v2(pointer)
        self.held.clear()

    def fault(self):
        """The stand-in has no memory that could not be written: the program ends as one does that heard of it."""
        os._exit(1)

    def told(self):
        """What the program is told of the GPU's memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return {"free": free.value, "total": total.value, "reserved": None}


def wait_until(moment):
    """Sleeps until then."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left)


def steps_until_marks(device, order):
    """Steps one after the other, two at most on their way; how many were done at each mark."""
    step = device.make(order["kind"])
    wait_until(order["start"])
    on_the_way, done, counts = collections.deque(), 0, []
    for mark in order["marks"]:
        while time.monotonic() < mark:
            step()
            on_the_way.append(device.mark())
            if len(on_the_way) > 2:
                on_the_way.popleft()()
                done += 1
        counts.append([time.monotonic(), done])
    while on_the_way:
        on_the_way.popleft()()
    return {"counts": counts}


def count_steps(device, order):
    """So many steps; when they began and when they were done."""
    step = device.make(order["kind"])
    wait_until(order["start"])
    begin = time.monotonic()
    on_the_way = collections.deque()
    for _ in range(order["count"]):
        step()
        on_the_way.append(device.mark())
        if len(on_the_way) > 2:
            on_the_way.popleft()()
    while on_the_way:
        on_the_way.popleft()()
    return {"begin": begin, "end": time.monotonic()}


def fill(device, order):
    """Allocates until it is refused, holds it a while, gives it back."""
    taken, refused = 0, None
    while refused is None and taken < order["most"]:
        refused = device.take(order["chunk"])
        taken += 0 if refused else order["chunk"]
    told = device.told()
    time.sleep(order["hold"])
    device.free()
    again = device.take(order["chunk"])
    device.free()
    return {"taken": taken, "refused": refused, "told": told, "refused_after_free": again}


def obey(device, order):
    """Does one thing."""
    match order["do"]:
        case "warm":
            device.make(order["kind"])
            return {}
        case "run":
            return steps_until_marks(device, order)
        case "count":
            return count_steps(device, order)
        case "fill":
            return fill(device, order)
        case "told":
            return device.told()
        case "fault":
            return {"heard": device.fault()}
    raise ValueError(f"unknown order {order}")


def main():
    """Reads orders until there are no more."""
    device = Driver() if "driver" in sys.argv[1:] else Torch()
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        try:
            answer = obey(device, json.loads(line))
        except Exception as error:  # Whatever it is, it is told and not the end.
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
