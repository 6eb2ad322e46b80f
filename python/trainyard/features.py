"""What the description of a PyTorch model tells without a run: features of its operators, for a profile.

    from trainyard.features import describe, profile_text
    features = describe(model, example_batch)          # nothing is trained, no GPU is needed
    print(profile_text("our-net", features))           # a table [model.features] for a profile

The model is traced by ``torch.fx``; where its control flow cannot be traced, its modules are watched during one forward
pass instead, and operators outside of modules are not seen. Arithmetic is counted for the forward pass and taken three
times, since a backward pass costs about twice as much. Needs PyTorch; nothing else does.
"""

import math

# Forward and backward.
_PASSES = 3.0
_KINDS = ("convolution", "matrix", "recurrent", "embedding")
_RECURRENT_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def describe(model, *inputs):
    """Features of one training step of ``model`` on ``inputs``, the first dimension of the first being the batch."""
    import torch

    counts = _Counts()
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            try:
                _trace(model, inputs, counts)
            except Exception:  # control flow that depends on data has many ways to say so
                counts = _Counts()
                _watch(model, inputs, counts)
    finally:
        model.train(was_training)
    parameters = list(model.parameters())
    features = {
        "batch": float(inputs[0].shape[0]),
        "parameters": float(sum(parameter.numel() for parameter in parameters)),
        "flops": _PASSES * sum(counts.work.values()),
        "operators": float(counts.operators),
        "half_precision": float(_is_half(torch, parameters)),
    }
    whole = sum(counts.work.values())
    for kind in _KINDS:
        features[kind] = counts.work[kind] / whole if whole else 0.0
    return features


def profile_text(name, features):
    """The features as a table of a profile in TOML, to be put under the ``[[model]]`` of that name."""
    lines = ["# features of %s" % name.replace("\n", " "), "[model.features]"]
    for key, value in features.items():
        if not math.isfinite(value):
            raise ValueError("feature %s of %s is %r: expected a finite number" % (key, name, value))
        lines.append("%s = %r" % (key, float(value)))
    return "\n".join(lines) + "\n"


class _Counts:
    """Operators, and floating-point operations of a forward pass by kind; the rest counts under no kind."""

    def __init__(self):
        self.operators = 0
        self.work = dict.fromkeys(_KINDS + ("rest",), 0.0)

    def add(self, kind, work):
        self.operators += 1
        self.work[kind] += float(work)


def _is_half(torch, parameters):
    half = (torch.float16, torch.bfloat16)
    if torch.is_autocast_enabled():
        return True
    return bool(parameters) and all(parameter.dtype in half for parameter in parameters)


def _trace(model, inputs, counts):
    import torch.fx

    class Counting(torch.fx.Interpreter):
        """Runs the traced graph once and looks at what goes into and comes out of each operator."""

        def call_module(self, target, args, kwargs):
            out = super().call_module(target, args, kwargs)
            counts.add(*_of_module(self.fetch_attr(target), args, out))
            return out

        def call_function(self, target, args, kwargs):
            out = super().call_function(target, args, kwargs)
            counts.add(*_of_function(getattr(target, "__name__", str(target)), args, out))
            return out

        def call_method(self, target, args, kwargs):
            out = super().call_method(target, args, kwargs)
            counts.add(*_of_function(target, args, out))
            return out

    Counting(torch.fx.symbolic_trace(model)).run(*inputs)


def _watch(model, inputs, counts):
    def seen(module, args, out):
        counts.add(*_of_module(module, args, out))

    leaves = [module for module in model.modules() if _is_leaf(module)]
    hooks = [module.register_forward_hook(seen) for module in leaves]
    try:
        model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()


def _is_leaf(module):
    # Attention has a projection inside that is not called as a module.
    return type(module).__name__ == "MultiheadAttention" or not any(module.children())


def _of_module(module, args, out):
    """The kind of a module and the floating-point operations of one call."""
    name = type(module).__name__
    out = _first(out)
    if name.startswith(("Conv", "LazyConv")):
        return "convolution", 2 * _elements(out) * _conv_inner(module, name)
    if name == "Linear":
        return "matrix", 2 * _elements(out) * module.in_features
    if name == "MultiheadAttention":
        query, key = args[0], args[1]
        embed, length = module.embed_dim, _elements(key) // module.embed_dim
        batch = query.shape[1 - int(module.batch_first)] if query.dim() == 3 else 1
        tokens = _elements(query) // embed
        projections = 2 * embed * embed * (2 * tokens + 2 * length)
        return "matrix", projections + 4 * tokens * (length / batch) * embed
    for kind, gates in _RECURRENT_GATES.items():
        if name in (kind, kind + "Cell"):
            return "recurrent", gates * _recurrent_work(module, args[0])
    if name.startswith("Embedding"):
        return "embedding", _elements(out)
    return "rest", _elements(out)


def _conv_inner(module, name):
    """Multiplications for each element that comes out."""
    channels = module.in_channels // module.groups
    kernel = 1
    for size in module.kernel_size:
        kernel *= size
    if "Transpose" in name:
        # Every element that goes in meets the kernel; what comes out is larger by the stride.
        for stride in module.stride:
            kernel /= stride
    return channels * kernel


def _recurrent_work(module, steps):
    """Floating-point operations of one gate over all steps, layers and directions."""
    hidden = module.hidden_size
    layers = getattr(module, "num_layers", 1)
    directions = 2 if getattr(module, "bidirectional", False) else 1
    tokens = _elements(steps) / module.input_size
    first = module.input_size + hidden
    later = directions * hidden + hidden
    return 2 * tokens * hidden * directions * (first + (layers - 1) * later)


def _of_function(name, args, out):
    """The kind of a function or method and the floating-point operations of one call."""
    out = _first(out)
    if name in ("matmul", "bmm", "mm", "baddbmm", "addmm", "linear", "__matmul__"):
        inner = args[1].shape[-1] if name in ("baddbmm", "addmm") else args[0].shape[-1]
        return "matrix", 2 * _elements(out) * inner
    if name == "scaled_dot_product_attention":
        return "matrix", 4 * _elements(args[0]) * args[1].shape[-2]
    if name.startswith("conv") and len(args) > 1 and hasattr(args[1], "shape"):
        inner = _elements(args[1]) / args[1].shape[0]
        return "convolution", 2 * _elements(out) * inner
    if name == "embedding":
        return "embedding", _elements(out)
    return "rest", _elements(out)


def _first(out):
    while isinstance(out, (tuple, list)) and out:
        out = out[0]
    return out


def _elements(value):
    return value.numel() if hasattr(value, "numel") else 0
