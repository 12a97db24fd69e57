"""The numbers that fix a GPT-2's shape, and what follows from them: parameters and FLOPs."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

# Radford et al. (2019), table 2, with the head counts of the released checkpoints. `tiny` is ours:
# small enough to train on a laptop while the kettle boils, large enough to tell a story.
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"vocab_size": 512, "context": 128, "layers": 4, "heads": 4, "channels": 128},
    "gpt2": {"vocab_size": 50257, "context": 1024, "layers": 12, "heads": 12, "channels": 768},
    "gpt2-medium": {
        "vocab_size": 50257,
        "context": 1024,
        "layers": 24,
        "heads": 16,
        "channels": 1024,
    },
    "gpt2-large": {
        "vocab_size": 50257,
        "context": 1024,
        "layers": 36,
        "heads": 20,
        "channels": 1280,
    },
    "gpt2-xl": {"vocab_size": 50257, "context": 1024, "layers": 48, "heads": 25, "channels": 1600},
}


@dataclass(frozen=True)
class GPT2Config:
    """The shape of a GPT-2.

    Parameters
    ----------
    vocab_size
        V, the number of different tokens.
    context
        The longest sequence the model can see: the number of rows of ``wpe``.
    layers
        L, the number of blocks.
    heads
        NH, attention heads in a block. Must divide ``channels``.
    channels
        C, the width of the residual stream.

    Raises
    ------
    ValueError
        When a number is not a positive integer, or ``heads`` does not divide ``channels``.

    Examples
    --------
    >>> GPT2Config.preset("gpt2").parameter_count
    124439808
    >>> GPT2Config(channels=50, heads=4)
    Traceback (most recent call last):
        ...
    ValueError: 4 heads cannot share 50 channels equally: channels must be a multiple of heads \
(the divisors of 50 are 1, 2, 5, 10, 25, 50).
    """

    vocab_size: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    channels: int = 768

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                number = operator.index(value)
            except TypeError:
                raise ValueError(
                    f"{field.name} must be a whole number, got {value!r} ({type(value).__name__})."
                ) from None
            if isinstance(value, bool) or number < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value!r}.")
            object.__setattr__(self, field.name, number)  # NumPy integers become plain ints
        if self.channels % self.heads:
            hint = ""
            if self.channels < 1 << 20:  # a number from a damaged file may be astronomical
                divisors = ", ".join(str(d) for d in divisors_of(self.channels))
                hint = f" (the divisors of {self.channels} are {divisors})"
            raise ValueError(
                f"{self.heads} heads cannot share {self.channels} channels equally: "
                f"channels must be a multiple of heads{hint}."
            )

    @classmethod
    def preset(cls, name: str, **overrides: int) -> GPT2Config:
        """Return a named shape, with single numbers replaced where asked.

        Parameters
        ----------
        name
            One of ``tiny``, ``gpt2``, ``gpt2-medium``, ``gpt2-large``, ``gpt2-xl``.
        **overrides
            Fields to change, such as ``context=256``.

        Raises
        ------
        ValueError
            For a name or a field that does not exist.
        """
        if name not in PRESETS:
            raise ValueError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}.")
        return cls.from_dict({**PRESETS[name], **overrides})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GPT2Config:
        """Build a configuration from a mapping that holds exactly its five fields.

        Raises
        ------
        ValueError
            When a field is missing, unknown or not a positive whole number.
        """
        names = {field.name for field in fields(cls)}
        if names != set(values):
            missing = ", ".join(sorted(names - set(values))) or "none"
            unknown = ", ".join(sorted(str(k) for k in set(values) - names)) or "none"
            raise ValueError(
                f"a GPT-2 configuration has the fields {', '.join(sorted(names))}; "
                f"missing: {missing}; unknown: {unknown}."
            )
        return cls(**values)

    def to_dict(self) -> dict[str, int]:
        """Return the five fields as a plain dictionary (JSON-able)."""
        return asdict(self)

    @property
    def head_size(self) -> int:
        """Channels of one head, hs = C / NH."""
        return self.channels // self.heads

    @property
    def matrix_parameter_count(self) -> int:
        """Parameters in matrices (two embeddings, four matrices a block): those that decay."""
        C = self.channels
        embeddings = (self.vocab_size + self.context) * C
        return embeddings + self.layers * 12 * C * C

    @property
    def parameter_count(self) -> int:
        r"""All parameters; the head shares ``wte``, so it counts once.

        .. math:: (V + T_{max})\,C + L\,(12 C^2 + 13 C) + 2C
        """
        C = self.channels
        vectors = self.layers * 13 * C + 2 * C  # 9C biases and 4C LayerNorm a block, ln_f
        return self.matrix_parameter_count + vectors

    @property
    def matmul_parameter_count(self) -> int:
        """Parameters that every token is multiplied by: all matrices but ``wpe``.

        ``wte`` counts once: as the head it is a matmul, as the embedding it is a look-up.
        """
        return self.matrix_parameter_count - self.context * self.channels

    def forward_flops(self, batch: int, seq: int) -> int:
        r"""Floating-point operations of one forward pass, a multiply-add counted as two.

        .. math:: 2 N \cdot P_{matmul} + 4 \, L \, N \, T \, C, \qquad N = B\,T

        The second term is attention: :math:`QK^T` and the weighted sum of the values, :math:`2NTC`
        each. As is usual the full square is counted, although the causal half would do.

        Notes
        -----
        Kaplan et al. (2020), section 2.1; Chowdhery et al. (2022), appendix B.
        """
        tokens = batch * seq
        attention = 4 * self.layers * tokens * seq * self.channels
        return 2 * tokens * self.matmul_parameter_count + attention

    def training_flops(self, batch: int, seq: int) -> int:
        """Floating-point operations of forward and backward: three times the forward's.

        Each matmul of the forward has two in the backward, one for the gradient of its input and
        one for the gradient of its weight.
        """
        return 3 * self.forward_flops(batch, seq)

    def training_bytes(self, batch: int, seq: int) -> int:
        """Bytes that a float32 training step holds, without the interpreter and its libraries.

        Four numbers for each parameter (weight, gradient, AdamW's two moments); for each token and
        layer 16 C + NH + 4 numbers that the forward leaves for the backward; for each token the V
        logits, and 14 C + 4 more numbers: the stream after the last block, the last LayerNorm, and
        what one block at a time works in.
        """
        C, L, NH = self.channels, self.layers, self.heads
        per_token = L * (16 * C + NH + 4) + 14 * C + 4 + self.vocab_size
        return 4 * (4 * self.parameter_count + batch * seq * per_token)

    @property
    def uniform_loss(self) -> float:
        """The loss ln V (nats a token) of a model that finds every token equally likely."""
        return math.log(self.vocab_size)

    def check_length(self, seq: int) -> None:
        """Refuse a sequence that is empty or longer than the context.

        Raises
        ------
        ValueError
            Naming both numbers.
        """
        if seq < 1:
            raise ValueError("a sequence needs at least one token, got none.")
        if seq > self.context:
            raise ValueError(
                f"a sequence of {seq} tokens does not fit this model's context of "
                f"{self.context}: give at most {self.context}, the last ones or piece by piece."
            )


def divisors_of(number: int) -> list[int]:
    """Return the divisors of a positive integer, ascending: the head counts it allows."""
    return [d for d in range(1, number + 1) if number % d == 0]
