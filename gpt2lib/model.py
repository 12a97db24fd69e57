"""GPT-2: which operation follows which, forward and backward.

The model knows the order of the operations and nothing of how they are computed: ``self.ops`` is
:mod:`gpt2lib.ops` (NumPy) or a compiled backend with the same names.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpt2lib.ablation import HeadMask
from gpt2lib.activations import Activations, Cache, Recording
from gpt2lib.backend import load_backend
from gpt2lib.config import GPT2Config
from gpt2lib.ops._shapes import Array, check_ids, check_targets
from gpt2lib.parameters import Parameters

_BLOCK_ACTIVATIONS = (
    "ln_1",
    "attn.qkv",
    "attn.probabilities",
    "attn.heads",
    "attn",
    "residual",
    "ln_2",
    "mlp.pre",
    "mlp.gelu",
    "mlp",
)


class GPT2:
    r"""GPT-2, with its gradients.

    .. math::
        x^0 &= W_e[\mathrm{ids}] + W_p \\
        \tilde x^{l} &= x^{l} + \mathrm{Attention}(\mathrm{LN}_1(x^{l})) \\
        x^{l+1} &= \tilde x^{l} + \mathrm{MLP}(\mathrm{LN}_2(\tilde x^{l})) \\
        \mathrm{logits} &= \mathrm{LN}_f(x^{L})\, W_e^\top

    Parameters
    ----------
    config
        The model's shape.
    parameters
        Existing parameters; by default fresh ones, drawn with ``seed``.
    dtype
        float32, or float64 to check gradients. Ignored when ``parameters`` are given.
    backend
        ``"numpy"`` or ``"numba"``.
    runtime, threads
        For the Numba backend: who runs the chunks (:mod:`gpt2lib.runtimes`), on how many threads.
    matmul
        For the Numba backend: ``"blas"``, or one of the book's own (``naive``, ``blocked``,
        ``micro``).
    seed
        For fresh parameters: an integer, a generator, or None for a random draw.

    Raises
    ------
    ValueError
        For a backend that does not exist, or parameters of another shape.

    Notes
    -----
    Radford et al. (2019), section 2.3: the block of Vaswani et al. (2017) without cross-attention,
    LayerNorm moved to the input of each sub-layer, and one more after the last block.

    Examples
    --------
    >>> model = GPT2(GPT2Config.preset("tiny"), seed=0)
    >>> model.forward([[1, 2, 3]]).shape
    (1, 3, 512)
    """

    def __init__(
        self,
        config: GPT2Config,
        *,
        parameters: Parameters | None = None,
        dtype: Any = np.float32,
        backend: str = "numpy",
        runtime: str | None = None,
        threads: int | None = None,
        matmul: str | None = None,
        seed: np.random.Generator | int | None = None,
    ) -> None:
        if parameters is not None and parameters.config != config:
            raise ValueError(f"the parameters are those of {parameters.config}, not of {config}.")
        self.config = config
        self.ops = load_backend(backend, runtime=runtime, threads=threads, matmul=matmul)
        self.parameters = (
            Parameters.initialize(config, seed, dtype) if parameters is None else parameters
        )
        self._gradients: Parameters | None = None
        self._activations: Activations | None = None
        self._logits: Array | None = None
        self._pending: _Pending | None = None
        self._recording: list[Recording] = []
        #: (L, NH) gradient of the loss with respect to the head mask, after a backward with one.
        self.head_mask_gradient: Array | None = None

    # ------------------------------------------------------------------ forward

    def forward(
        self,
        ids: Any,
        *,
        head_mask: Any = None,
        ablation: str = "zero",
        head_means: Array | None = None,
    ) -> Array:
        """Return the logits of every position.

        Parameters
        ----------
        ids
            (B, T) or (T,) integers in [0, V).
        head_mask
            (L, NH) factors for the heads' outputs: 1 leaves a head as it is, 0 switches it off.
        ablation
            What stands in for a head that is off: ``"zero"``, or ``"mean"``, its mean output.
        head_means
            (L, NH, hs) means for ``"mean"``; by default those over this very batch.

        Returns
        -------
        ndarray
            (B, T, V), or (T, V) for one sequence. A fresh array, the caller's to keep.

        Raises
        ------
        ValueError
            For ids outside the vocabulary, a sequence longer than the context, a mask of another
            shape.
        """
        ids = check_ids(ids, self.config.vocab_size)
        batch = self._batch(ids)
        mask = self._mask(head_mask, ablation, head_means)
        self._forward(batch, mask)
        logits = np.empty((*batch.shape, self.config.vocab_size), self.parameters.dtype)
        self._head(logits)
        self._pending = _Pending(batch, mask)
        return logits if ids.ndim == 2 else logits[0]

    def loss(
        self,
        ids: Any,
        targets: Any,
        *,
        ignore_index: int = -1,
        head_mask: Any = None,
        ablation: str = "zero",
        head_means: Array | None = None,
    ) -> float:
        """Return the mean cross-entropy of the targets, in nats a token.

        Parameters
        ----------
        ids, targets
            (B, T) integers: the tokens, and the token that follows each. A target of
            ``ignore_index`` does not count.
        ignore_index
            As in :func:`gpt2lib.ops.cross_entropy.cross_entropy_forward`.
        head_mask, ablation, head_means
            As in :meth:`forward`.

        Returns
        -------
        float
            The mean over the targets that count; 0.0 when none does.
        """
        batch = self._batch(check_ids(ids, self.config.vocab_size))
        if np.shape(targets) != np.shape(ids):  # (T, B) would pass for (B, T) once it is flat
            raise ValueError(
                f"targets {np.shape(targets)} must have the ids' shape {np.shape(ids)}."
            )
        y = check_targets(targets, self.config.vocab_size, ignore_index, batch.size)
        mask = self._mask(head_mask, ablation, head_means)
        self._forward(batch, mask)
        shape = (*batch.shape, self.config.vocab_size)
        if self._logits is None or self._logits.shape != shape:
            self._logits = None  # let the old one go before the new one comes
            self._logits = np.empty(shape, self.parameters.dtype)
        self._head(self._logits)
        a = self._saved()
        value, _, _ = self.ops.cross_entropy_forward(
            self._logits, y, ignore_index=ignore_index, losses=a.losses, lse=a.lse_logits
        )
        self._pending = _Pending(batch, mask, y, ignore_index)
        return float(value)

    @property
    def losses(self) -> Array:
        """The loss of every position (B, T) of the last :meth:`loss`, in nats; a copy."""
        return self._saved().losses.copy()

    def _forward(self, ids: Array, mask: HeadMask | None) -> None:
        """Run every block; leave the normalised last vectors in ``activations.ln_f``."""
        a = self._allocate(*ids.shape)
        ops, p = self.ops, self.parameters
        self._pending = None
        ops.embedding_forward(ids, p["wte"], p["wpe"], out=a.x[0])  # (B, T, C)
        self._note("embedding", a.x[0])
        for layer in range(self.config.layers):
            self._attention(layer, a, mask)
            self._mlp(layer, a)
        ops.layernorm_forward(
            a.x[-1],
            p["ln_f.weight"],
            p["ln_f.bias"],
            out=a.ln_f,
            mean=a.ln_f_mean,
            rstd=a.ln_f_rstd,
        )
        self._note("ln_f", a.ln_f)

    def _attention(self, layer: int, a: Activations, mask: HeadMask | None) -> None:
        """Run the first half of a block: stream = stream + attention(LayerNorm(stream))."""
        ops, p, h = self.ops, self.parameters, f"h.{layer}"
        ops.layernorm_forward(
            a.x[layer],
            p[f"{h}.ln_1.weight"],
            p[f"{h}.ln_1.bias"],
            out=a.ln_1[layer],
            mean=a.ln_1_mean[layer],
            rstd=a.ln_1_rstd[layer],
        )
        ops.linear_forward(  # (B, T, C) -> (B, T, 3C)
            a.ln_1[layer],
            p[f"{h}.attn.c_attn.weight"],
            p[f"{h}.attn.c_attn.bias"],
            out=a.qkv[layer],
        )
        ops.attention_forward(  # (B, T, 3C) -> (B, T, C)
            a.qkv[layer],
            self.config.heads,
            out=a.heads[layer],
            lse=a.lse[layer],
            probabilities=self._probabilities(layer, a),
        )
        heads = self._masked_heads(layer, a, mask)
        ops.linear_forward(
            heads, p[f"{h}.attn.c_proj.weight"], p[f"{h}.attn.c_proj.bias"], out=a.branch
        )
        ops.residual_forward(a.x[layer], a.branch, out=a.middle[layer])
        for name, value in (
            ("ln_1", a.ln_1[layer]),
            ("attn.qkv", a.qkv[layer]),
            ("attn.heads", heads),
            ("attn", a.branch),
            ("residual", a.middle[layer]),
        ):
            self._note(f"{h}.{name}", value)

    def _mlp(self, layer: int, a: Activations) -> None:
        """Run the second half of a block: stream = stream + MLP(LayerNorm(stream))."""
        ops, p, h = self.ops, self.parameters, f"h.{layer}"
        ops.layernorm_forward(
            a.middle[layer],
            p[f"{h}.ln_2.weight"],
            p[f"{h}.ln_2.bias"],
            out=a.ln_2[layer],
            mean=a.ln_2_mean[layer],
            rstd=a.ln_2_rstd[layer],
        )
        ops.linear_gelu_forward(  # (B, T, C) -> (B, T, 4C)
            a.ln_2[layer],
            p[f"{h}.mlp.c_fc.weight"],
            p[f"{h}.mlp.c_fc.bias"],
            out=a.gelu[layer],
            pre=a.pre[layer],
        )
        ops.linear_forward(  # (B, T, 4C) -> (B, T, C)
            a.gelu[layer], p[f"{h}.mlp.c_proj.weight"], p[f"{h}.mlp.c_proj.bias"], out=a.branch
        )
        ops.residual_forward(a.middle[layer], a.branch, out=a.x[layer + 1])
        for name, value in (
            ("ln_2", a.ln_2[layer]),
            ("mlp.pre", a.pre[layer]),
            ("mlp.gelu", a.gelu[layer]),
            ("mlp", a.branch),
        ):
            self._note(f"{h}.{name}", value)
        self._note(h, a.x[layer + 1])

    def _head(self, logits: Array) -> None:
        """Score every token at every position."""
        self.ops.head_forward(self._saved().ln_f, self.parameters["wte"], out=logits)
        self._note("logits", logits)

    # ----------------------------------------------------------------- backward

    def backward(self, dloss: float = 1.0, *, dlogits: Array | None = None) -> None:
        """Add the gradient of every parameter to :attr:`gradients`.

        Parameters
        ----------
        dloss
            The gradient of the loss that :meth:`loss` returned: 1.0, or a micro-batch's share.
        dlogits
            After :meth:`forward`: the gradient of its logits, (B, T, V) or (T, V).

        Raises
        ------
        RuntimeError
            When no forward came before, or its activations were used up by an earlier backward.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            raise RuntimeError(
                "backward needs the activations of a forward: call loss(ids, targets) first; "
                "each loss serves one backward."
            )
        a = self._saved()
        a.gradient_scratch()
        ops, p, g = self.ops, self.parameters, self.gradients
        dlogits = self._dlogits(pending, dloss, dlogits)
        dhead = a.dbranch
        ops.zero(dhead)
        ops.head_backward(dlogits, a.ln_f, p["wte"], dx=dhead, dwte=g["wte"])
        ops.zero(a.dx)  # the gradient of the residual stream, from here to the embedding
        ops.layernorm_backward(
            dhead,
            a.x[-1],
            p["ln_f.weight"],
            a.ln_f_mean,
            a.ln_f_rstd,
            dx=a.dx,
            dweight=g["ln_f.weight"],
            dbias=g["ln_f.bias"],
        )
        for layer in reversed(range(self.config.layers)):
            self._mlp_backward(layer, a)
            self._attention_backward(layer, a, pending.mask)
        ops.embedding_backward(a.dx, pending.ids, dwte=g["wte"], dwpe=g["wpe"])

    def _dlogits(self, pending: _Pending, dloss: float, dlogits: Array | None) -> Array:
        """Return the gradient of the logits: the caller's, or the loss's (in the logits' place)."""
        if dlogits is not None:
            shape = (*pending.ids.shape, self.config.vocab_size)
            return np.ascontiguousarray(dlogits, self.parameters.dtype).reshape(shape)
        if pending.targets is None:
            raise RuntimeError("backward after forward() needs dlogits; after loss() it does not.")
        assert self._logits is not None
        return self.ops.cross_entropy_backward(
            dloss,
            self._logits,
            pending.targets,
            self._saved().lse_logits,
            ignore_index=pending.ignore_index,
            out=self._logits,
        )

    def _mlp_backward(self, layer: int, a: Activations) -> None:
        """Undo :meth:`_mlp`. The residual hands ``a.dx`` on unchanged, and adds what comes back."""
        ops, p, g, h = self.ops, self.parameters, self.gradients, f"h.{layer}"
        ops.zero(a.dgelu)
        ops.linear_backward(  # (B, T, C) -> (B, T, 4C)
            a.dx,
            a.gelu[layer],
            p[f"{h}.mlp.c_proj.weight"],
            dx=a.dgelu,
            dweight=g[f"{h}.mlp.c_proj.weight"],
            dbias=g[f"{h}.mlp.c_proj.bias"],
        )
        ops.zero(a.dbranch)
        ops.linear_gelu_backward(  # (B, T, 4C) -> (B, T, C)
            a.dgelu,
            a.pre[layer],
            a.ln_2[layer],
            p[f"{h}.mlp.c_fc.weight"],
            dpre=a.dgelu,
            dx=a.dbranch,
            dweight=g[f"{h}.mlp.c_fc.weight"],
            dbias=g[f"{h}.mlp.c_fc.bias"],
        )
        ops.layernorm_backward(
            a.dbranch,
            a.middle[layer],
            p[f"{h}.ln_2.weight"],
            a.ln_2_mean[layer],
            a.ln_2_rstd[layer],
            dx=a.dx,
            dweight=g[f"{h}.ln_2.weight"],
            dbias=g[f"{h}.ln_2.bias"],
        )

    def _attention_backward(self, layer: int, a: Activations, mask: HeadMask | None) -> None:
        """Undo :meth:`_attention`."""
        ops, p, g, h = self.ops, self.parameters, self.gradients, f"h.{layer}"
        heads = self._masked_heads(layer, a, mask)
        ops.zero(a.dheads)
        ops.linear_backward(
            a.dx,
            heads,
            p[f"{h}.attn.c_proj.weight"],
            dx=a.dheads,
            dweight=g[f"{h}.attn.c_proj.weight"],
            dbias=g[f"{h}.attn.c_proj.bias"],
        )
        dheads = a.dheads
        if mask is not None:
            ops.zero(a.dbranch)
            dheads = mask.backward(ops, layer, a.dheads, a.heads[layer], a.dbranch)
        ops.zero(a.dqkv)
        ops.attention_backward(  # (B, T, C) -> (B, T, 3C)
            dheads, a.qkv[layer], a.heads[layer], a.lse[layer], self.config.heads, dqkv=a.dqkv
        )
        ops.zero(a.dheads)
        ops.linear_backward(  # (B, T, 3C) -> (B, T, C)
            a.dqkv,
            a.ln_1[layer],
            p[f"{h}.attn.c_attn.weight"],
            dx=a.dheads,
            dweight=g[f"{h}.attn.c_attn.weight"],
            dbias=g[f"{h}.attn.c_attn.bias"],
        )
        ops.layernorm_backward(
            a.dheads,
            a.x[layer],
            p[f"{h}.ln_1.weight"],
            a.ln_1_mean[layer],
            a.ln_1_rstd[layer],
            dx=a.dx,
            dweight=g[f"{h}.ln_1.weight"],
            dbias=g[f"{h}.ln_1.bias"],
        )

    @property
    def gradients(self) -> Parameters:
        """The gradients, one for each parameter, allocated when they are first asked for."""
        if self._gradients is None:
            self._gradients = self.parameters.zeros_like()
        return self._gradients

    def zero_gradients(self) -> None:
        """Set every gradient to 0: before a step, since every backward adds."""
        self.ops.zero(self.gradients.flat)

    # --------------------------------------------------------------- generation

    def new_cache(self, batch: int = 1) -> Cache:
        """Return an empty key/value cache for ``batch`` sequences."""
        return Cache(self.config, batch, self.parameters.dtype)

    def decode(
        self,
        ids: Any,
        cache: Cache,
        *,
        every: bool = False,
        head_mask: Any = None,
        ablation: str = "zero",
        head_means: Array | None = None,
    ) -> Array:
        """Read new tokens, with those before them in the cache.

        Parameters
        ----------
        ids
            (B, T) or (T,) integers: the tokens that come next.
        cache
            From :meth:`new_cache`; grows by T positions.
        every
            Whether to return logits for every new position, or only after the last.
        head_mask, ablation, head_means
            As in :meth:`forward`; ``"mean"`` needs the means, since there is no batch here to take
            them over. The same for every token of a text: heads work on what the cache holds.

        Returns
        -------
        ndarray
            (B, V) after the last token, or (B, T, V) with ``every``.

        Raises
        ------
        ValueError
            When cache and new tokens together are longer than the context, or for a mask that
            does not fit.
        """
        mask = HeadMask.checked(self.config, self.parameters.dtype, head_mask, ablation, head_means)
        if mask is not None:
            mask.refuse_own_means()
        ids = check_ids(ids, self.config.vocab_size)
        ids = ids.reshape(1, -1) if ids.ndim < 2 else ids
        if ids.shape[0] != cache.keys.shape[1]:
            raise ValueError(
                f"the cache is for {cache.keys.shape[1]} sequences, got {ids.shape[0]}."
            )
        self.config.check_length(cache.length + ids.shape[1])
        x = self.ops.embedding_forward(
            ids, self.parameters["wte"], self.parameters["wpe"], position=cache.length
        )
        for layer in range(self.config.layers):
            x = self._decode_block(layer, x, cache, mask)
        cache.length += ids.shape[1]
        p = self.parameters
        x = x if every else np.ascontiguousarray(x[:, -1:])
        x, _, _ = self.ops.layernorm_forward(x, p["ln_f.weight"], p["ln_f.bias"])
        logits = self.ops.head_forward(x, p["wte"])
        return logits if every else logits[:, 0]

    def _decode_block(self, layer: int, x: Array, cache: Cache, mask: HeadMask | None) -> Array:
        """Run one block on new tokens (B, T, C), reading and extending the cache."""
        ops, p, h = self.ops, self.parameters, f"h.{layer}"
        y, _, _ = ops.layernorm_forward(x, p[f"{h}.ln_1.weight"], p[f"{h}.ln_1.bias"])
        qkv = ops.linear_forward(y, p[f"{h}.attn.c_attn.weight"], p[f"{h}.attn.c_attn.bias"])
        z = ops.attention_cached(
            qkv, cache.keys[layer], cache.values[layer], cache.length, self.config.heads
        )
        if mask is not None:
            z = mask.forward(ops, layer, z, np.empty_like(z))
        y = ops.linear_forward(z, p[f"{h}.attn.c_proj.weight"], p[f"{h}.attn.c_proj.bias"])
        x = ops.residual_forward(x, y, out=x)
        y, _, _ = ops.layernorm_forward(x, p[f"{h}.ln_2.weight"], p[f"{h}.ln_2.bias"])
        y, _ = ops.linear_gelu_forward(y, p[f"{h}.mlp.c_fc.weight"], p[f"{h}.mlp.c_fc.bias"])
        y = ops.linear_forward(y, p[f"{h}.mlp.c_proj.weight"], p[f"{h}.mlp.c_proj.bias"])
        return ops.residual_forward(x, y, out=x)

    # ---------------------------------------------------------------- recording

    @contextlib.contextmanager
    def record(self, *patterns: str) -> Iterator[dict[str, Array]]:
        """Record activations by name while the block runs.

        Parameters
        ----------
        *patterns
            Names, or patterns in the shell's manner: ``"h.*.attn.probabilities"``. The names are
            those of :meth:`activation_names`.

        Yields
        ------
        dict
            Filled by every forward inside the block: name to a copy of the activation.

        Raises
        ------
        ValueError
            For a pattern that no activation's name matches.

        Examples
        --------
        >>> model = GPT2(GPT2Config.preset("tiny"), seed=0)
        >>> with model.record("h.0.attn.probabilities") as seen:
        ...     _ = model.forward([[1, 2, 3]])
        >>> seen["h.0.attn.probabilities"].shape
        (1, 4, 3, 3)
        """
        names = self.activation_names()
        for pattern in patterns:
            if not fnmatch.filter(names, pattern):
                raise ValueError(
                    f"no activation is called {pattern!r}; there are embedding, h.0.ln_1, …: "
                    "see activation_names()."
                )
        recording = Recording(patterns)
        self._recording.append(recording)
        try:
            yield recording.values
        finally:
            self._recording.remove(recording)

    def activation_names(self) -> list[str]:
        """Return the names of everything that :meth:`record` can record, in order.

        ``h.{l}.attn.probabilities`` is (B, NH, T, T); ``h.{l}.attn.heads`` (B, T, C) is what goes
        into ``c_proj``, after a head mask; ``h.{l}.residual`` and ``h.{l}`` are the residual
        stream in the middle and at the end of block l.
        """
        names = ["embedding"]
        for layer in range(self.config.layers):
            names += [f"h.{layer}.{part}" for part in _BLOCK_ACTIVATIONS] + [f"h.{layer}"]
        return [*names, "ln_f", "logits"]

    def _note(self, name: str, value: Array) -> None:
        """Hand an activation to whoever records it."""
        for recording in self._recording:
            if recording.wants(name):
                recording.values[name] = value.copy()

    def _probabilities(self, layer: int, a: Activations) -> Array | None:
        """Return a buffer for this layer's (T, T) probabilities if somebody asked for them."""
        name = f"h.{layer}.attn.probabilities"
        wanted = [recording for recording in self._recording if recording.wants(name)]
        if not wanted:
            return None
        B, T = a.shape
        p = np.zeros((B, self.config.heads, T, T), self.parameters.dtype)
        for recording in wanted:
            recording.values[name] = p
        return p

    # ------------------------------------------------------------------ helpers

    def _batch(self, ids: Array) -> Array:
        """Return ids as (B, T), refusing what does not fit the context."""
        if ids.ndim not in (1, 2):
            raise ValueError(f"ids must be (B, T) or (T,), got {ids.ndim} dimensions.")
        self.config.check_length(ids.shape[-1])
        return ids.reshape(-1, ids.shape[-1])

    def _allocate(self, batch: int, seq: int) -> Activations:
        """Return the activation buffers for (B, T): those of last time where the shape is equal."""
        if self._activations is None or self._activations.shape != (batch, seq):
            self._activations = None  # let the old ones go before the new ones come
            self._activations = Activations(self.config, batch, seq, self.parameters.dtype)
        return self._activations

    def _saved(self) -> Activations:
        if self._activations is None:
            raise RuntimeError("there is no forward yet: call forward or loss first.")
        return self._activations

    def _mask(self, head_mask: Any, ablation: str, head_means: Array | None) -> HeadMask | None:
        """Return the checked head mask, or None where every head is on."""
        mask = HeadMask.checked(self.config, self.parameters.dtype, head_mask, ablation, head_means)
        self.head_mask_gradient = None if mask is None else mask.gradient
        return mask

    def _masked_heads(self, layer: int, a: Activations, mask: HeadMask | None) -> Array:
        """Return what goes into ``c_proj``: the heads themselves, or masked in scratch."""
        if mask is None:
            return a.heads[layer]
        return mask.forward(self.ops, layer, a.heads[layer], a.masked)

    def __repr__(self) -> str:
        return f"GPT2({self.config}, {self.parameters.dtype}, {self.config.parameter_count:,})"


class _Pending:
    """What a backward needs to know of its forward besides the activations."""

    def __init__(
        self,
        ids: Array,
        mask: HeadMask | None,
        targets: Array | None = None,
        ignore_index: int = -1,
    ) -> None:
        self.ids, self.mask = ids, mask
        self.targets, self.ignore_index = targets, ignore_index
