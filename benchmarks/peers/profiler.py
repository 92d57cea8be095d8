"""What one measured action costs in Lightning's profilers; `trace` is an event of torch.profiler.

Usage: profiler.py RESULTS
"""
import sys
import time

import torch
from lightning.pytorch.profilers import AdvancedProfiler, PassThroughProfiler, SimpleProfiler

from common import Results

EVENTS = 20_000
ACTION = "[Strategy]SingleDeviceStrategy.training_step"


def ns_per_event(profile):
    """`profile(name)` gives the context that measures an action."""
    def repeat(events):
        for _ in range(events):
            with profile(ACTION):
                pass
    repeat(EVENTS // 10)
    start = time.perf_counter_ns()
    repeat(EVENTS)
    return (time.perf_counter_ns() - start) / EVENTS


def main():
    results = Results(sys.argv[1])
    for case, profiler in (("off", PassThroughProfiler()), ("simple", SimpleProfiler()),
                           ("advanced", AdvancedProfiler())):
        results.add(case, ns=ns_per_event(profiler.profile))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        results.add("trace", ns=ns_per_event(torch.profiler.record_function))


if __name__ == "__main__":
    main()
