"""What PyTorch accepts of the mutants that the certifier rejects: through the loader of its pipelining runtime (`compute_comms`,
which validates), and, what passes that, through its simulator of deadlocks.

    PD_TEST_MUTANTS=mutants build/tests/unit/certify_test --filter 'mutants/*'
    python3 tests/golden/torch_mutants.py mutants        # a table; needs torch
"""
import collections
import contextlib
import io
import re
import sys

import torch
from torch.distributed.pipelining import schedules


def refusal(rows, pp, chunks, microbatches):
    """Which of PyTorch's checks refuses it, or None."""
    runtime = object.__new__(schedules._PipelineScheduleRuntime)
    runtime._unshard_lookahead, runtime._max_active_stages, runtime._max_outstanding_sends = "full", 3, None
    runtime._n_microbatches, runtime.pp_group_size, runtime._num_stages, runtime._stages = microbatches, pp, chunks, []
    try:
        actions = {rank: [schedules._Action.from_str(text) for text in row.split(",")] for rank, row in enumerate(rows)}
        runtime._prepare_schedule_with_comms(actions, format="compute_comms")
    except (AssertionError, ValueError, KeyError, RuntimeError):
        return "loader"
    plain = {rank: [a for a in row if "REDUCE_GRAD" not in str(a)] for rank, row in actions.items()}  # its simulator knows no reductions
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            schedules._simulate_comms_compute(plain, lambda stage: runtime.stage_index_to_group_rank[stage], chunks)
    except (AssertionError, ValueError, KeyError, IndexError):  # the last when it prints where it stopped
        return "simulator"
    return None


with open(sys.argv[1]) as file:
    entries = file.read().split("= ")[1:]
table = collections.defaultdict(collections.Counter)
for entry in entries:
    head, *rows = entry.splitlines()
    kind, pp, chunks, microbatches, mutation = re.fullmatch(r"(\S+), pp (\d+), chunks (\d+), microbatches (\d+): (.*)", head).groups()
    table[mutation][refusal(rows, int(pp), int(chunks), int(microbatches))] += 1
print("torch %s\n\n| mutation | of | accepted | refused by the loader | by the simulator |\n|---|---|---|---|---|" % torch.__version__)
total = collections.Counter()
for mutation, counts in table.items():
    print("| %s | %d | %d | %d | %d |" % (mutation, sum(counts.values()), counts[None], counts["loader"], counts["simulator"]))
    if mutation != "none":
        total.update(counts)
print("| all mutants | %d | %d | %d | %d |" % (sum(total.values()), total[None], total["loader"], total["simulator"]))
