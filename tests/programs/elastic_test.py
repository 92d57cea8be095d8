"""`lockstep run` on several nodes, which are launchers on this machine: they meet, fail, leave, come and start anew together."""
import json
import os
import pathlib
import signal
import socket
import time
import unittest

from harness import BINARY, DIGITS, PEERS_PYTHON, SOURCE, ProgramTest, free_port

LOCKSTEP = BINARY / "bin" / "lockstep"
QUICK = "last_call_timeout=1,join_timeout=20,keep_alive_interval=0.2,keep_alive_max_attempt=25"
TOGETHER = f"{QUICK},first_call_timeout=20"  # the first round waits for all who may come


class Elastic(ProgramTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.nodes = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for node in self.nodes:
            if node.poll() is None:
                node.kill()
            if not node.stdout.closed:
                node.communicate()

    def program(self, text):
        """Each start of a rank leaves a file start_<round>_<rank> that says what the rank was told."""
        path = self.folder / "program"
        path.write_text("#!/bin/sh\nROUND=${LOCKSTEP_STORE_SCOPE#round-}\n"
                        'echo "$WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR:$MASTER_PORT $PPID $$" > tmp_$$\n'
                        "mv tmp_$$ start_${ROUND}_$RANK\n" + text)
        path.chmod(0o755)
        return path

    def node(self, *flags, conf=QUICK, **variables):
        process = self.start(LOCKSTEP, "run", "--rdzv-conf", conf, *flags, **variables)
        self.nodes.append(process)
        return process

    def elastic(self, nodes, program, *flags, **more):
        return self.node("--nnodes", nodes, "--rdzv-endpoint", f"127.0.0.1:{self.port}", *flags, program, **more)

    def static(self, rank, program, *flags, nodes=2, **more):
        return self.node("--nnodes", nodes, "--node-rank", rank, "--master-port", self.port, *flags, program, **more)

    def told(self, round_number, rank, deadline_s=30):
        """What that rank was told, once it has started."""
        path = self.folder / f"start_{round_number}_{rank}"
        self.wait_until(path.exists, f"{path.name} did not come", deadline_s)
        names = ("world", "node", "nodes", "restarts", "master", "launcher", "pid")
        return dict(zip(names, path.read_text().split()))

    def wait_until(self, condition, text, deadline_s=30):
        deadline = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > deadline:
                ended = [self.finish(node) for node in self.nodes if node.poll() is not None]
                self.fail(text + "\n" + "\n".join(map(str, ended)))
            time.sleep(0.01)

    def results(self, *nodes):
        return [self.finish(node) for node in nodes]

    def assert_codes(self, code, results):
        for result in results:
            self.assertEqual(result.code, code, "\n".join(map(str, results)))

    UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done\n"

    def go(self):
        (self.folder / "go").touch()

    def test_ranks_of_several_nodes(self):
        program = self.program("")
        results = self.results(*[self.static(rank, program, "--nproc-per-node", 2) for rank in (1, 0)])
        self.assert_codes(0, results)
        told = [self.told(0, rank) for rank in range(4)]
        self.assertEqual([(each["world"], each["node"], each["nodes"]) for each in told],
                         [("4", "0", "2"), ("4", "0", "2"), ("4", "1", "2"), ("4", "1", "2")])
        self.assertEqual(len({each["master"] for each in told}), 1)

    def test_nodes_may_have_different_numbers_of_ranks(self):
        program = self.program("")
        self.assert_codes(0, self.results(self.static(0, program), self.static(1, program, "--nproc-per-node", 2)))
        self.assertEqual([self.told(0, rank)["world"] for rank in range(3)], ["3"] * 3)
        self.assertEqual([self.told(0, rank)["node"] for rank in range(3)], ["0", "1", "1"])

    def test_ranks_find_their_place_among_those_of_their_role(self):
        program = self.program('echo "$ROLE_NAME $ROLE_RANK $ROLE_WORLD_SIZE" > role_$RANK')
        self.assert_codes(0, self.results(self.static(0, program, "--role", "actor"),
                                          self.static(1, program, "--role", "learner", "--nproc-per-node", 2)))
        self.assertEqual([(self.folder / f"role_{rank}").read_text() for rank in range(3)],
                         ["actor 0 1\n", "learner 0 2\n", "learner 1 2\n"])

    def test_nodes_of_different_sizes_train_together(self):
        flags = ("--trainer.strategy", "ddp", "--trainer.max_epochs", 1, "--data.file", SOURCE / "data" / "digits.csv.gz",
                 "--run_dir", self.folder / "run", "--seed_everything", 1)
        place = ("--nnodes", 2, "--master-port", self.port)
        results = self.results(*[self.node(*place, "--node-rank", rank, "--nproc-per-node", rank + 1, DIGITS, *flags)
                                 for rank in (0, 1)])
        self.assert_codes(0, results)
        self.assertIn('"world_size": 3', (self.folder / "run" / "summary.json").read_text())

    def test_a_signal_while_ranks_stop_for_a_restart_is_heeded(self):
        program = self.program('if [ $RANK = 1 ]; then while [ ! -e ready ]; do sleep 0.02; done; exit 7; fi\n'
                               'trap "touch told; sleep 1; touch saved; exit 0" TERM; touch ready; while :; do sleep 0.02; done')
        first, second = (self.static(rank, program, "--max-restarts", 3) for rank in (0, 1))
        self.wait_until((self.folder / "told").exists, "rank 0 was not told to stop")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(first, 20).code, 143)
        self.assertTrue((self.folder / "saved").exists())
        self.finish(second, 30)

    def test_a_launcher_that_waits_ends_with_its_first_process(self):
        first = self.static(0, self.program(""))
        self.wait_until(self.is_listening, "nobody hosts")
        first.kill()
        self.wait_until(lambda: not self.is_listening(), "the port is still taken", deadline_s=5)

    def test_other_signals_end_no_launcher_that_waits(self):
        first = self.static(0, self.program(""))
        self.wait_until(self.is_listening, "nobody hosts")
        time.sleep(0.3)  # it waits for node 1
        first.send_signal(signal.SIGUSR1)
        self.assert_codes(0, self.results(first, self.static(1, self.program(""))))

    def test_python_ranks_of_two_nodes_form_a_process_group(self):
        program = self.folder / "all_reduce.py"
        program.write_text("import torch, torch.distributed as dist\n"
                           "dist.init_process_group('gloo')\n"
                           "mine = torch.ones(1) * (dist.get_rank() + 1)\n"
                           "dist.all_reduce(mine)\n"
                           "open(f'sum_{dist.get_rank()}', 'w').write(str(mine.item()))\n"
                           "dist.destroy_process_group()\n")
        path = f"{PEERS_PYTHON.parent}:{os.environ['PATH']}"
        self.assert_codes(0, self.results(*[self.elastic("2", program, "--rdzv-backend", "c10d", PATH=path) for _ in range(2)]))
        self.assertEqual([(self.folder / f"sum_{rank}").read_text() for rank in range(2)], ["3.0", "3.0"])

    def test_a_failed_rank_makes_all_nodes_start_anew_and_is_named_on_all(self):
        program = self.program('[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && { echo "last words" >&2; exit 7; }\n'
                               "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60")
        for launch in (lambda rank: self.static(rank, program, "--max-restarts", 1),
                       lambda rank: self.elastic("1:2", program, "--max-restarts", 1, conf=TOGETHER)):
            with self.subTest(launch=launch):
                for path in self.folder.glob("start_*"):
                    path.unlink()
                results = self.results(launch(0), launch(1))
                self.assert_codes(0, results)
                for result in results:
                    self.assertIn("rank 1 (node 1, pid", result.err)
                    self.assertIn("exited with code 7", result.err)
                    self.assertIn("on host " + socket.gethostname(), result.err)
                    self.assertIn("restart 1 of 1", result.err)
                self.assertEqual(sum("stderr were\nlast words" in result.err for result in results), 1)
                self.assertEqual([self.told(1, rank)["restarts"] for rank in range(2)], ["1", "1"])

    def test_the_last_failure_ends_all_nodes_with_its_code(self):
        program = self.program("[ $RANK = 0 ] && exit 9\nsleep 60")
        begin = time.monotonic()
        results = self.results(self.static(0, program), self.static(1, program))
        self.assertLess(time.monotonic() - begin, 10)
        self.assert_codes(9, results)
        for result in results:
            self.assertIn("rank 0 (node 0, pid", result.err)

    def test_a_rank_killed_on_one_node(self):
        program = self.program("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60")
        nodes = [self.elastic("2", program, "--rdzv-backend", "c10d", "--max-restarts", 1) for _ in range(2)]
        self.told(0, 0)
        os.kill(int(self.told(0, 1)["pid"]), signal.SIGKILL)
        results = self.results(*nodes)
        self.assert_codes(0, results)
        for result in results:
            self.assertIn("killed by SIGKILL", result.err)

    def test_survivors_go_on_without_a_killed_node_and_no_restart_is_counted(self):
        program = self.program(self.UNTIL_GO)
        host = self.elastic("1:2", program, conf=TOGETHER)
        guest = self.elastic("1:2", program, conf=TOGETHER)
        ranks = {self.told(0, rank)["launcher"]: rank for rank in range(2)}
        self.assertEqual(len(ranks), 2)
        guest.kill()
        told = self.told(1, 0)
        self.assertEqual((told["world"], told["restarts"]), ("1", "0"))
        self.go()
        result = self.finish(host)
        self.assertEqual(result.code, 0, result)
        self.assertIn("is lost", result.err)

    def test_a_silent_node_is_lost(self):
        program = self.program(self.UNTIL_GO)
        host = self.elastic("1:2", program, conf=TOGETHER)
        self.wait_until(lambda: self.is_listening(), "nobody hosts")
        guest = self.elastic("1:2", program, conf=TOGETHER)
        supervisor = int(self.told(0, 1)["launcher"])
        os.kill(supervisor, signal.SIGSTOP)
        self.addCleanup(self.wake, supervisor)
        self.assertEqual(self.told(1, 0)["world"], "1")
        self.go()
        self.assertEqual(self.finish(host).code, 0)
        self.wake(supervisor)
        self.finish(guest)

    def test_a_node_that_comes_joins_the_next_round(self):
        program = self.program("[ $WORLD_SIZE = 2 ] || sleep 60")
        first = self.elastic("1:2", program)
        self.assertEqual(self.told(0, 0)["world"], "1")
        second = self.elastic("1:2", program)
        results = self.results(first, second)
        self.assert_codes(0, results)
        self.assertIn("has come", results[0].err)
        told = [self.told(1, rank) for rank in range(2)]
        self.assertEqual([(each["world"], each["restarts"]) for each in told], [("2", "0")] * 2)

    def test_a_lost_node_that_comes_back_gets_its_place(self):
        program = self.program("[ $ROUND = 1 ] || sleep 60")
        host = self.static(0, program, "--max-restarts", 1)
        guest = self.static(1, program, "--max-restarts", 1)
        self.told(0, 0)
        self.told(0, 1)
        guest.kill()
        self.finish(guest)
        again = self.static(1, program, "--max-restarts", 1)
        self.assert_codes(0, self.results(host, again))
        self.assertEqual([self.told(1, rank)["node"] for rank in range(2)], ["0", "1"])

    def test_a_third_node_waits_until_there_is_a_place(self):
        program = self.program(self.UNTIL_GO)
        host = self.elastic("1:2", program, conf=TOGETHER)
        self.wait_until(self.is_listening, "nobody hosts")
        guest = self.elastic("1:2", program, conf=TOGETHER)
        self.told(0, 1)
        third = self.elastic("1:2", program, conf=TOGETHER)
        time.sleep(0.5)  # it shall do nothing
        self.assertFalse((self.folder / "start_1_0").exists())
        guest.kill()
        self.assertEqual(self.told(1, 1)["world"], "2")
        self.go()
        self.assert_codes(0, self.results(host, third))

    def test_too_few_nodes_end_with_the_names_of_the_absent(self):
        program = self.program("")
        conf = QUICK.replace("join_timeout=20", "join_timeout=1")
        result = self.finish(self.elastic("2:3", program, conf=conf))
        self.assertEqual(result.code, 1, result)
        self.assertIn("1 node of at least 2 joined within 1 s", result.err)
        result = self.finish(self.static(0, program, nodes=3, conf=conf))
        self.assertEqual(result.code, 1, result)
        self.assertIn("absent: node 1, node 2", result.err)
        result = self.finish(self.static(1, program, conf=conf))
        self.assertEqual(result.code, 1, result)
        self.assertIn(f"nobody hosts the rendezvous at 127.0.0.1:{self.port}", result.err)

    def test_a_lost_node_of_a_job_without_restarts_ends_it(self):
        program = self.program("sleep 60")
        host, guest = self.static(0, program), self.static(1, program)
        self.told(0, 0)
        self.told(0, 1)
        guest.kill()
        result = self.finish(host)
        self.assertEqual(result.code, 1, result)
        self.assertIn("node 1 (host", result.err)
        self.assertIn("is lost", result.err)

    def test_the_host_is_lost(self):
        program = self.program("sleep 60")
        host, guest = self.static(0, program), self.static(1, program)
        self.told(0, 0)
        self.told(0, 1)
        host.kill()
        result = self.finish(guest)
        self.assertEqual(result.code, 1, result)
        self.assertIn(f"the host of the rendezvous at 127.0.0.1:{self.port} is lost", result.err)

    def test_another_launcher_of_the_endpoints_machine_takes_over(self):
        program = self.program(self.UNTIL_GO)
        host = self.elastic("1:2", program, "--max-restarts", 2, conf=TOGETHER)
        self.wait_until(self.is_listening, "nobody hosts")
        guest = self.elastic("1:2", program, "--max-restarts", 2, conf=TOGETHER)
        self.told(0, 1)
        host.kill()
        self.assertEqual(self.told(1, 0)["world"], "1")
        self.go()
        self.assertEqual(self.finish(guest).code, 0)

    def test_a_node_that_is_done_waits_for_the_others(self):
        program = self.program("[ $RANK = 0 ] || while [ ! -e go ]; do sleep 0.02; done")
        host, guest = self.static(0, program), self.static(1, program)
        first = int(self.told(0, 0)["pid"])
        self.told(0, 1)
        self.wait_until(lambda: not pathlib.Path(f"/proc/{first}").exists(), "rank 0 did not end")
        self.assertIsNone(host.poll())
        self.go()
        self.assert_codes(0, self.results(host, guest))

    def test_a_node_that_is_done_starts_anew_with_the_others(self):
        program = self.program("[ $RANK = 0 ] && exit 0\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n"
                               "while [ ! -e go ]; do sleep 0.02; done\nexit 5")
        host, guest = self.static(0, program, "--max-restarts", 1), self.static(1, program, "--max-restarts", 1)
        self.told(0, 0)
        self.told(0, 1)
        self.go()
        self.assert_codes(0, self.results(host, guest))
        self.assertEqual(self.told(1, 0)["restarts"], "1")

    def test_a_node_that_is_stopped_ends_a_job_that_cannot_do_without(self):
        program = self.program("sleep 60")
        host, guest = self.static(0, program), self.static(1, program)
        self.told(0, 0)
        self.told(0, 1)
        guest.send_signal(signal.SIGTERM)
        results = self.results(host, guest)
        self.assert_codes(143, results)
        self.assertIn("was stopped by SIGTERM", results[0].err)

    def test_survivors_go_on_without_a_stopped_node(self):
        program = self.program(self.UNTIL_GO)
        host = self.elastic("1:2", program, conf=TOGETHER)
        self.wait_until(self.is_listening, "nobody hosts")
        guest = self.elastic("1:2", program, conf=TOGETHER)
        self.told(0, 1)
        guest.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(guest).code, 130)
        self.assertEqual(self.told(1, 0)["world"], "1")
        self.go()
        self.assertEqual(self.finish(host).code, 0)

    def test_a_node_that_waits_for_others_can_be_stopped(self):
        node = self.static(0, self.program(""))
        self.wait_until(self.is_listening, "nobody hosts")
        node.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(node, deadline_s=5).code, 143)

    def test_another_token_is_refused(self):
        program = self.program(self.UNTIL_GO)
        token = self.folder / "token"
        token.write_text("the secret of the job\n")
        token.chmod(0o600)
        host = self.elastic("1:2", program, LOCKSTEP_JOB_TOKEN="the secret of the job")
        self.told(0, 0)
        for variables in (dict(LOCKSTEP_JOB_TOKEN="another"), {}):
            self.assert_refused(self.finish(self.elastic("1:2", program, **variables), deadline_s=10), 2, "cannot be joined",
                                "it is of another job, or has another token", "LOCKSTEP_JOB_TOKEN")
        guest = self.elastic("1:2", program, conf=f"{QUICK},token_file={token}")
        self.assertEqual(self.told(1, 1)["world"], "2")
        self.go()
        self.assert_codes(0, self.results(host, guest))

    def test_ranks_get_no_token_in_their_environment(self):
        program = self.program('env > env; tr "\\0" " " < /proc/$PPID/cmdline > cmdline')
        self.assertEqual(self.finish(self.elastic("1", program, LOCKSTEP_JOB_TOKEN="the secret")).code, 0)
        for file in ("env", "cmdline"):
            self.assertNotIn("the secret", (self.folder / file).read_text())

    def test_two_jobs_on_one_port(self):
        program = self.program(self.UNTIL_GO)
        first = self.elastic("1:2", program, "--rdzv-id", "one")
        self.told(0, 0)
        self.assert_refused(self.finish(self.elastic("1:2", program, "--rdzv-id", "two"), deadline_s=10), 2,
                            "cannot be joined", "give each job a port of its own")
        self.go()
        self.assertEqual(self.finish(first).code, 0)

    def test_nodes_that_differ_are_refused(self):
        program = self.program(self.UNTIL_GO)
        host = self.elastic("1:2", program)
        self.told(0, 0)
        self.assert_refused(self.finish(self.elastic("1:3", program), deadline_s=10), 2, "--nnodes is 1:3 there and 1:2")
        self.go()
        self.assertEqual(self.finish(host).code, 0)

    def test_a_number_that_is_taken(self):
        program = self.program("")
        host = self.static(0, program, nodes=3)
        self.wait_until(self.is_listening, "nobody hosts")
        one = self.static(1, program, nodes=3)
        other = self.static(1, program, nodes=3)
        self.wait_until(lambda: one.poll() is not None or other.poll() is not None, "nobody was refused")
        refused = one if one.poll() is not None else other
        self.assert_refused(self.finish(refused), 2, "--node-rank 1 is taken by node 1 (host")
        rest = self.static(2, program, nodes=3)
        self.assert_codes(0, self.results(host, rest, other if refused is one else one))

    def test_a_node_that_comes_back_before_its_loss_is_noticed_gets_its_place(self):
        program = self.program("[ $ROUND = 1 ] || sleep 60")
        slow = QUICK.replace("keep_alive_interval=0.2", "keep_alive_interval=10")
        host, guest = (self.static(rank, program, "--max-restarts", 1, conf=slow) for rank in (0, 1))
        stopped = [guest.pid, int(self.told(0, 1)["launcher"])]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
            self.addCleanup(self.wake, pid)
        again = self.static(1, program, "--max-restarts", 1, conf=slow)
        self.assertEqual(self.told(1, 1, deadline_s=15)["node"], "1")
        self.assert_codes(0, self.results(host, again))
        for pid in stopped:
            self.wake(pid)
        self.assertNotEqual(self.finish(guest).code, 0)

    def test_a_host_whose_address_is_not_its_machines(self):
        program = self.program("")
        outside = ("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"198.51.100.7:{self.port}", program)
        host = self.node(*outside, conf=f"{QUICK},is_host=true")
        results = self.results(host, self.elastic("2", program, "--rdzv-backend", "c10d", conf=f"{QUICK},is_host=false"))
        self.assert_codes(0, results)
        self.assertIn("198.51.100.7 is no address of this machine", results[0].err)
        told = self.told(0, 0)
        self.assertEqual(told["master"].split(":")[0], "198.51.100.7")

    def test_a_range_of_one_number_needs_no_ranks_of_nodes(self):
        program = self.program("")
        self.assert_codes(0, self.results(self.elastic("2:2", program), self.elastic("2:2", program)))

    def test_a_node_that_was_not_told_its_number(self):
        self.assert_refused(self.finish(self.node("--nnodes", 2, "--rdzv-endpoint", f"198.51.100.7:{self.port}", self.program(""))), 1,
                            f"198.51.100.7:{self.port}", "--node-rank", "--rdzv-backend c10d")

    def test_a_port_that_another_program_has(self):
        program = self.program("")
        with socket.create_server(("127.0.0.1", self.port)) as other:
            node = self.elastic("1:2", program)
            with other.accept()[0] as caller:
                caller.sendall(b"SSH-2.0-other\r\n")
                self.assert_refused(self.finish(node, deadline_s=10), 2, "another program answers there", "the port of this machine")
            node = self.elastic("1:2", program, conf=QUICK.replace("join_timeout=20", "join_timeout=1"))
            self.assert_refused(self.finish(node, deadline_s=10), 1, "says nothing", "end the program that uses the port of this machine")

    def test_who_waits_says_for_whom(self):
        program = self.program("")
        host = self.static(0, program)
        lines = []
        while not lines or "waiting" not in lines[-1]:
            lines.append(host.stderr.readline())
            self.assertTrue(lines[-1], lines)
        self.assertIn(f"waiting at 127.0.0.1:{self.port} for node 1 of 2", lines[-1])
        self.assert_codes(0, self.results(host, self.static(1, program)))

    def test_silent_clients_hold_up_no_rendezvous(self):
        program = self.program("")
        host = self.elastic("2", program, "--rdzv-backend", "c10d")
        self.wait_until(self.is_listening, "nobody hosts")
        silent = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(300)]
        for number, client in enumerate(silent):
            self.addCleanup(client.close)
            if number % 2 == 0:
                try:
                    client.sendall(b"garbage" * 50)
                except OSError:
                    pass  # turned away already
        begin = time.monotonic()
        guest = self.elastic("2", program, "--rdzv-backend", "c10d")
        self.assert_codes(0, self.results(host, guest))
        self.assertLess(time.monotonic() - begin, 10)

    def test_the_report_names_the_failure_of_its_node(self):
        program = self.program("[ $RANK = 1 ] && exit 3\nsleep 60")
        run = self.folder / "run"
        self.assert_codes(3, self.results(*[self.static(rank, program, "--run-dir", run) for rank in range(2)]))
        self.assertEqual(json.loads((run / "failure.node-1.json").read_text())["exit_code"], 3)
        self.assertFalse((run / "failure.json").exists())

    def test_a_number_that_c10d_does_not_use_is_said(self):
        result = self.finish(self.elastic("1:1", self.program(""), "--rdzv-backend", "c10d", "--node-rank", 1))
        self.assertEqual(result.code, 0, result)
        self.assertIn("--node-rank 1 is not used with --rdzv-backend c10d", result.err)

    def test_bad_tokens(self):
        program = self.program("")
        for token, got in (("", "an empty text"), ("x" * 5000, "5000")):
            self.assert_refused(self.finish(self.elastic("2", program, LOCKSTEP_JOB_TOKEN=token)), 2,
                                "LOCKSTEP_JOB_TOKEN", "1 to 4096 bytes", got)

    def test_bad_flags(self):
        program = self.program("")
        long_token = self.folder / "long_token"
        long_token.write_text("x" * 5000)
        for flags, words in (
                (["--nnodes", "1:2"], ["--rdzv-endpoint", "HOST[:PORT]"]),
                (["--nnodes", "2:2"], ["--rdzv-endpoint", "HOST[:PORT]"]),
                (["--nnodes", "1:2", "--rdzv-backend", "static"], ["--nnodes", "1:2", "static"]),
                (["--rdzv-backend", "etcd"], ["--rdzv-backend", "etcd", "c10d or static"]),
                (["--nnodes", "2", "--master-addr", "tcp://head"], ["main_address", "tcp://head", "without scheme and port"]),
                (["--nnodes", "2", "--master-addr", "head:29500"], ["main_address", "head:29500", "without scheme and port"]),
                (["--nnodes", "1:2", "--rdzv-endpoint", "tcp://head:1"], ["--rdzv-endpoint", "tcp://head:1", "HOST[:PORT]"]),
                (["--nnodes", "2", "--rdzv-endpoint", "host:x"], ["--rdzv-endpoint", "host:x", "HOST[:PORT]"]),
                (["--nnodes", "2", "--rdzv-endpoint", "host:0"], ["--rdzv-endpoint", "1 to 65535"]),
                (["--rdzv-conf", "nonsense=1"], ["--rdzv-conf", "nonsense=1", "join_timeout", "token_file"]),
                (["--rdzv-conf", " join_timeout = 1, nonsense=1"], ["nonsense=1", "token_file"]),
                (["--rdzv-conf", "join_timeout"], ["--rdzv-conf", "KEY=VALUE"]),
                (["--rdzv-conf", "join_timeout=never"], ["join_timeout", "never", "seconds"]),
                (["--rdzv-conf", "keep_alive_max_attempt=0"], ["keep_alive_max_attempt", "0"]),
                (["--rdzv-conf", "is_host=perhaps"], ["is_host", "perhaps", "true or false"]),
                (["--rdzv-conf", "token_file=absent"], ["token_file", "absent"]),
                (["--monitor-interval", "0"], ["--monitor-interval"]),
                (["--rdzv-conf", "join_timeout=1,read_timeout=2,join_timeout=3"], ["join_timeout", "each key once"]),
                (["--rdzv-conf", "keep_alive_interval=1000000,keep_alive_max_attempt=1001"],
                 ["keep_alive_interval x keep_alive_max_attempt", "at most 1000000000 seconds", "1000000 x 1001"]),
                (["--rdzv-conf", f"token_file={long_token}"], ["token_file", "at most 4096 bytes", "5000 bytes"]),
                (["--nnodes", "2", "--master-port", "0"], ["--master-port", "1 to 65535", "all nodes have to know it"]),
                (["--master-port", "65536"], ["--master-port", "0 to 65535", '"65536"']),
                (["--node-rank", "-1"], ["--node-rank", ">= 0", '"-1"']),
                (["--rdzv-id", ""], ["--rdzv-id", "a name of 1 to 240 bytes"]),
                (["--rdzv-id", "x" * 300], ["--rdzv-id", "a name of 1 to 240 bytes"]),
                (["--nnodes", "2", "--local-addr", "no-such-host.invalid"], ["--local-addr", "no-such-host.invalid"]),
                (["--nnodes", "2", "--node-rank", "2"], ["node_rank", "0..1", "2"])):
            with self.subTest(flags=flags):
                self.assert_refused(self.run_program(LOCKSTEP, "run", *flags, program), 2, *words)

    def is_listening(self):
        port = f":{self.port:04X}"
        rows = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        return any(row.split()[1].endswith(port) and row.split()[3] == "0A" for row in rows)

    @staticmethod
    def wake(pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    unittest.main()
