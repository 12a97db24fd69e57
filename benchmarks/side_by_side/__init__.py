"""What ``benchmarks/peers.py`` is made of: contenders in processes of their own, measured in turns.

===============  ===================================================================================
file             what it does
===============  ===================================================================================
``contender.py`` starts a contender's process, asks it things, lets it sleep while others run
``worker.py``    the other end: a process that is asked to set up, to check, to time
``ours.py``      this library: training steps, generation, a breakdown by operation
``pytorch.py``   PyTorch: the same model in its own modules, eager or compiled
``huggingface``  the generation of ``transformers``
``pico.py``      generation in plain NumPy, the whole text again for each token
``machine.py``   what the machine can do: its sgemm rate, how fast it reads memory
``llmc.py``      the program ``train_gpt2`` of llm.c, fed with files and read by its lines
``startup.py``   how long an import takes, and the first use of the kernels
``plan.py``      which contenders meet, in which order, and what is asked of them
``report.py``    medians, spreads and ratios; the table; the file of results
===============  ===================================================================================
"""
