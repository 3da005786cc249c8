"""Rounding of logits or weights to the number formats that inference engines use.

Every round trip goes through the hardware format's own torch dtype, so ties, subnormals and
saturation are the format's, not a formula's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

_E4M3_MAX: Final = 448.0
_INT8_MAX: Final = 127.0


def bf16(values: Tensor) -> Tensor:
    """Round to bfloat16 (8 bits of significand: relative error at most 2^-8)."""
    return values.to(torch.bfloat16).to(values.dtype)


def fp16(values: Tensor) -> Tensor:
    """Round to IEEE half precision, saturating at 65504 (relative error at most 2^-11)."""
    top = torch.finfo(torch.float16).max
    return values.clamp(-top, top).to(torch.float16).to(values.dtype)


def fp8_e4m3(values: Tensor) -> Tensor:
    """Round to fp8 e4m3, saturating at 448 (relative error at most 2^-4 for normal numbers)."""
    return values.clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn).to(values.dtype)


def int8(values: Tensor) -> Tensor:
    """Round to symmetric int8, one scale a row: absmax / 127 (absolute error at most scale / 2)."""
    scale = values.abs().amax(-1, keepdim=True) / _INT8_MAX
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (values / safe).round().clamp(-_INT8_MAX, _INT8_MAX) * scale


#: Format name -> round trip of float64 values.
FORMATS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "bf16": bf16,
    "fp16": fp16,
    "fp8-e4m3": fp8_e4m3,
    "int8": int8,
}


def rounded_logits(
    logits: Tensor, strength: Tensor, generator: torch.Generator, form: str
) -> Tensor:
    """Logits an engine computes when it stores them in ``form``.

    Args:
        logits: float64 ``[B, C, V]``, finite.
        strength: ``[B]`` multiple of the rounding error that is applied; 1 is the format itself.
        generator: unused; rounding draws nothing.
        form: one of :data:`FORMATS`.

    Source: the deviation DVP (arXiv 2512.23087) attributes to low-precision kernels.
    """
    error = FORMATS[form](logits) - logits
    return logits + strength[:, None, None] * error


def rounded_weights(
    logits: Tensor, strength: Tensor, generator: torch.Generator, form: str
) -> Tensor:
    """Logits of a linear head whose weights an engine stores in ``form``.

    The head is a random orthogonal ``[V, V]`` matrix, one an instance; hidden states are those
    that give ``logits`` exactly, so one rounded matrix perturbs all contexts of the instance
    together, as in a model. int8 has one scale an output token.

    Args:
        logits: float64 ``[B, C, V]``, finite.
        strength: ``[B]`` multiple of the rounding error that is applied; 1 is the format itself.
        generator: draws the heads.
        form: one of :data:`FORMATS`.
    """
    batch, _, V = logits.shape
    square = torch.randn(batch, V, V, generator=generator, dtype=logits.dtype, device=logits.device)
    head = torch.linalg.qr(square).Q
    hidden = logits @ head
    error = FORMATS[form](head) - head
    return logits + strength[:, None, None] * (hidden @ error.transpose(-1, -2))
