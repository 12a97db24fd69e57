"""Weights in files: our own, Hugging Face's, llm.c's. Read and written, checked before believed.

===================  =====================================================================
module               what it knows
===================  =====================================================================
``safetensors``      the safetensors format: a checked NumPy reader, a writer
``digest``           safetensors files that carry a digest of themselves
``model_file``       a model of this library in one such file
``huggingface``      Hugging Face's GPT-2: folders, files, names on the hub
``llmc``             llm.c's ``.bin`` files: models and the debug state
===================  =====================================================================

Nothing is unpickled. What is wrong in a file is a ``ValueError`` that names the file, what was
expected and what was found.
"""

from gpt2lib.weights.huggingface import load_huggingface, save_huggingface
from gpt2lib.weights.llmc import DebugState, load_llmc, read_debug_state, save_llmc
from gpt2lib.weights.model_file import load_model, read_model_metadata, save_model
from gpt2lib.weights.safetensors import TensorFile, write_tensors

__all__ = [
    "DebugState",
    "TensorFile",
    "load_huggingface",
    "load_llmc",
    "load_model",
    "read_debug_state",
    "read_model_metadata",
    "save_huggingface",
    "save_llmc",
    "save_model",
    "write_tensors",
]
