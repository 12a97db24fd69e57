"""Faults put into every backward on purpose: the gradient checks must go red, at the right tensors.

Every statement of every backward that changes an array is found in the source, never listed by
hand. One at a time it is left out, its ``+=`` is turned into ``=``, or its sign is turned round.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gpt2lib.model
import gpt2lib.ops
from gpt2lib import ablation
from gpt2lib.check import check_gradients
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.opcheck import check_operations, operation_cases
from gpt2lib.ops import (
    attention,
    cross_entropy,
    embedding,
    gelu,
    head,
    head_mask,
    layernorm,
    linear,
    residual,
    softmax,
)
from tests.backends import one_thread, random_parameters

__all__ = ["one_thread"]

MODULES = [
    attention, cross_entropy, embedding, gelu, head, head_mask, layernorm, linear, residual,
    softmax,
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a fault may well overflow
# These check or fill scratch; no gradient depends on them.
HARMLESS = re.compile(r"^(buffer\(|np\.copyto\(buffer\(dpre)")
CONFIG = GPT2Config(vocab_size=9, context=5, layers=1, heads=2, channels=4)
MASK = np.array([[0.7, 1.4]])

# ------------------------------------------------------------------------- making mutants


@dataclass(frozen=True)
class Mutant:
    module: types.ModuleType
    function: str
    number: int  # which statement of the function
    kind: str  # "delete", "overwrite" or "sign"
    text: str  # the statement

    def __str__(self) -> str:
        return f"{self.function}-{self.kind}-{self.text[:40]}"

    @property
    def target(self) -> str:
        """The array that the statement changes; for a view of a gradient, that gradient."""
        name = re.match(r"\w+", self.text)
        assert name is not None
        views = {"dx_rows": "dx", "view": "dx", "dq": "dqkv", "dk": "dqkv", "dv": "dqkv"}
        return views.get(name[0], name[0])


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.endswith("backward")
    ]


def statements(function: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements that change an array: ``x += …``, ``x[…] = …``, ``call(…)``."""

    def changes(node: ast.AST) -> bool:
        if isinstance(node, ast.Assign):
            return isinstance(node.targets[0], ast.Subscript)
        call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        return isinstance(node, ast.AugAssign) or call

    found = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and changes(node)]
    return [node for node in found if not HARMLESS.match(ast.unparse(node))]


def mutants_of(module: types.ModuleType) -> list[Mutant]:
    found = []
    for function in functions(ast.parse(inspect.getsource(module))):
        for number, node in enumerate(statements(function)):
            kinds = ["delete"]
            if isinstance(node, ast.AugAssign):
                kinds.append("overwrite")
                kinds += ["sign"] if isinstance(node.op, ast.Add | ast.Sub) else []
            text = ast.unparse(node)
            found += [Mutant(module, function.name, number, kind, text) for kind in kinds]
    return found


def changed(node: ast.stmt, kind: str) -> ast.stmt:
    """Return the statement that takes this one's place."""
    if kind == "delete":
        return ast.Pass()
    assert isinstance(node, ast.AugAssign)
    if kind == "sign":
        op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return ast.AugAssign(node.target, op, node.value)
    target = node.target
    if isinstance(target, ast.Name):  # x += y becomes x[...] = y: the array stays the same one
        name = ast.Name(target.id, ast.Load())
        target = ast.Subscript(name, ast.Constant(...), ast.Store())
    return ast.Assign([target], node.value)


class Replace(ast.NodeTransformer):
    def __init__(self, node: ast.stmt, kind: str) -> None:
        self.node, self.kind = node, kind

    def visit(self, node: ast.AST) -> Any:
        if node is self.node:
            return ast.copy_location(changed(self.node, self.kind), node)
        return self.generic_visit(node)


def mutated(mutant: Mutant) -> types.ModuleType:
    """Return the mutant's module, run again from its changed source."""
    tree = ast.parse(inspect.getsource(mutant.module))
    (function,) = (f for f in functions(tree) if f.name == mutant.function)
    Replace(statements(function)[mutant.number], mutant.kind).visit(tree)
    module = types.ModuleType(mutant.module.__name__)
    exec(compile(ast.fix_missing_locations(tree), "mutant", "exec"), module.__dict__)
    return module


def backend(**changes: Any) -> Any:
    """Return NumPy's operations with some of them exchanged."""
    names = {name: getattr(gpt2lib.ops, name) for name in gpt2lib.ops.__all__}
    return types.SimpleNamespace(**{**names, **changes})


def mutated_backend(mutant: Mutant) -> Any:
    module = mutated(mutant)
    own = [n for n in gpt2lib.ops.__all__ if getattr(gpt2lib.ops, n).__module__ == module.__name__]
    return backend(**{name: getattr(module, name) for name in own})


