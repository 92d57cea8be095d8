"""One job on several hosts: started by hand on each of them, or from one of them over a stand-in for ssh."""
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from network import Network, enter_namespaces
from ssh_daemon import SshDaemons

enter_namespaces()

from harness import BINARY, ProgramTest

LOCKSTEP = BINARY / "bin" / "lockstep"
FAKE_SSH = pathlib.Path(__file__).resolve().parents[1] / "programs" / "fake_ssh"

# Rank 0 hears from every other rank, where and as whom it was told to.
ROLL_CALL = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(place)
    heard = sorted(server.accept()[0].makefile().read() for _ in range(size - 1))
    print("heard", *heard, flush=True)
while rank:
    try:
        with socket.create_connection(place, 5) as link:
            link.sendall(f"{rank}@{link.getsockname()[0]}".encode())
        break
    except OSError:
        time.sleep(0.02)
"""


class MultiHost(ProgramTest):
    def network(self, hosts):
        network = Network(hosts, self.folder)
        self.addCleanup(network.close)
        return network

    def program(self, text):
        path = self.folder / "program.py"
        path.write_text(text)
        return path

    def start_node(self, network, node, *command, **variables):
        return self.start(*network.on(node, LOCKSTEP, "run", "--nnodes", len(network.names), "--node-rank", node, *command), **variables)

    def test_nodes_started_by_hand_meet_at_an_interface(self):
        for hosts in (2, 4):
            with self.subTest(hosts=hosts):
                network = Network(hosts, self.folder)
                flags = ["--nproc-per-node", 2, "--master-addr", "node-0", self.program(ROLL_CALL)]
                nodes = [self.start_node(network, node, *flags) for node in reversed(range(hosts))]
                results = [self.finish(node, 30) for node in nodes]
                network.close()
                self.assertEqual([result.code for result in results], [0] * hosts, "\n".join(map(str, results)))
                others = [f"{rank}@{network.address(rank // 2)}" for rank in range(1, 2 * hosts)]
                self.assertEqual(results[-1].out, f"heard {' '.join(others)}\n")

    def bytes_of_sums(self, network, mebibytes, calls, **variables):
        """What a host of two ranks sends for that, where the ranks of each host share memory."""
        before = network.sent_bytes(0, "eth0")
        command = ["--nproc-per-node", 2, "--master-addr", "node-0", BINARY / "bin" / "hosts_case", mebibytes, calls]
        nodes = [self.start_node(network, node, *command, LOCKSTEP_TEST_HOST=str(node), **variables) for node in (1, 0)]
        results = [self.finish(node, 60) for node in nodes]
        self.assertEqual([result.code for result in results], [0, 0], "\n".join(map(str, results)))
        return network.sent_bytes(0, "eth0") - before

    def test_sums_pass_between_hosts_once_for_each_host(self):
        network = self.network(2)
        mebibytes, calls = 16, 4
        all_sums = mebibytes * calls << 20
        once = self.bytes_of_sums(network, mebibytes, calls)
        for_each_rank = self.bytes_of_sums(network, mebibytes, calls, LOCKSTEP_SHARED_MEMORY="0")
        print(f"a host of two ranks sends {once / all_sums:.2f} of what is summed, and {for_each_rank / all_sums:.2f} without shared memory", flush=True)
        self.assertLess(once, 1.1 * all_sums)
        self.assertGreater(once, all_sums)
        self.assertGreater(for_each_rank, 1.9 * all_sums)

    def start_job(self, network, *command, slots=2, **variables):
        (self.folder / "hosts").write_text("".join(f"{name} slots={slots}\n" for name in network.names))
        return self.start(*network.on(0, LOCKSTEP, "run", "--hostfile", "hosts", "--ssh", FAKE_SSH, *command),
                          FAKE_SSH_NETWORK="yes", **variables)

    def test_a_host_file_starts_all(self):
        for hosts in (2, 4):
            with self.subTest(hosts=hosts):
                network = Network(hosts, self.folder)
                result = self.finish(self.start_job(network, self.program(ROLL_CALL)), 30)
                network.close()
                others = [f"{rank}@{network.address(rank // 2)}" for rank in range(1, 2 * hosts)]
                self.assertEqual((result.code, result.out), (0, f"node-0: heard {' '.join(others)}\n"), result)

    def test_a_failure_on_one_host_starts_the_ranks_of_all_anew(self):
        network = self.network(2)
        fails_at_first = 'import os, sys\nif os.environ["RANK"] == "3" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": sys.exit(7)\n'
        result = self.finish(self.start_job(network, "--max-restarts", 1, self.program(fails_at_first + ROLL_CALL)), 40)
        others = [f"{rank}@{network.address(rank // 2)}" for rank in range(1, 4)]
        self.assertEqual((result.code, result.out), (0, f"node-0: heard {' '.join(others)}\n"), result)
        self.assertEqual(result.err.count("restart 1 of 1"), 1, result)
        self.assertIn("rank 3 (node 1, pid", result.err)

    # Ranks that tell who they are, and stay.
    STAY = """
