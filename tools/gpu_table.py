#!/usr/bin/env python3
"""Prints the goals of docs/performance.md as a table, from the lines of JSON that tools/gpu_check.sh has kept: those of gpu_case
({"check", ...}), of benchmarks/peers/gpu_goals.py ({"peer", ...}) and of benchmarks/peers/gpt2.py (both). What has no line was not run. Usage: gpu_table.py FILE..."""
import json
import sys


def read(files):
    checks, peers = {}, {}
    for name in files:
        for line in open(name):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            checks.update({row["check"]: row} if "check" in row else {})
            peers.update({row["peer"]: row} if "peer" in row else {})
    return checks, peers


def ratio(a, b):
    return a / b if a is not None and b else None


def rows(checks, peers):
    """What, beside what, goal, figure (None: not run), whether the goal is met."""
    def own(name, key):
        return checks.get(name, {}).get(key)

    def peer(name, key):
        return peers.get(name, {}).get(key)

    for name in ("AdamW, 124 million parameters", "sum_rows of 8 rows", "copy-in of 96 gradients that is added", "quantize to 8 bits",
                 "dequantize of 8 bits", "cross_entropy of 50,304 classes and its gradient"):
        share = own("speed of " + name, "of_a_copy")
        yield name, "bytes per second of a copy", "85 %", share, share is not None and share >= 0.85, "{:.0%}"
    graph, small = own("step of a small network as a graph", "us"), peer("step of a small network", "us")
    captured = own("step of a small network as a graph", "ok")
    times = ratio(small, graph) if captured else None
    yield "step of a small network, as a graph", "PyTorch eager", "5x", times, times is not None and times >= 5, "{:.1f}x"
    cpu = own("step of a small network as a graph", "us_of_cpu") if captured else None
    yield "the host's time for it", "", "30 us", cpu, cpu is not None and cpu <= 30, "{:.0f} us"
    over = own("sharded engine of a rank that is alone", "over_a_plain_step")
    yield "sharded engine, one rank", "own plain step", "2 %", over, over is not None and over <= 0.02, "{:+.1%}"
    for check, kernels in (("GPT-2", ""), ("GPT-2 by our kernels", ", by our kernels")):
        tokens, parameters = own(check, "tokens_per_second"), own(check, "parameters")
        what = f"GPT-2 of {(parameters or 124.4e6) / 1e6:.4g} million parameters, tokens/s" + kernels
        for name in ("eager", "torch.compile"):
            times = ratio(tokens, peer(f"GPT-2, {name}", "tokens_per_second"))
            yield what, name, "1x", times, times is not None and times >= 1, "{:.2f}x"
        flops = tokens * own(check, "flops_per_token") if tokens is not None else None
        share = ratio(flops, peer("products of matrices in bfloat16", "flops_per_second"))
        yield "the same, operations", "products of matrices", "60 %", share, share is not None and share >= 0.6, "{:.0%}"
    first, largest, noise = (own("fine-tune of GPT-2", key) for key in ("first_step", "largest_difference", "noise"))
    yield "fine-tune of GPT-2, loss of the first step", "PyTorch eager", "0.001", first, first is not None and first <= 1e-3, "{:.1e}"
    limit = "twice what bfloat16 changes there" + (f" ({noise:.1e})" if noise is not None else "")
    yield "the same, all steps", "PyTorch eager", limit, largest, largest is not None and largest <= noise, "{:.1e}"
    waits = own("waits of a steady step", "per_step")
    lightning = peer("waits of Lightning's Trainer", "per_step")
    beside = "Lightning's" + (f" ({lightning:g})" if lightning is not None else "")
    yield "waits of a steady step for the GPU", beside, "0", waits, waits == 0, "{:g}"


def main(files):
    print("| What | Beside | Goal | Figure | |\n| --- | --- | --- | --- | --- |")
    for what, beside, goal, figure, is_met, form in rows(*read(files)):
        text, verdict = ("not run", "") if figure is None else (form.format(figure), "met" if is_met else "missed")
        print(f"| {what} | {beside} | {goal} | {text} | {verdict} |")


if __name__ == "__main__":
    main(sys.argv[1:])
