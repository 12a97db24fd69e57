"""GPT-2's operations in NumPy: each forward beside its backward.

Every ``x_forward(inputs, *, out=None)`` returns what it computes and takes NumPy-style buffers.
Every ``x_backward(dout, saved, *, dx=None, dweight=None)`` **adds** to the gradients it is given
(those it is not given start as zeros) and returns them. float64 in means float64 arithmetic, which
is how gradients are checked; float32 stays float32.

This package, as a module, is the NumPy *backend*: :class:`gpt2lib.model.GPT2` calls nothing but
the names below. :func:`gpt2lib.kernels.load` returns an object with the same names, compiled.
"""

from gpt2lib.ops.adamw import adamw_update, squared_norm, zero
from gpt2lib.ops.attention import attention_backward, attention_cached, attention_forward
from gpt2lib.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from gpt2lib.ops.embedding import embedding_backward, embedding_forward
from gpt2lib.ops.gelu import (
    gelu_backward,
    gelu_forward,
    linear_gelu_backward,
    linear_gelu_forward,
)
from gpt2lib.ops.head import head_backward, head_forward
from gpt2lib.ops.head_mask import head_mask_backward, head_mask_forward
from gpt2lib.ops.layernorm import layernorm_backward, layernorm_forward
from gpt2lib.ops.linear import linear_backward, linear_forward
from gpt2lib.ops.residual import residual_backward, residual_forward
from gpt2lib.ops.softmax import softmax_backward, softmax_forward

__all__ = [
    "adamw_update",
    "attention_backward",
    "attention_cached",
    "attention_forward",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "embedding_backward",
    "embedding_forward",
    "gelu_backward",
    "gelu_forward",
    "head_backward",
    "head_forward",
    "head_mask_backward",
    "head_mask_forward",
    "layernorm_backward",
    "layernorm_forward",
    "linear_backward",
    "linear_forward",
    "linear_gelu_backward",
    "linear_gelu_forward",
    "residual_backward",
    "residual_forward",
    "softmax_backward",
    "softmax_forward",
    "squared_norm",
    "zero",
]