import os, pathlib, time
rank = os.environ["RANK"]
written = pathlib.Path(f"written_{rank}")
written.write_text(str(os.getpid()))
written.rename(f"pid_{rank}")
time.sleep(60)
"""

    def test_a_failure_on_one_host_ends_all(self):
        network = self.network(4)
        process = self.start_job(network, self.program(self.STAY), slots=1)
        self.wait_for("pid_0", "pid_1", "pid_2", "pid_3")
        begin = time.monotonic()
        subprocess.run(["kill", "-9", (self.folder / "pid_2").read_text()], check=True)
        result = self.finish(process, 20)
        self.assertLess(time.monotonic() - begin, 15)
        self.assert_refused(result, 137, "lockstep: host node-2: rank 2 (node 2, pid", "killed by SIGKILL")
        self.assert_ended(["pid_0", "pid_1", "pid_3"])

    def test_a_killed_start_leaves_nobody_on_any_host(self):
        network = self.network(2)
        process = self.start_job(network, self.program(self.STAY))
        self.wait_for("pid_0", "pid_1", "pid_2", "pid_3")
        process.send_signal(signal.SIGKILL)
        self.finish(process)
        self.assert_ended(["pid_0", "pid_1", "pid_2", "pid_3"])

    def start_over_ssh(self, network, *command, slots=1, flags=(), **variables):
        daemons = SshDaemons(network, self.folder)
        self.addCleanup(daemons.close)
        (self.folder / "hosts").write_text("".join(f"{name} slots={slots}\n" for name in network.names))
        return self.start(*network.on(0, LOCKSTEP, "run", "--hostfile", "hosts", *daemons.flags, *flags, *command), **variables)

    def test_over_the_real_ssh(self):
        network = self.network(2)
        words = ["a b", "'", '"', "$HOME", "a\nb", "\\", "", "!", "*"]
        program = self.program(ROLL_CALL + "import sys\nopen(f'words_{rank}', 'w').write('\\0'.join(sys.argv[1:]))\n")
        result = self.finish(self.start_over_ssh(network, program, *words, slots=2), 30)
        self.assertEqual((result.code, result.out), (0, "node-0: heard 1@10.77.0.1 2@10.77.0.2 3@10.77.0.2\n"), result)
        self.assertEqual((self.folder / "words_3").read_text().split("\0"), words)

    def test_over_the_real_ssh_a_failure_is_named_and_ends_all(self):
        network = self.network(2)
        process = self.start_over_ssh(network, self.program(self.STAY))
        self.wait_for("pid_0", "pid_1")
        subprocess.run(["kill", "-9", (self.folder / "pid_1").read_text()], check=True)
        result = self.finish(process, 20)
        self.assert_refused(result, 137, "lockstep: host node-1: rank 1 (node 1, pid", "killed by SIGKILL")
        self.assert_ended(["pid_0"])

    def test_over_the_real_ssh_a_killed_start_leaves_nobody(self):
        network = self.network(2)
        process = self.start_over_ssh(network, self.program(self.STAY))
        self.wait_for("pid_0", "pid_1")
        process.send_signal(signal.SIGKILL)
        self.finish(process)
        self.assert_ended(["pid_0", "pid_1"])

    def test_over_the_real_ssh_a_host_without_sshd_is_named(self):
        network = self.network(2)
        (self.folder / "hosts").write_text("node-0 slots=1\nnode-1 slots=1\n")
        result = self.finish(self.start(*network.on(0, LOCKSTEP, "run", "--hostfile", "hosts", "true")), 30)
        self.assert_refused(result, 1, "lockstep: host node-", "cannot be reached", "Connection refused")


if __name__ == "__main__":
    unittest.main()