def model_with(ops: Any, kind: type[GPT2] = GPT2) -> GPT2:
    model = kind(CONFIG, parameters=random_parameters(CONFIG, 1, np.float64, std=0.5))
    model.ops = ops
    return model


def red(model: GPT2, *, samples: int | None = 1, **mask: Any) -> set[str]:
    return set(check_gradients(model, samples=samples, seed=2, **mask).failed)


MUTANTS = [mutant for module in MODULES for mutant in mutants_of(module)]
TENSORS = {row.tensor for row in check_gradients(CONFIG, samples=1).rows}
# What the gradient of the residual stream reaches before the last LayerNorm, and the attention.
BELOW_LN_F = TENSORS - {"ln_f.weight", "ln_f.bias", "wte (target only)", "wte (neither)"}
BELOW_ATTENTION = {
    "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias", "h.0.ln_1.weight", "h.0.ln_1.bias",
    "wpe", "wte (input only)", "wte (both)",
}  # fmt: skip

# ------------------------------------------------------------------------- every statement


def test_every_augmented_assignment_is_mutated():
    # Counted another way: by the text, line by line.
    for module in MODULES:
        lines = 0
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.endswith("_backward") and function.__module__ == module.__name__:
                source = inspect.getsource(function).split('"""')[2]
                lines += len(re.findall(r"^\s+[\w\[\]]\S*.* [-+*/]= ", source, re.M))
        overwritten = [m for m in mutants_of(module) if m.kind == "overwrite"]
        assert len(overwritten) == lines, module.__name__
    assert {m.function for m in MUTANTS} >= {n for n in gpt2lib.ops.__all__ if "_backward" in n} - {
        "linear_gelu_backward"  # has none of its own: it calls the two that it is made of
    }


def test_without_a_fault_all_is_green():
    assert not red(model_with(gpt2lib.ops), samples=None)
    assert not red(model_with(gpt2lib.ops), head_mask=MASK)
    assert "wte (input only)" in TENSORS
    assert "wte (neither)" in TENSORS


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_check_of_the_operation_goes_red(mutant):
    name = mutant.function.removesuffix("_backward")
    names = sorted({c.name for c in operation_cases(gpt2lib.ops) if c.name.split(" ")[0] == name})
    report = check_operations(mutated_backend(mutant), names)
    assert not report.ok
    arguments = {f"d{row.tensor.split(': ')[1]}" for row in report.rows}
    if mutant.target in arguments:  # then this gradient is wrong, and no other
        wrong = {f"d{tensor.split(': ')[1]}" for tensor in report.failed}
        assert wrong == {mutant.target}


def matters_to_the_model(mutant: Mutant) -> bool:
    if mutant.module in (softmax, residual):  # the model's softmax is in attention and the loss
        return False
    if mutant.kind != "overwrite":
        return True
    # Overwriting a scratch buffer that was cleared just before is no fault; overwriting a
    # parameter's gradient is, and so is the stream's, to which each LayerNorm adds.
    return mutant.target not in ("dqkv", "dx", "dmask") or mutant.module is layernorm


@pytest.mark.parametrize("mutant", list(filter(matters_to_the_model, MUTANTS)), ids=str)
def test_the_check_of_the_model_goes_red(mutant):
    assert red(model_with(mutated_backend(mutant)), head_mask=MASK)


# ------------------------------------------------------------------------- the model's own order


def methods_with_faults() -> list[Mutant]:
    return [m for m in mutants_of(gpt2lib.model) if m.kind == "delete"]


@pytest.mark.parametrize("mutant", methods_with_faults(), ids=str)
def test_leaving_out_a_line_of_the_models_backward(mutant):
    # Among them: every operation, and every clearing of a scratch buffer.
    method = getattr(mutated(mutant).GPT2, mutant.function)
    kind = type("Mutant", (GPT2,), {mutant.function: method})
    try:
        assert red(model_with(gpt2lib.ops, kind), head_mask=MASK)
    except AttributeError:
        assert "gradient_scratch" in mutant.text  # nothing to work in


@pytest.mark.parametrize("mutant", mutants_of(ablation), ids=str)
def test_faults_in_the_head_masks_backward(mutant, monkeypatch):
    method = mutated(mutant).HeadMask.backward
    monkeypatch.setattr(ablation.HeadMask, "backward", method)
    assert red(model_with(gpt2lib.ops), head_mask=MASK, ablation="mean")


# ------------------------------------------------------------------------- faults with a name


def test_the_embeddings_part_of_the_tied_gradient_is_missing():
    def embedding_backward(dout, ids, *, dwte, dwpe, position=0):
        _, dwpe = gpt2lib.ops.embedding_backward(
            dout, ids, dwte=np.zeros_like(dwte), dwpe=dwpe, position=position
        )
        return dwte, dwpe

    model = model_with(backend(embedding_backward=embedding_backward))
    assert red(model) == {"wte (input only)", "wte (both)"}


