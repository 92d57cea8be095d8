#!/usr/bin/env python3
"""A scheduler in its smallest form: pool_run.py TASKS PROGRAM ARGUMENTS... starts the program once for each task.

It tells each task its place by POOL_JOB, a folder with a file for each task that runs, POOL_TASKS, POOL_TASK and POOL_PORT. A task
gives its place back by removing its file; which ones have not is said at the end."""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

tasks = int(sys.argv[1])
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]

with tempfile.TemporaryDirectory() as job:
    started = []
    for task in range(tasks):
        pathlib.Path(job, f"task_{task}").touch()
        place = {"POOL_JOB": job, "POOL_TASKS": str(tasks), "POOL_TASK": str(task), "POOL_PORT": str(port)}
        started.append(subprocess.Popen(sys.argv[2:], env=os.environ | place))
    codes = [process.wait() for process in started]
    left = sorted(path.name for path in pathlib.Path(job).iterdir())
print(f"pool: places not given back: {', '.join(left) or 'none'}")
sys.exit(max(abs(code) for code in codes))
