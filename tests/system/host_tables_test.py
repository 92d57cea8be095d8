"""What a host calls itself and the others, in /etc/hosts: ranks meet wherever the main address leads to."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from network import Network, enter_namespaces, ip

enter_namespaces()

from harness import BINARY, SOURCE, ProgramTest

LOCKSTEP = BINARY / "bin" / "lockstep"
CASE = BINARY / "bin" / "entry_case"
LOCAL = "127.0.0.1 localhost\n"


class HostTables(ProgramTest):
    def setUp(self):
        super().setUp()
        self.network = Network(2, self.folder)
        self.addCleanup(self.network.close)

    def with_table(self, node, table, *command):
        """`command` on that host, with a name and a table of its own."""
        path = self.folder / f"table_{node}"
        path.write_text(table)
        prepare = f'hostname node-{node} && mount --bind "{path}" /etc/hosts && exec "$@"'
        return self.network.on(node, "unshare", "--mount", "--uts", "sh", "-c", prepare, "sh", *command)

    def use_ipv6(self, alone):
        for node, name in enumerate(self.network.names):
            ip("-n", name, "addr", "add", f"fd00:77::{node + 1}/64", "dev", "eth0", "nodad")
            if alone:
                ip("-n", name, "addr", "del", f"{self.network.address(node)}/24", "dev", "eth0")

    def assert_join(self, tables, main_address):
        flags = ["run", "--nnodes", 2, "--nproc-per-node", 2, "--master-addr", main_address, "--master-port", 29700]
        nodes = [self.start(*self.with_table(node, tables[node], LOCKSTEP, *flags, "--node-rank", node, CASE, "run_rank")) for node in range(2)]
        for result in [self.finish(node, 40) for node in nodes]:
            self.assertEqual((result.code, result.out.count("world of 4")), (0, 2), result)

    def debian(self, node, others=""):
        return f"{LOCAL}127.0.1.1 node-{node}\n{others}"

    def test_a_host_whose_name_is_the_loopback(self):
        self.assert_join([self.debian(0), self.debian(1)], self.network.address(0))

    def test_the_main_host_is_called_by_a_name_that_is_its_own_loopback(self):
        self.assert_join([self.debian(0), self.debian(1, f"{self.network.address(0)} node-0\n")], "node-0")

    def test_a_host_without_an_entry_of_its_own(self):
        self.assert_join([LOCAL, LOCAL], self.network.address(0))

    def test_addresses_of_ipv6(self):
        self.use_ipv6(alone=True)
        for main_address in ("fd00:77::1", "[fd00:77::1]"):
            with self.subTest(main_address):
                self.assert_join([LOCAL, LOCAL], main_address)

    def test_a_name_with_addresses_of_both_kinds(self):
        self.use_ipv6(alone=False)
        names = "".join(f"{address} node-0\n" for address in ("fd00:77::1", self.network.address(0)))
        self.assert_join([LOCAL + names, LOCAL + names], "node-0")

    def test_ranks_started_by_hand(self):
        for tables, main_address in (([LOCAL, LOCAL], self.network.address(0)),
                                     ([self.debian(0), self.debian(1, f"{self.network.address(0)} node-0\n")], "node-0")):
            with self.subTest(main_address):
                place = dict(MASTER_ADDR=main_address, MASTER_PORT="29701", WORLD_SIZE="2")
                ranks = [self.start(*self.with_table(rank, tables[rank], CASE, "trainer"), RANK=str(rank), **place) for rank in range(2)]
                for result in [self.finish(rank, 40) for rank in ranks]:
                    self.assertEqual((result.code, result.out.count("world of 2")), (0, 1), result)

    def test_a_machine_whose_loopback_has_no_address_of_ipv4(self):
        ip("-n", "node-0", "addr", "del", "127.0.0.1/8", "dev", "lo")
        for command in ((CASE, "run", "never", 2), (CASE, "spawn", "never", 2), (LOCKSTEP, "run", "--nproc-per-node", 2, CASE, "run_rank")):
            with self.subTest(command[1]):
                result = self.finish(self.start(*self.network.on(0, *command)), 40)
                self.assertEqual((result.code, result.out.count("world of 2")), (0, 2), result)

    def assert_doctor_says(self, code, check, state, *words, command):
        result = self.finish(self.start(*command, LOCKSTEP, "doctor", "--json", *(["--no-self-test"] if code == 0 else [])), 120)
        self.assertEqual((result.code, result.err), (code, ""), result)
        said = "\n".join(each["text"] for each in json.loads(result.out)["findings"] if (each["check"], each["state"]) == (check, state))
        for word in words:
            self.assertIn(word, said)

    def test_the_doctor_tells_what_a_host_is_called(self):
        for table, state, text in ((self.debian(0), "note", "node-0 is 127.0.1.1, the loopback"), (LOCAL, "warning", "host name node-0 cannot be resolved"),
                                   (f"{LOCAL}{self.network.address(0)} node-0\n", "ok", f"node-0 is {self.network.address(0)}")):
            with self.subTest(text):
                self.assert_doctor_says(0, "host names", state, text, command=self.with_table(0, table))

    def test_the_doctor_tells_that_the_loopback_is_down(self):
        ip("-n", "node-0", "link", "set", "lo", "down")
        ip("-n", "node-0", "addr", "flush", "dev", "lo")
        self.assert_doctor_says(1, "interfaces", "error", "loopback interface is down", command=self.network.on(0))
        self.assert_doctor_says(1, "self-test", "error", "lo may be down", command=self.network.on(0))

    def test_a_machine_whose_loopback_is_down_is_told_so(self):
        ip("-n", "node-0", "link", "set", "lo", "down")
        ip("-n", "node-0", "addr", "flush", "dev", "lo")
        for command in ((CASE, "run", "never", 2), (LOCKSTEP, "run", "--nproc-per-node", 2, CASE, "run_rank")):
            with self.subTest(command[1]):
                self.assert_refused(self.finish(self.start(*self.network.on(0, *command)), 20), 1, "127.0.0.1", "lo may be down")
                self.assert_refused(self.finish(self.start("unshare", "-n", *command), 20), 1, "127.0.0.1", "lo may be down")

    def test_an_interface_that_does_not_lead_to_the_others_is_named(self):
        data = ("fit", "--data.file", SOURCE / "data" / "digits.csv.gz", "--trainer.num_nodes", 2, "--trainer.strategy", "ddp",
                "--trainer.strategy.timeout", "5s", "--trainer.max_epochs", 1, "--run_dir")
        flags = ["run", "--nnodes", 2, "--master-addr", self.network.address(0), "--master-port", 29700]
        nodes = [self.start(*self.network.on(node, LOCKSTEP, *flags, "--node-rank", node, BINARY / "bin" / "digits", *data, f"run_{node}"),
                            GLOO_SOCKET_IFNAME="lo") for node in range(2)]
        for result in [self.finish(node, 40) for node in nodes]:
            self.assertNotEqual(result.code, 0, result)
            self.assertIn("GLOO_SOCKET_IFNAME", result.err)
            self.assertIn("127.0.0.1 (lo)", result.err)


if __name__ == "__main__":
    unittest.main()
