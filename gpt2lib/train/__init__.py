"""Training: the loop, its settings, its log, its checkpoints.

==================  ========================================================================
module              what it knows
==================  ========================================================================
``config``          the settings of a run
``loop``            :class:`Trainer`: batch, loss, backward, clip, step; saving and resuming
``evaluate``        the validation loss
``checkpoint``      everything the next step depends on, in one file
``log``             ``log.jsonl``
``progress``        the bar
``interrupt``       Ctrl-C that waits for the end of a step
==================  ========================================================================
"""

from gpt2lib.train.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from gpt2lib.train.config import TrainConfig
from gpt2lib.train.evaluate import evaluate, windows
from gpt2lib.train.log import read_log
from gpt2lib.train.loop import Trainer, accumulate

__all__ = [
    "Checkpoint",
    "TrainConfig",
    "Trainer",
    "accumulate",
    "evaluate",
    "open_checkpoint",
    "read_log",
    "save_checkpoint",
    "windows",
]
