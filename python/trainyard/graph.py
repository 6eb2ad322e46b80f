"""A PyTorch module as a graph of operators with measured times, for ``trainyard split``.

    from trainyard.graph import export
    print(export(model, example_batch, name="our-net", measured_on="h200"))

The module is traced by ``torch.fx``; each operator then runs alone, forward and backward, on the device on which the
module lies. A module whose control flow depends on data cannot be traced and is refused with what stood in the way.
Needs PyTorch; nothing else does.
"""

import json
import operator
import statistics
import time

# What works in place would change what it is timed with.
_IN_PLACE = {operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul}


class ExportError(Exception):
    """Why a module cannot be exported, with the name of the operator where there is one."""


def export(model, *inputs, name="model", measured_on="cpu", repeats=5):
    """The module as JSON text in the form that ``trainyard split`` reads; the first dimension of the first input is the batch."""
    return json.dumps(graph(model, *inputs, name=name, measured_on=measured_on, repeats=repeats), indent=1) + "\n"


def graph(model, *inputs, name="model", measured_on="cpu", repeats=5):
    """The same as a dictionary."""
    import torch
    import torch.fx
    import torch.utils._pytree

    if repeats < 1:
        raise ExportError("repeats is %r: expected a whole number from 1" % (repeats,))
    if not inputs or not hasattr(inputs[0], "shape") or inputs[0].dim() == 0:
        raise ExportError("the first input is no tensor with a batch as its first dimension")
    try:
        traced = torch.fx.symbolic_trace(model)
    except Exception as error:  # control flow that depends on data has many ways to say so
        raise ExportError("torch.fx cannot trace %s: %s" % (type(model).__name__, error)) from error
    _out_of_place(torch, traced)
    changed = [module for module in traced.modules() if getattr(module, "inplace", False) is True]
    for module in changed:
        module.inplace = False
    runner = _runner(torch, traced, repeats)
    try:
        runner.run(*inputs)
    finally:
        # The traced module shares its parts with the one that was handed in.
        for module in changed:
            module.inplace = True
    return {
        "name": name,
        "measured_on": measured_on,
        "batch": int(inputs[0].shape[0]),
        "operators": list(runner.operators.values()),
        "edges": runner.edges(),
    }


def _out_of_place(torch, traced):
    """Functions and methods that work in place become those that do not; they give the same."""
    for node in traced.graph.nodes:
        if node.op == "call_function":
            node.target = _IN_PLACE.get(node.target, node.target)
            if node.kwargs.get("inplace"):
                node.kwargs = dict(node.kwargs, inplace=False)
        elif node.op == "call_method" and node.target.endswith("_") and not node.target.endswith("__"):
            if hasattr(torch.Tensor, node.target[:-1]):
                node.target = node.target[:-1]


def _runner(torch, traced, repeats):
    class Timing(torch.fx.Interpreter):
        """Runs the traced graph once, and each operator several times alone."""

        def __init__(self):
            super().__init__(traced)
            self.operators = {}
            self.made = {}
            self.counted = set()

        def run_node(self, node):
            if node.op not in ("call_module", "call_function", "call_method"):
                return super().run_node(node)
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            args, kwargs = _apart(torch, args), _apart(torch, kwargs)

            def call():
                return getattr(self, node.op)(node.target, args, kwargs)

            try:
                out, figures = _measure(torch, call, self._parameters(node), (args, kwargs), repeats)
            except Exception as error:
                raise ExportError("operator `%s`: %s" % (node.name, error)) from error
            if _tensors(torch, out):
                self.operators[node.name] = dict(name=node.name, **figures)
                self.made[node.name] = sum(_bytes(one) for one in _tensors(torch, out))
            return _apart(torch, out)

        def _parameters(self, node):
            """Parameters of the module that is called, or that are handed in; each counts where it is used first."""
            owned = []
            if node.op == "call_module":
                owned.extend(self.fetch_attr(node.target).parameters())
            for before in node.all_input_nodes:
                if before.op == "get_attr":
                    value = self.fetch_attr(before.target)
                    owned.extend([value] if isinstance(value, torch.nn.Parameter) else [])
            fresh = [one for one in owned if id(one) not in self.counted]
            self.counted.update(id(one) for one in fresh)
            return fresh

        def edges(self):
            found = []
            for node in self.module.graph.nodes:
                if node.name in self.operators:
                    sources = sorted({source for before in node.all_input_nodes for source in self._makers(before)})
                    found += [{"from": one, "to": node.name, "bytes": self.made[one]} for one in sources]
            return found

        def _makers(self, node):
            """The operators whose tensors a node stands for; what is no tensor, such as a size, is looked through."""
            if node.name in self.operators:
                return {node.name}
            makers, open_nodes, seen = set(), list(node.all_input_nodes), set()
            while open_nodes:
                one = open_nodes.pop()
                if one.name in self.operators:
                    makers.add(one.name)
                elif one.name not in seen:
                    seen.add(one.name)
                    open_nodes.extend(one.all_input_nodes)
            return makers

    return Timing()


def _measure(torch, call, parameters, given, repeats):
    """What an operator gives, and its times and sizes."""
    kept = {}
    known = {one.data_ptr() for one in parameters}

    def keep(tensor):
        if tensor.data_ptr() not in known:
            kept[tensor.data_ptr()] = _bytes(tensor)
        return tensor

    with torch.enable_grad():
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = call()
        forward = _median(torch, call, out, repeats)
        leaves = [one for one in _tensors(torch, given) if one.requires_grad] + [one for one in parameters if one.requires_grad]
        ends = [one for one in _tensors(torch, out) if one.requires_grad and one.grad_fn is not None]
        backward = 0.0
        if leaves and ends:
            grads = [torch.ones_like(one) for one in ends]

            def back():
                torch.autograd.grad(ends, leaves, grads, retain_graph=True, allow_unused=True)

            backward = _median(torch, back, out, repeats)
    figures = {
        "forward_seconds": forward,
        "backward_seconds": backward,
        "parameter_bytes": float(sum(_bytes(one) for one in parameters)),
        "activation_bytes": float(sum(kept.values())),
    }
    return out, figures


def _median(torch, call, out, repeats):
    """Seconds of a call: the median of some, after one that does not count."""
    is_cuda = any(one.is_cuda for one in _tensors(torch, out))
    wait = torch.cuda.synchronize if is_cuda else (lambda: None)
    call()
    taken = []
    for _ in range(repeats):
        wait()
        begun = time.perf_counter()
        call()
        wait()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _apart(torch, value):
    """The same values cut off from what made them, so that a backward pass ends here."""

    def one(tensor):
        if not isinstance(tensor, torch.Tensor) or isinstance(tensor, torch.nn.Parameter):
            return tensor
        alone = tensor.detach()
        return alone.requires_grad_(alone.is_floating_point())

    return torch.utils._pytree.tree_map(one, value)


def _tensors(torch, value):
    leaves = torch.utils._pytree.tree_flatten(value)[0]
    return [one for one in leaves if isinstance(one, torch.Tensor) and not isinstance(one, torch.nn.Parameter)]


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()
