"""A stand-in for ``gpt2lib.perf._worker``: it answers at once, with times that are made up.

The number of threads says how it behaves: 1 to 4 are well, 5 dies by a signal in the middle, 6
says nothing, 7 has another loss, 8 gives a reason, 9 ends with words on stderr, 10 takes its time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time


def say(**answer):
    print(json.dumps(answer), flush=True)


def iteration(number, threads):
    parts = {"forward_ms": 3.0 / threads, "backward_ms": 6.0 / threads, "update_ms": 1.0 + number}
    return {
        "loss": 5.0 - 0.1 * number + (1e-15 * 64 if threads == 7 and number else 0.0),
        **parts,
        "total_ms": sum(parts.values()),
        "minor_faults": 100 if number == 0 else 0,
        "major_faults": 0,
        "voluntary_switches": 0,
        "involuntary_switches": 1,
        "mhz": None,
    }


def run(request):
    threads = request["threads"]
    described = {"name": request["runtime"], "threads": threads, "library": "", "version": ""}
    say(ready=described)
    say(iterations=[iteration(0, threads)])
    if threads == 5:
        os.kill(os.getpid(), signal.SIGSEGV)
    if threads == 6:
        time.sleep(60)
    if threads == 8:
        say(error="ValueError: no room in /some/where/else, sorry")
        sys.exit(1)
    if threads == 9:
        print("something else\nout of luck at /some/where/else", file=sys.stderr)
        sys.exit(7)
    if threads == 10:
        time.sleep(0.3)
    say(iterations=[iteration(i, threads) for i in range(1, request["iterations"])])
    row = {"operation": "zero", "shape": "", "calls": 1, "ms": 0.5, "flops": 0, "bytes": 8}
    say(operations=[row])
    say(done=True, peak_bytes=None, compiled=0)


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.loads(sys.argv[1])
    if request["do"] == os.environ.get("STAND_IN_FAILS"):
        sys.exit(print("no luck", file=sys.stderr) or 3)
    if request["do"] == "compile":
        say(done=True, compiled=0, seconds=0.0)
    elif request["do"] == "ceilings":
        rate = 100.0 * request["threads"] + float(os.environ.get("STAND_IN_EXTRA", "0"))
        found = {
            "threads": request["threads"],
            "sgemm_gflops": rate,
            "read_gbs": 5000 - rate,
            "copy_gbs": 8.0,
            "sgemm_size": request["size"],
            "sgemm_by": "blas",
            "memory_bytes": 1 << 20,
        }
        say(done=True, ceilings=found)
    else:
        run(request)


if __name__ == "__main__":
    main()