def test_the_heads_part_of_the_tied_gradient_is_missing():
    def head_backward(dlogits, x, wte, *, dx=None, dwte=None):
        dx, _ = gpt2lib.ops.head_backward(dlogits, x, wte, dx=dx)
        return dx, dwte

    model = model_with(backend(head_backward=head_backward))
    assert red(model) == {name for name in TENSORS if name.startswith("wte")}


def test_a_repeated_token_counts_once():
    def embedding_backward(dout, ids, *, dwte, dwpe, position=0):
        gpt2lib.ops.embedding_backward(dout, ids, dwte=np.zeros_like(dwte), dwpe=dwpe)
        dwte[ids] += dout
        return dwte, dwpe

    model = model_with(backend(embedding_backward=embedding_backward))
    # The first token of each row is the same, so it repeats over the batch.
    assert red(model) == {"wte (input only)", "wte (both)"}


def test_the_biases_have_no_gradient():
    def linear_backward(dout, x, weight, *, dx=None, dweight=None, dbias=None):
        return gpt2lib.ops.linear_backward(dout, x, weight, dx=dx, dweight=dweight)

    model = model_with(backend(linear_backward=linear_backward))
    biases = {"h.0.attn.c_attn.bias", "h.0.attn.c_proj.bias", "h.0.mlp.c_proj.bias"}
    assert red(model) == biases


def test_layernorms_third_term_is_missing():
    (mutant,) = (m for m in MUTANTS if m.kind == "delete" and m.text.startswith("g -= x_hat"))
    assert red(model_with(mutated_backend(mutant))) == BELOW_LN_F


def test_the_mean_over_the_tokens_is_missing():
    def cross_entropy_backward(dloss, logits, targets, lse, **more):
        counted = int((np.asarray(targets) != -1).sum())
        return gpt2lib.ops.cross_entropy_backward(dloss * counted, logits, targets, lse, **more)

    model = model_with(backend(cross_entropy_backward=cross_entropy_backward))
    assert red(model) == TENSORS


def test_the_scale_of_the_scores_is_missing():
    (mutant,) = (m for m in MUTANTS if m.kind == "delete" and m.text == "ds *= scale")
    assert red(model_with(mutated_backend(mutant))) == BELOW_ATTENTION


def test_the_square_matrix_is_not_transposed():
    def linear_backward(dout, x, weight, *, dx=None, dweight=None, dbias=None):
        if weight.shape[0] == weight.shape[1]:
            dx += dout @ weight  # in place of its transpose: every shape fits
            _, dweight, dbias = gpt2lib.ops.linear_backward(
                dout, x, weight, dweight=dweight, dbias=dbias
            )
            return dx, dweight, dbias
        return gpt2lib.ops.linear_backward(dout, x, weight, dx=dx, dweight=dweight, dbias=dbias)

    assert red(model_with(backend(linear_backward=linear_backward))) == BELOW_ATTENTION


def test_the_residual_hands_nothing_on():
    class Cut(GPT2):
        def _mlp_backward(self, layer, a):
            dx = a.dx.copy()
            super()._mlp_backward(layer, a)
            a.dx -= dx

    above = {name for name in TENSORS if "mlp" in name or "ln_2" in name or "ln_f" in name}
    head_only = {"wte (target only)", "wte (neither)"}
    assert red(model_with(gpt2lib.ops, Cut)) == TENSORS - above - head_only


def test_a_fault_in_one_entry_of_a_large_tensor_is_found():
    # The sample is unlikely to hold it; the step in which all entries move together does.
    config = GPT2Config(vocab_size=9, context=5, layers=1, heads=2, channels=24)

    def linear_backward(dout, x, weight, *, dx=None, dweight=None, dbias=None):
        result = gpt2lib.ops.linear_backward(dout, x, weight, dx=dx, dweight=dweight, dbias=dbias)
        if dweight.shape == (24, 72):
            dweight[13, 57] *= 1.5
        return result

    model = GPT2(config, parameters=random_parameters(config, 1, np.float64))
    model.ops = backend(linear_backward=linear_backward)
    assert check_gradients(model, samples=1, seed=0).failed == ["h.0.attn.c_attn.weight"]


def test_nan_is_never_green():
    def gelu_backward(dout, pre, x, weight, **more):
        dx, dweight, dbias = gpt2lib.ops.linear_gelu_backward(dout, pre, x, weight, **more)
        dbias[0] = np.nan
        return dx, dweight, dbias

    model = model_with(backend(linear_gelu_backward=gelu_backward))
    assert red(copy.copy(model)) == {"h.0.mlp.c_fc.bias"}
