#!/usr/bin/env python3
"""Runs a command and notes when a line with some text appears on its stderr.

Usage: watch.py RESULTS CASE TEXT COMMAND...
"""
import json
import subprocess
import sys
import time

results, case, text, *command = sys.argv[1:]
process = subprocess.Popen(command, stderr=subprocess.PIPE)
is_noted = False
for line in process.stderr:
    now = time.monotonic_ns()
    sys.stderr.buffer.write(line)
    if not is_noted and text.encode() in line:
        is_noted = True
        with open(results, "a") as file:
            file.write(json.dumps({"case": case, "at_ns": now}) + "\n")
sys.exit(process.wait())
