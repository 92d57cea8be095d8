"""Ranks with tensors on several hosts: interfaces, slow links, and links that are cut."""
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from network import Network, enter_namespaces

enter_namespaces()

from harness import BINARY, DIGITS, PEERS_PYTHON, SOURCE, ProgramTest

LOCKSTEP = BINARY / "bin" / "lockstep"
FAKE_SSH = pathlib.Path(__file__).resolve().parents[1] / "programs" / "fake_ssh"

# Sums of MEGABYTES, for as long as the file `more` is there.
ALL_REDUCE = """
import datetime, os, pathlib, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
dist.barrier()  # ranks have taken different times to get here
group = dist.new_group(timeout=datetime.timedelta(seconds=8))
more = pathlib.Path("more")
while True:
    mine = torch.ones(int(os.environ["MEGABYTES"]) * 2**18) * (dist.get_rank() + 1)
    dist.all_reduce(mine, group=group)
    pathlib.Path(f"sum_{dist.get_rank()}").write_text(f"{mine.min().item()} {mine.max().item()}")
    stop = torch.tensor(0.0 if more.exists() else 1.0)
    dist.all_reduce(stop, group=group)
    if stop.item() > 0: break
dist.destroy_process_group()
"""


class NetworkFaults(ProgramTest):
    def setUp(self):
        super().setUp()
        self.network = Network(2, self.folder)
        self.addCleanup(self.network.close)
        (self.folder / "hosts").write_text("node-0 slots=1\nnode-1 slots=1\n")
        (self.folder / "all_reduce.py").write_text(ALL_REDUCE)

    def start_job(self, *command, megabytes=1, **variables):
        (self.folder / ".lockstep_env").write_text(f"MEGABYTES={megabytes}\n")
        return self.start(*self.network.on(0, LOCKSTEP, "run", "--hostfile", "hosts", "--ssh", FAKE_SSH, "--shutdown-timeout", 2, *command),
                          FAKE_SSH_NETWORK="yes", **variables)

    def sums(self, **options):
        process = self.start_job("--no-python", PEERS_PYTHON, "all_reduce.py", **options)
        result = self.finish(process, 60)
        self.assertEqual(result.code, 0, result)
        self.assertEqual([(self.folder / f"sum_{rank}").read_text() for rank in range(2)], ["3.0 3.0", "3.0 3.0"])

    def test_gloo_takes_the_interface_that_it_is_told(self):
        self.sums(megabytes=8, GLOO_SOCKET_IFNAME="eth1")
        sent = [self.network.sent_bytes(0, interface) for interface in ("eth0", "eth1")]
        self.assertLess(sent[0], 1e6)
        self.assertGreater(sent[1], 8e6)

    def test_a_slow_link_is_only_slow(self):
        self.network.slow_down(1, "8mbit")
        begin = time.monotonic()
        self.sums(megabytes=3, GLOO_SOCKET_IFNAME="eth0")
        self.assertGreater(time.monotonic() - begin, 2.9)

    def test_after_a_cut_link_all_end_in_time_and_a_host_is_named(self):
        (self.folder / "more").touch()
        process = self.start_job("--no-python", PEERS_PYTHON, "all_reduce.py", GLOO_SOCKET_IFNAME="eth0")
        self.wait_for("sum_0", "sum_1")
        begin = time.monotonic()
        self.network.cut(1)
        result = self.finish(process, 60)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertEqual(result.code, 1, result)
        self.assertRegex(result.err, r"\nlockstep: host node-([01]): rank \1 \(node \1, pid \d+\) exited with code 1")

    def start_training(self, **variables):
        return self.start_job(DIGITS, "--trainer.strategy", "ddp", "--trainer.max_epochs", 100000, "--data.file", SOURCE / "data" / "digits.csv.gz",
                              "--run_dir", self.folder / "run", **variables)

    def test_after_a_cut_link_the_lost_rank_is_named(self):
        process = self.start_training(GLOO_SOCKET_IFNAME="eth0")
        self.wait_for("run/metrics.csv")
        begin = time.monotonic()
        self.network.cut(1)
        result = self.finish(process, 60)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertEqual(result.code, 1, result)
        self.assertRegex(result.err, r"\nlockstep: host node-([01]): rank \1 .*: .*rank [01] is gone")


if __name__ == "__main__":
    unittest.main()
