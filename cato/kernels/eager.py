"""When operations that PyTorch's tools cannot look into may replace PyTorch's own."""

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode


def is_eager(*tensors: Tensor) -> bool:
    """Whether results on this CPU are wanted now, rather than a record of operations.

    Compilers, exporters, function transforms and FLOP counters look at PyTorch's operations and get
    these. So do subclasses of tensors, such as those of sharded models.
    """
    return (
        not torch.compiler.is_compiling()
        and all(x.device.type == "cpu" and type(x) in (Tensor, nn.Parameter) for x in tensors)
        and not torch.jit.is_tracing()
        and not torch._C._are_functorch_transforms_active()
        and not is_in_torch_dispatch_mode()
    )
