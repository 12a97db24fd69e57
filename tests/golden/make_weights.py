"""Write the small weight files that tests/weights reads: by the programs whose formats they are.

    python -O tests/golden/make_weights.py path/to/llm.c/train_gpt2.py

needs PyTorch and transformers. (-O, since llm.c's ``pad_vocab`` asserts GPT-2's own vocabulary.)
Writes into ``tests/golden/weights/``:

* ``huggingface/``: ``GPT2LMHeadModel.save_pretrained``, and ``sharded/`` the same in shards;
* ``llmc.bin``, ``llmc_bf16.bin``, ``llmc_state.bin``: ``write_model`` and ``write_state`` of llm.c;
* ``expected.npz``: ids, targets, and the logits and loss of transformers' model in float64.

The weights are large and lopsided, so that a transposed or swapped tensor shows.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

V, CONTEXT, L, NH, C = 37, 12, 2, 2, 8
OUT = Path(__file__).parent / "weights"


def huggingface_model():
    config = transformers.GPT2Config(
        vocab_size=V,
        n_positions=CONTEXT,
        n_embd=C,
        n_layer=L,
        n_head=NH,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=V - 1,
        eos_token_id=V - 1,
    )
    model = transformers.GPT2LMHeadModel(config)
    rng = np.random.default_rng(20240101)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = rng.normal(0.0, 0.5, parameter.shape) + 0.1 * rng.random(parameter.shape)
            if ".ln_" in name and name.endswith("weight"):
                values += 1
            parameter.copy_(torch.tensor(values, dtype=torch.float32))
    return model.eval()


def llmc_model(path, source):
    spec = importlib.util.spec_from_file_location("llmc_train_gpt2", path)
    llmc = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = llmc
    spec.loader.exec_module(llmc)
    model = llmc.GPT(llmc.GPTConfig(CONTEXT, V, L, NH, C))
    theirs = source.state_dict()
    turned = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # the same turn as llm.c's from_pretrained
            value = theirs[name]
            parameter.copy_(value.t() if name.endswith(turned) else value)
    return llmc, model


def main():
    OUT.mkdir(exist_ok=True)
    model = huggingface_model()
    model.save_pretrained(OUT / "huggingface")
    model.save_pretrained(OUT / "sharded", max_shard_size="4KB")
    rng = np.random.default_rng(7)
    ids, targets = rng.integers(0, V, (2, 3, CONTEXT))

    llmc, small = llmc_model(sys.argv[1], model)
    llmc.write_model(small, OUT / "llmc.bin", "float32")
    llmc.write_model(small, OUT / "llmc_bf16.bin", "bfloat16")
    x, y = torch.tensor(ids), torch.tensor(targets)
    logits, loss = small(x, y)
    loss.backward()
    llmc.write_state(small, x, y, logits, loss, OUT / "llmc_state.bin")

    exact = model.double()
    logits = exact(x).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, V), y.view(-1))
    np.savez_compressed(
        OUT / "expected.npz",
        ids=ids,
        targets=targets,
        logits=logits.detach().numpy(),
        loss=loss.item(),
        bf16=small.transformer.wte.weight.detach().bfloat16().float().numpy(),
    )
    for file in OUT.glob("*/generation_config.json"):
        file.unlink()


if __name__ == "__main__":
    main()
