"""Run another script in a process that starts like those of our commands.

    python benchmarks/as_command.py SCRIPT [ARGUMENTS]

The settings made before libraries are loaded determine how much memory they keep.
"""

from __future__ import annotations

import runpy
import sys

from forewarn.pipelines.runtime.allocator_tuning import tune_process_memory

if __name__ == "__main__":
    tune_process_memory()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
