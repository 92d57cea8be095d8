"""One job on several hosts: started by hand on each of them."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from network import Network, enter_namespaces

enter_namespaces()

from harness import BINARY, ProgramTest

LOCKSTEP = BINARY / "bin" / "lockstep"

# Rank 0 hears from every other rank, where and as whom it was told to.
ROLL_CALL = """
import os, socket
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
    except ConnectionRefusedError:
        pass
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


if __name__ == "__main__":
    unittest.main()
