"""A C++ rank and a Python rank of torch.distributed form one group."""
import sys
import unittest

from harness import BINARY, PEERS_PYTHON, ProgramTest, free_port

PYTHON_RANK = """
import sys, datetime, torch, torch.distributed as dist
dist.init_process_group(sys.argv[1], timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
own = lambda: torch.full((5,), rank + 1.0)
def require_equal(what, got, expected):
    if not torch.equal(got, expected): raise SystemExit(f"{what}: {got}, expected {expected}")
total = own()
dist.all_reduce(total)
require_equal("all_reduce", total, torch.full((5,), 3.0))
largest = torch.full((2,), rank + 1)
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
require_equal("all_reduce max", largest, torch.full((2,), 2))
bits = torch.full((2,), rank + 1)
dist.all_reduce(bits, op=dist.ReduceOp.BOR)
require_equal("all_reduce bor", bits, torch.full((2,), 3))
for root in range(2):
    sent = own()
    dist.broadcast(sent, root)
    require_equal("broadcast", sent, torch.full((5,), root + 1.0))
parts = [torch.empty(5), torch.empty(5)]
dist.all_gather(parts, own())
require_equal("all_gather", torch.stack(parts), torch.tensor([[1.0] * 5, [2.0] * 5]))
part = torch.empty(5)
dist.reduce_scatter_tensor(part, torch.arange(10.0))
require_equal("reduce_scatter", part, 2 * (torch.arange(5.0) + 5 * rank))
dist.barrier()
print(f"rank {rank} met C++", flush=True)
dist.destroy_process_group()
"""


class Peers(ProgramTest):
    def meet(self, python_rank, backend):
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        python = self.start(PEERS_PYTHON, "-c", PYTHON_RANK, backend, RANK=str(python_rank), **place)
        cpp = self.start(BINARY / "bin" / "peer_rank", RANK=str(1 - python_rank), **place)
        results = [self.finish(python), self.finish(cpp)]
        for result in results:
            self.assertEqual(result.code, 0, f"{results[0]}\n{results[1]}")
        self.assertIn(f"rank {python_rank} met C++", results[0].out)
        self.assertIn(f"rank {1 - python_rank} met Python", results[1].out)

    def test_python_is_rank_0(self):
        self.meet(0, "gloo")

    def test_cpp_is_rank_0(self):
        self.meet(1, "gloo")

    def test_python_asks_for_the_cpu_alone(self):
        self.meet(0, "cpu:gloo")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
