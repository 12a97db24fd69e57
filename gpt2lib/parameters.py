"""All parameters of a model in one flat buffer, with a named view of each tensor.

One buffer makes the optimizer a single pass over memory, a checkpoint a single write, and the sum
of gradients over machines a single message. The names are those of GPT-2's own checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config

Array = np.ndarray[Any, Any]


def parameter_shapes(config: GPT2Config) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor, in the order in which they lie in memory.

    All matrices come first, then all vectors. Weight decay acts on matrices only (see
    :mod:`gpt2lib.optimizer`), so what decays is one contiguous prefix of the buffer.

    Parameters
    ----------
    config
        The model's shape.

    Returns
    -------
    dict
        Name to shape; a weight is (in, out), so that ``y = x @ W + b``.
    """
    C, blocks = config.channels, range(config.layers)
    matrices: dict[str, tuple[int, ...]] = {
        "wte": (config.vocab_size, C),
        "wpe": (config.context, C),
    }
    vectors: dict[str, tuple[int, ...]] = {}
    for block in blocks:
        h = f"h.{block}"
        vectors[f"{h}.ln_1.weight"] = (C,)
        vectors[f"{h}.ln_1.bias"] = (C,)
        matrices[f"{h}.attn.c_attn.weight"] = (C, 3 * C)
        vectors[f"{h}.attn.c_attn.bias"] = (3 * C,)
        matrices[f"{h}.attn.c_proj.weight"] = (C, C)
        vectors[f"{h}.attn.c_proj.bias"] = (C,)
        vectors[f"{h}.ln_2.weight"] = (C,)
        vectors[f"{h}.ln_2.bias"] = (C,)
        matrices[f"{h}.mlp.c_fc.weight"] = (C, 4 * C)
        vectors[f"{h}.mlp.c_fc.bias"] = (4 * C,)
        matrices[f"{h}.mlp.c_proj.weight"] = (4 * C, C)
        vectors[f"{h}.mlp.c_proj.bias"] = (C,)
    vectors["ln_f.weight"] = (C,)
    vectors["ln_f.bias"] = (C,)
    return {**matrices, **vectors}


class Parameters(Mapping[str, Array]):
    """Named views into one contiguous buffer of parameters (or gradients, or moments).

    Parameters
    ----------
    config
        The model's shape, which fixes names, shapes and order.
    dtype
        float32 to train, float64 to check gradients.
    flat
        An existing buffer of ``config.parameter_count`` numbers to look into; by default zeros.

    Raises
    ------
    ValueError
        When ``flat`` has another size, is not one-dimensional or not contiguous.

    Examples
    --------
    >>> p = Parameters(GPT2Config.preset("tiny"))
    >>> p["wte"][3] = 1.0          # a view: the flat buffer changes with it
    >>> float(p.flat.sum())
    128.0
    """

    def __init__(
        self, config: GPT2Config, dtype: Any = np.float32, flat: Array | None = None
    ) -> None:
        count = config.parameter_count
        if flat is None:
            flat = np.zeros(count, dtype)
        if flat.shape != (count,) or not flat.flags.c_contiguous:
            raise ValueError(
                f"the parameters need one contiguous buffer of {count:,} numbers, "
                f"got an array of shape {flat.shape}."
            )
        self.config = config
        self.flat = flat
        self._views: dict[str, Array] = {}
        start = 0
        for name, shape in parameter_shapes(config).items():
            stop = start + math.prod(shape)
            self._views[name] = flat[start:stop].reshape(shape)
            start = stop

    @classmethod
    def initialize(
        cls,
        config: GPT2Config,
        rng: np.random.Generator | int | None = None,
        dtype: Any = np.float32,
    ) -> Parameters:
        r"""Draw fresh parameters as GPT-2 does.

        Matrices are normal with standard deviation 0.02; the two projections that write into the
        residual stream have :math:`0.02 / \sqrt{2L}`, since 2L of them add up in it. Biases
        are 0, LayerNorm's gains 1.

        Parameters
        ----------
        config
            The model's shape.
        rng
            A generator, or a seed for one. The same seed gives the same weights in float32 and
            float64 (up to rounding).

        Notes
        -----
        Radford et al. (2019), section 2.3, for the residual scale; the numbers are those of the
        released code.
        """
        rng = np.random.default_rng(rng)
        parameters = cls(config, dtype)
        residual = 0.02 / math.sqrt(2 * config.layers)
        for name, view in parameters.items():
            if view.ndim == 2:
                std = residual if name.endswith("c_proj.weight") else 0.02
                rng.standard_normal(out=(noise := np.empty(view.shape, np.float64)))
                np.multiply(noise, std, out=view, casting="same_kind")
            elif name.endswith("weight"):  # a LayerNorm's gain; biases stay 0
                view.fill(1.0)
        return parameters

    @property
    def decayed(self) -> int:
        """How many leading numbers of ``flat`` belong to matrices, the ones that decay."""
        return self.config.matrix_parameter_count

    @property
    def dtype(self) -> np.dtype[Any]:
        """The buffer's type."""
        return self.flat.dtype

    def zeros_like(self) -> Parameters:
        """Return a buffer of the same shape and type, filled with zeros."""
        return Parameters(self.config, self.dtype)

    def copy(self) -> Parameters:
        """Return an independent copy."""
        return Parameters(self.config, self.dtype, self.flat.copy())

    def astype(self, dtype: Any) -> Parameters:
        """Return a copy in another floating-point type."""
        return Parameters(self.config, dtype, self.flat.astype(dtype))

    def __getitem__(self, name: str) -> Array:
        try:
            return self._views[name]
        except KeyError:
            near = [known for known in self._views if name.split(".")[-1] in known][:4]
            raise KeyError(f"no parameter is called {name!r}; similar: {', '.join(near)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        return f"Parameters({len(self)} tensors, {self.flat.size:,} numbers, {self.dtype})"
