"""AdamW over one flat buffer, gradient clipping, and the learning rate's course."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpt2lib import ops as numpy_ops
from gpt2lib.parameters import Parameters

Array = np.ndarray[Any, Any]


class AdamW:
    r"""Adam with decoupled weight decay.

    Every number :math:`\theta` has a running mean m of its gradients and a running mean v of
    their squares. With :math:`g_t` the gradient of step t = 1, 2, …

    .. math::
        m_t &= \beta_1 m_{t-1} + (1-\beta_1)\,g_t, \qquad
        v_t = \beta_2 v_{t-1} + (1-\beta_2)\,g_t^2 \\
        \theta_t &= (1-\eta\lambda)\,\theta_{t-1}
          - \eta\,\frac{m_t / (1-\beta_1^t)}{\sqrt{v_t / (1-\beta_2^t)} + \varepsilon}

    The decay :math:`\lambda` acts on matrices (and embeddings) only; biases and LayerNorm's gains
    keep their size. In :class:`~gpt2lib.parameters.Parameters` the matrices lie first, so a step
    is two passes: one over the prefix that decays, one over the rest.

    Parameters
    ----------
    parameters
        What to optimise; changed in place by :meth:`step`.
    learning_rate
        :math:`\eta`, unless a step is given its own.
    betas
        :math:`(\beta_1, \beta_2)`, each in [0, 1).
    eps
        :math:`\varepsilon`, outside the root.
    weight_decay
        :math:`\lambda`.
    decay_all
        Whether vectors decay too, as llm.c's reference run has it.
    ops
        The backend: :mod:`gpt2lib.ops`, or ``model.ops``.

    Attributes
    ----------
    m, v
        :class:`~gpt2lib.parameters.Parameters`: the running means, by name.
    t
        How many steps have been made: one number for all tensors.

    Raises
    ------
    ValueError
        For a constant outside its range.

    Notes
    -----
    Kingma and Ba (2015), algorithm 1; Loshchilov and Hutter (2019), algorithm 2. As in PyTorch,
    the decay is multiplied by the learning rate itself (the paper has a schedule multiplier).

    Examples
    --------
    >>> from gpt2lib.config import GPT2Config
    >>> weights = Parameters(GPT2Config.preset("tiny"))
    >>> gradients = weights.zeros_like()
    >>> gradients["wte"][:] = 0.5
    >>> AdamW(weights, learning_rate=0.1, weight_decay=0.0).step(gradients)
    >>> round(float(weights["wte"][0, 0]), 6)     # the first step moves by the learning rate
    -0.1
    """

    def __init__(
        self,
        parameters: Parameters,
        *,
        learning_rate: float = 3e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        decay_all: bool = False,
        ops: Any = numpy_ops,
    ) -> None:
        self.parameters = parameters
        self.learning_rate = _not_negative("learning_rate", learning_rate)
        self.beta1, self.beta2 = (_fraction(f"betas[{i}]", beta) for i, beta in enumerate(betas))
        self.eps = _not_negative("eps", eps)
        self.weight_decay = _not_negative("weight_decay", weight_decay)
        self.decay_all = bool(decay_all)
        self.ops = ops
        self.m = parameters.zeros_like()
        self.v = parameters.zeros_like()
        self.t = 0

    def step(
        self,
        gradients: Parameters,
        learning_rate: float | None = None,
        gradient_scale: float = 1.0,
        zero_gradients: bool = False,
    ) -> None:
        """Move the parameters once, in place.

        Parameters
        ----------
        gradients
            Of the same shape as the parameters; left as they are, unless ``zero_gradients``.
        learning_rate
            This step's rate; by default the one given at construction.
        gradient_scale
            A factor for the gradients, such as :func:`clip_scale` returns.
        zero_gradients
            Whether to clear the gradients once they are used. The compiled backend does it in the
            same pass, which saves the next step a pass of its own over all of them.

        Raises
        ------
        ValueError
            When the gradients are those of another model.
        """
        if gradients.config != self.parameters.config:
            raise ValueError(
                f"the gradients are those of {gradients.config}, the parameters those of "
                f"{self.parameters.config}."
            )
        self.t += 1
        size = self.parameters.flat.size
        matrices = size if self.decay_all else self.parameters.decayed
        for part, decay in (
            (slice(0, matrices), self.weight_decay),
            (slice(matrices, size), 0.0),
        ):
            if part.start == part.stop:
                continue
            self.ops.adamw_update(
                self.parameters.flat[part],
                gradients.flat[part],
                self.m.flat[part],
                self.v.flat[part],
                learning_rate=self.learning_rate if learning_rate is None else learning_rate,
                beta1=self.beta1,
                beta2=self.beta2,
                eps=self.eps,
                weight_decay=decay,
                step=self.t,
                gradient_scale=gradient_scale,
                zero_gradients=zero_gradients,
            )


def clip_scale(
    gradients: Parameters, max_norm: float | None, ops: Any = numpy_ops
) -> tuple[float, float]:
    r"""Return the factor that brings all gradients together down to a norm, and their norm.

    .. math:: \text{scale} = \min\!\left(1, \frac{\text{max\_norm}}{\lVert g \rVert_2}\right)

    One norm over every tensor, so the direction stays. The gradients are not touched: hand the
    factor to :meth:`AdamW.step`, which multiplies on the way.

    Parameters
    ----------
    gradients
        All gradients.
    max_norm
        The largest norm to let through; None for no limit (the factor is then 1).
    ops
        The backend.

    Returns
    -------
    tuple
        The factor, at most 1, and the norm.

    Raises
    ------
    FloatingPointError
        When the norm is infinite or not a number. No factor can mend that, and a step would spoil
        every weight, so there is none: the weights stay those of the last good step.
    ValueError
        When ``max_norm`` is not positive.

    Notes
    -----
    Pascanu, Mikolov and Bengio (2013), algorithm 1.
    """
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm must be positive (or None, for no clipping), got {max_norm!r}.")
    norm = math.sqrt(ops.squared_norm(gradients.flat))
    if not math.isfinite(norm):
        name = next(n for n, g in gradients.items() if not np.isfinite(g).all())
        raise FloatingPointError(
            f"the gradient of {name} holds {_first_bad(gradients[name])}, so its norm is {norm}: "
            "no step was made. A smaller learning rate or a longer warm-up usually helps."
        )
    if max_norm is None or norm <= max_norm:
        return 1.0, norm
    return max_norm / norm, norm


def cosine_schedule(
    step: int, *, max_rate: float, min_rate: float = 0.0, warmup: int = 0, steps: int
) -> float:
    r"""Return the learning rate of a step: up in a straight line, then down half a cosine.

    .. math::
        \eta_s = \begin{cases}
          \eta_{max}\,\dfrac{s+1}{w+1} & s < w \\[2ex]
          \eta_{min} + \dfrac{\eta_{max}-\eta_{min}}{2}
            \left(1 + \cos \pi\,\dfrac{s-w}{S-w}\right) & w \le s < S \\[2ex]
          \eta_{min} & s \ge S
        \end{cases}

    The first step has a rate above 0, so it is not wasted; the maximum is reached once, at step w,
    with no jump there. A warm-up that does not end within the run is cut to end at its last step.

    Parameters
    ----------
    step
        s, counted from 0.
    max_rate, min_rate
        The rate at the top and at the end.
    warmup
        w, steps on the way up; 0 starts at the top.
    steps
        S, steps in all. Later steps stay at ``min_rate``.

    Raises
    ------
    ValueError
        For a negative step, warm-up or rate, or a minimum above the maximum.

    Notes
    -----
    Loshchilov and Hutter (2017), equation 5, without restarts.
    """
    if step < 0 or warmup < 0 or steps < 1:
        raise ValueError(
            f"step and warmup must not be negative and steps at least 1, "
            f"got step={step}, warmup={warmup}, steps={steps}."
        )
    if not 0 <= min_rate <= max_rate < math.inf:
        raise ValueError(f"need 0 <= min_rate <= max_rate, got {min_rate!r} and {max_rate!r}.")
    warmup = min(warmup, steps - 1)
    if step < warmup:
        return max_rate * (step + 1) / (warmup + 1)
    if step >= steps:
        return min_rate
    progress = (step - warmup) / (steps - warmup)
    return min_rate + (max_rate - min_rate) * 0.5 * (1 + math.cos(math.pi * progress))


def _not_negative(name: str, value: float) -> float:
    number = float(value)
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}.")
    return number


def _fraction(name: str, value: float) -> float:
    number = float(value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}.")
    return number


def _first_bad(array: Array) -> str:
    """Name the first number that is not finite."""
    return str(array[~np.isfinite(array)].ravel()[0])
