"""`lockstep run --hostfile`: several hosts, over a stand-in for ssh that executes commands here."""
import os
import pathlib
import signal
import socket
import time
import unittest

from harness import BINARY, ProgramTest

LOCKSTEP = BINARY / "bin" / "lockstep"
FAKE_SSH = pathlib.Path(__file__).parent / "fake_ssh"

# Says which rank it is, then waits until it is stopped.
WAIT = 'trap "touch stopped_$RANK; exit 0" TERM; sleep 60 & echo $! > child_$RANK; echo $$ > rank_$RANK; touch ready_$RANK; wait'


class HostFile(ProgramTest):
    def script(self, text):
        path = self.folder / "program"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    def host_file(self, text="one slots=2\ntwo slots=1\n"):
        (self.folder / "hosts").write_text(text)

    def start_job(self, *command, **variables):
        return self.start(LOCKSTEP, "run", "--hostfile", "hosts", "--ssh", FAKE_SSH, *command,
                          FAKE_SSH_CALLS=str(self.folder / "calls"), **variables)

    def job(self, *command, **variables):
        return self.finish(self.start_job(*command, **variables), 30)

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def test_ranks_are_numbered_over_the_hosts(self):
        self.host_file()
        program = self.script('echo "$FAKE_HOST: $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_WORLD_SIZE '
                              '$MASTER_ADDR $MASTER_PORT $(pwd)" > "place_$RANK"')
        result = self.job("--master-addr", "head", "--master-port", 1234, program)
        self.assertEqual(result.code, 0, result)
        places = [(self.folder / f"place_{rank}").read_text().strip() for rank in range(3)]
        rest = f"head 1234 {self.folder.resolve()}"
        self.assertEqual(places, [f"one: 0 0 0 3 2 2 {rest}", f"one: 1 1 0 3 2 2 {rest}", f"two: 2 0 1 3 1 2 {rest}"])

    def test_a_shell_that_does_nothing_is_a_failure(self):
        self.host_file()
        result = self.run_program(LOCKSTEP, "run", "--hostfile", "hosts", "--ssh", "/bin/true", "--master-addr", "127.0.0.1", "/bin/false")
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("its remote shell ended without starting lockstep", result.err)

    def restarting(self, *command, **variables):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        return self.start_job("--master-addr", "127.0.0.1", "--master-port", port, *command, **variables)

    def test_a_failure_restarts_the_ranks_of_all_hosts_together(self):
        self.host_file()
        program = self.script('N=$TORCHELASTIC_RESTART_COUNT; echo "$FAKE_HOST $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE" > place_${N}_$RANK\n'
                              '[ $N = 2 ] && exit 0\n'
                              'while [ ! -e place_${N}_0 -o ! -e place_${N}_1 -o ! -e place_${N}_2 ]; do sleep 0.01; done\n'
                              '[ $RANK = 2 ] && { echo "last words $N" >&2; exit 7; }\n' + WAIT)
        result = self.finish(self.restarting("--max-restarts", 2, program), 40)
        self.assertEqual(result.code, 0, result)
        for attempt in range(3):
            places = [(self.folder / f"place_{attempt}_{rank}").read_text().strip() for rank in range(3)]
            self.assertEqual(places, ["one 0 0 0 3", "one 1 1 0 3", "two 2 0 1 3"])
        for restart in (1, 2):
            self.assertEqual(result.err.count(f"restart {restart} of 2"), 1, result)
        self.assertRegex(result.err, r"one: lockstep: rank 2 \(node 1, pid \d+\) exited with code 7")
        self.assertIn("two: lockstep: its last lines on stderr were\ntwo: last words 0\n", result.err)
        self.assert_ended(["child_0", "child_1", "rank_0", "rank_1"])

    def test_when_restarts_are_used_up_the_last_failure_is_named_with_its_host(self):
        self.host_file()
        result = self.finish(self.restarting("--max-restarts", 1, self.script("[ $RANK = 2 ] && exit 7\nsleep 60")), 30)
        self.assert_refused(result, 7, "restart 1 of 1", "lockstep: host two: rank 2 (node 1, pid", "exited with code 7")
        self.assertEqual(result.err.count("lockstep: host"), 1)

    def test_the_token_of_restarting_hosts_is_in_no_command_line_and_no_rank(self):
        self.host_file()
        program = self.script('env > env_$RANK\nP=$PPID; while [ $P -gt 1 ]; do tr "\\0" " " < /proc/$P/cmdline >> lines_$RANK; '
                              'tr "\\0" "\\n" < /proc/$P/environ | sed -n "s/^LOCKSTEP_JOB_TOKEN=//p" >> token_$RANK; '
                              'P=$(cut -d" " -f4 /proc/$P/stat); done')
        self.assertEqual(self.finish(self.restarting("--max-restarts", 1, program), 30).code, 0)
        tokens = {token for rank in range(3) for token in (self.folder / f"token_{rank}").read_text().split()}
        self.assertEqual([len(token) for token in tokens], [64])
        for rank in range(3):
            for name in ("env", "lines"):
                self.assertNotIn(*tokens, (self.folder / f"{name}_{rank}").read_text())

    def test_signals_and_kills_while_hosts_wait_for_each_other(self):
        self.host_file("one slots=1\ntwo slots=1\n")
        program = self.script('[ $RANK = 0 ] && { while [ ! -e ready_1 ]; do sleep 0.02; done; exit 3; }\n'
                              'trap "touch stopping; while [ ! -e go ]; do sleep 0.02; done; exit 0" TERM; echo $$ > rank_1; touch ready_1\n'
                              'while :; do sleep 0.02; done')
        for end in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(end=end):
                process = self.restarting("--max-restarts", 1, program)
                self.wait_for("stopping")
                process.send_signal(end)
                time.sleep(0.2)  # host one waits for host two, whose rank does not stop
                if end == signal.SIGTERM:
                    (self.folder / "go").touch()
                    self.assertEqual(self.finish(process, 10).code, 143)
                else:
                    self.finish(process, 10)
                self.assert_ended(["rank_1"])
                self.assertFalse(self.launchers_left())
                for path in ("stopping", "ready_1", "go"):
                    (self.folder / path).unlink(missing_ok=True)

    def launchers_left(self):
        """Those of this test that are still there after a moment."""
        end = time.monotonic() + 20
        while True:
            left = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(self.folder).encode() in self.bytes_of(path)]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.02)

    @staticmethod
    def bytes_of(path):
        try:
            return path.read_bytes()
        except OSError:  # ended meanwhile, or somebody else's
            return b""

    def test_ranks_get_nothing_of_a_launcher_around(self):
        self.host_file()
        outer = dict(LOCKSTEP_JOB_TOKEN="secret", LOCKSTEP_STORE="nowhere:1", LOCKSTEP_STORE_TOKEN_FD="77")
        result = self.job(self.script('env > "env_$RANK"'), **outer)
        self.assertEqual(result.code, 0, result)
        for rank in range(3):
            told = (self.folder / f"env_{rank}").read_text()
            for name in outer:
                self.assertNotIn(name, told)

    def test_ssh_is_called_once_for_each_host(self):
        self.host_file("one slots=1\nuser@two slots=1\n")
        self.assertEqual(self.job("--ssh-port", 2222, "--ssh-args", "-i key", self.script("exit 0"), "secret").code, 0)
        options = "-i key -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3 -p 2222"
        command = f"exec {LOCKSTEP.resolve()} node"
        self.assertEqual(sorted(self.calls()), [f"{options} one {command}", f"{options} user@two {command}"])

    def test_the_stand_in_may_be_named_by_a_variable(self):
        self.host_file()
        result = self.run_program(LOCKSTEP, "run", "--hostfile", "hosts", self.script("exit 0"), LOCKSTEP_SSH=str(FAKE_SSH))
        self.assertEqual(result.code, 0, result)

    def test_arguments_arrive_as_they_were_given(self):
        self.host_file()
        words = ["", " ", "a b", "'", '"', "$HOME", "`date`", "a\nb\n", "\\", "*", "!", "--flag=x y", "ä\x7f", "-"]
        program = self.folder / "program.py"
        program.write_text("import os, sys\nopen('words_' + os.environ['RANK'], 'wb').write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))")
        self.assertEqual(self.job(program, *words).code, 0)
        for rank in range(3):
            self.assertEqual((self.folder / f"words_{rank}").read_bytes().decode().split("\0"), words)

    def test_variables_go_along_by_their_names_and_by_files(self):
        self.host_file()
        home = self.folder / "home"
        home.mkdir()
        (home / ".deepspeed_env").write_text("FROM_HOME=1\nBOTH=home\n")
        (self.folder / ".deepspeed_env").write_text("# a comment\nBOTH=here = $HOME\n\n")
        result = self.job(self.script('env > "env_$RANK"'), HOME=str(home), NCCL_DEBUG="x y", GLOO_SOCKET_IFNAME="lo", LOCKSTEP_LISTEN_FD="7",
                          PRIVATE="no", TORCHELASTIC_RUN_ID="outer", MASTER_ADDR="outer")
        self.assertEqual(result.code, 0, result)
        told = dict(line.split("=", 1) for line in (self.folder / "env_2").read_text().splitlines() if "=" in line)
        expected = dict(FROM_HOME="1", BOTH="here = $HOME", NCCL_DEBUG="x y", GLOO_SOCKET_IFNAME="lo", TORCHELASTIC_RUN_ID="none")
        self.assertEqual(expected, {name: told.get(name) for name in expected})
        self.assertFalse({"PRIVATE", "LOCKSTEP_LISTEN_FD"} & set(told))
        self.assertNotEqual(told["MASTER_ADDR"], "outer")

    def test_filters(self):
        self.host_file("one slots=2\ntwo slots=4\nthree slots=1\n")
        program = self.script('echo "$FAKE_HOST $CUDA_VISIBLE_DEVICES" > "place_$RANK"')
        self.assertEqual(self.job("--include", "two:0,2@one", program).code, 0)
        places = [path.read_text().strip() for path in sorted(self.folder.glob("place_*"))]
        self.assertEqual(places, ["one", "one", "two 0,2", "two 0,2"])

    def test_lines_are_whole_and_name_their_host(self):
        self.host_file("one slots=1\ntwo slots=1\n")
        program = self.script('for i in $(seq 100); do printf "%s" "$RANK"; printf "%s\\n" "$RANK"; done; echo err >&2')
        result = self.job("--master-addr", "one", program)
        self.assertEqual(sorted(set(result.out.splitlines())), ["one: 00", "two: 11"])
        self.assertEqual((len(result.out.splitlines()), sorted(result.err.splitlines())), (200, ["one: err", "two: err"]))

    def test_the_first_failure_ends_all_and_is_named_with_its_host(self):
        self.host_file()
        program = self.script('[ $RANK = 2 ] || { ' + WAIT + '; }; while [ ! -e ready_0 -o ! -e ready_1 ]; do sleep 0.01; done; exit 7')
        begin = time.monotonic()
        result = self.job(program)
        self.assertLess(time.monotonic() - begin, 10)
        self.assert_refused(result, 7, "lockstep: host two: rank 2 (node 1, pid", "exited with code 7")
        self.assertEqual(result.err.count("lockstep: host"), 1)
        self.assertTrue((self.folder / "stopped_0").exists() and (self.folder / "stopped_1").exists())
        self.assert_ended(["child_0", "child_1"])

    def test_a_failure_elsewhere_is_no_echo(self):
        # Rank 2 ends by itself a moment after rank 0 was killed, as one does that has lost its peer.
        self.host_file()
        program = self.script('case $RANK in 0) echo $$ > new_0; mv new_0 rank_0; kill -9 $$;; 1) sleep 60;; '
                              '2) while [ ! -e rank_0 ] || kill -0 $(cat rank_0) 2>/dev/null; do sleep 0.01; done; exit 1;; esac')
        result = self.job(program)
        self.assert_refused(result, 137, "lockstep: host one: rank 0 (node 0, pid", "killed by SIGKILL")

    def test_signals_are_passed_on(self):
        self.host_file()
        process = self.start_job(self.script(WAIT))
        self.wait_for("ready_0", "ready_1", "ready_2")
        process.send_signal(signal.SIGTERM)
        result = self.finish(process, 20)
        self.assertEqual(result.code, 143, result)
        self.assertTrue(all((self.folder / f"stopped_{rank}").exists() for rank in range(3)))
        self.assert_ended(["child_0", "child_1", "child_2"])

    def test_signals_to_pass_on_end_no_job_that_has_not_begun(self):
        self.host_file("one slots=1\nlate slots=1\n")
        process = self.start_job("--master-addr", "one", self.script("exit 0"))
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        end = time.monotonic() + 60
        while not any("node" in command for command in self.commands_below(children)):
            self.assertLess(time.monotonic(), end, "no host is asked")
            time.sleep(0.02)
        time.sleep(0.2)  # host one says that it is ready
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)  # nothing shall come of it
        (self.folder / "go_late").touch()
        self.assertEqual(self.finish(process, 20).code, 0)

    @classmethod
    def commands_below(cls, children):
        """The command lines of all processes below."""
        try:
            for pid in children.read_text().split():
                yield pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                yield from cls.commands_below(pathlib.Path(f"/proc/{pid}/task/{pid}/children"))
        except (FileNotFoundError, ProcessLookupError):
            return

    def test_a_second_signal_kills(self):
        self.host_file()
        process = self.start_job(self.script('trap "" TERM; echo $$ > rank_$RANK; touch ready_$RANK; while :; do sleep 0.1; done'))
        self.wait_for("ready_0", "ready_1", "ready_2")
        process.send_signal(signal.SIGTERM)
        time.sleep(2)  # two within 200 ms are one
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process, 20).code, 143)
        self.assert_ended(["rank_0", "rank_1", "rank_2"])

    def test_nobody_survives_a_killed_start(self):
        self.host_file()
        for _ in range(3):
            process = self.start_job(self.script(WAIT.replace("exit 0", "").replace("touch ready", "setsid sleep 60 & echo $! > far_$RANK; touch ready")))
            self.wait_for("ready_0", "ready_1", "ready_2")
            process.kill()
            self.finish(process)
            self.assert_ended(f"{who}_{rank}" for who in ("rank", "child", "far") for rank in range(3))
            for path in self.folder.glob("ready_*"):
                path.unlink()

    def test_nobody_survives_a_cut_connection(self):
        self.host_file()
        process = self.start_job(self.script(WAIT))
        self.wait_for("ready_0", "ready_1", "ready_2")
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        result = self.finish(process, 20)
        self.assert_refused(result, 137, "lockstep: host two: its remote shell was killed by SIGKILL")
        self.assert_ended(["child_0", "child_1", "child_2", "rank_2"])

    def start_elastic(self, *flags):
        """A job on three hosts whose ranks wait for a file; returns it and the processes of its remote shells."""
        self.host_file("one slots=2\ntwo slots=1\nthree slots=1\n")
        for path in self.folder.glob("place_*"):
            path.unlink()
        program = self.script('trap "exit 0" TERM; echo "$FAKE_HOST $GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT" > '
                              'place_${WORLD_SIZE}_$RANK.new; mv place_${WORLD_SIZE}_$RANK.new place_${WORLD_SIZE}_$RANK\n'
                              'while [ ! -e go ]; do sleep 0.02; done')
        process = self.restarting("--elastic-training", *flags, program)
        self.wait_for(*(f"place_4_{rank}" for rank in range(4)))
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return process, [int(child) for child in children]

    def places(self, world):
        return [(self.folder / f"place_{world}_{rank}").read_text().strip() for rank in range(world)]

    def test_a_job_that_can_do_without_a_lost_host_goes_on(self):
        process, shells = self.start_elastic("--min-elastic-nodes", 2)
        places = self.places(4)  # of hosts of one name the first that comes is the first
        self.assertEqual(places[:2], ["one 0 3 0"] * 2)
        self.assertIn(places[2:], (["two 1 3 0", "three 2 3 0"], ["three 1 3 0", "two 2 3 0"]))
        os.kill(shells[1], signal.SIGKILL)
        self.wait_for("place_3_0", "place_3_1", "place_3_2")
        self.assertEqual(self.places(3), ["one 0 2 0", "one 0 2 0", "three 1 2 0"])
        (self.folder / "go").touch()
        result = self.finish(process, 20)
        self.assertEqual(result.code, 0, result)
        self.assertIn("lockstep: host two: its remote shell was killed by SIGKILL; the other hosts go on without it", result.err)
        self.assertFalse(self.launchers_left())

    def launcher_on(self, host):
        """Its pid."""
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            words = self.bytes_of(path / "cmdline").split(b"\0")
            if words[1:2] == [b"run"] and b"--tied-to-stdin" in words and f"FAKE_HOST={host}".encode() in self.bytes_of(path / "environ"):
                return int(path.name)
        self.fail(f"no launcher on {host}")

    def test_a_host_that_is_shut_down_in_order_is_lost_as_well(self):
        process, _ = self.start_elastic()
        os.kill(self.launcher_on("two"), signal.SIGTERM)
        self.wait_for("place_3_0", "place_3_1", "place_3_2")
        (self.folder / "go").touch()
        result = self.finish(process, 20)
        self.assertEqual(result.code, 0, result)
        self.assertIn("lockstep: host two: lockstep run exited with code 143", result.err)
        self.assertIn("; the other hosts go on without it", result.err)
        self.assertFalse(self.launchers_left())

    def test_a_host_whose_connection_stays_holds_nobody_up(self):
        self.host_file("one slots=1\nlingers slots=1\n")
        begin = time.monotonic()
        result = self.finish(self.restarting("--elastic-training", self.script("exit 0")), 30)
        self.assertEqual(result.code, 0, result)
        self.assertLess(time.monotonic() - begin, 20)

    def test_no_host_is_lost_where_a_rank_has_failed(self):
        self.host_file("one slots=1\ntwo slots=1\nthree slots=1\n")
        result = self.finish(self.restarting("--elastic-training", self.script('[ $FAKE_HOST != three ] && exec sleep 60; exit 137')), 30)
        self.assert_refused(result, 137, "lockstep: host three: rank")
        self.assertNotIn("go on without", result.err)

    def test_a_job_ends_with_its_first_host_and_where_too_few_are_left(self):
        for lost, name, flags in ((0, "one", ()), (2, "three", ("--min-elastic-nodes", 3))):
            with self.subTest(name):
                process, shells = self.start_elastic(*flags)
                os.kill(shells[lost], signal.SIGKILL)
                result = self.finish(process, 20)
                self.assert_refused(result, 137, f"lockstep: host {name}: its remote shell was killed by SIGKILL\n")
                self.assertFalse(self.launchers_left())

    def test_a_host_that_cannot_be_reached_is_named_and_no_rank_is_started(self):
        for host, said in (("refused", "Connection refused"), ("unknown", "Could not resolve hostname")):
            with self.subTest(host=host):
                self.host_file(f"one slots=1\n{host} slots=1\n")
                result = self.job(self.script("touch started"))
                self.assert_refused(result, 1, f"lockstep: host {host}: cannot be reached", "exited with code 255", said)
                self.assertFalse((self.folder / "started").exists())

    def test_a_host_that_does_not_answer_is_named_in_time(self):
        self.host_file("one slots=1\nsilent slots=1\n")
        begin = time.monotonic()
        result = self.job("--ssh-timeout", 4, "--shutdown-timeout", 1, self.script("touch started"))
        self.assertLess(time.monotonic() - begin, 20)
        self.assert_refused(result, 1, "no answer within 4 s from: silent", "no rank was started")
        self.assertFalse((self.folder / "started").exists())

    def test_what_a_host_refuses_is_said(self):
        self.host_file()
        result = self.job("./absent")
        self.assert_refused(result, 2, "one: lockstep:", "./absent", "no such file", "lockstep: host ")

    def test_one_host_needs_no_ssh(self):
        self.host_file("localhost slots=2 # here\n")
        result = self.run_program(LOCKSTEP, "run", "--hostfile", "hosts", "--ssh", "/no/such/ssh", self.script("echo $RANK of $WORLD_SIZE"))
        self.assertEqual((result.code, sorted(result.out.splitlines()), result.err), (0, ["0 of 2", "1 of 2"], ""))
        self.host_file("elsewhere slots=1\n")
        result = self.run_program(LOCKSTEP, "run", "--hostfile", "hosts", self.script("echo $RANK of $WORLD_SIZE"))
        self.assertEqual((result.code, result.out), (0, "0 of 1\n"))
        self.assertIn("elsewhere, is taken for this one", result.err)
        self.assertEqual(self.job("--force-multi", self.script("echo $FAKE_HOST")).out, "elsewhere: elsewhere\n")

    def test_bad_input(self):
        self.host_file()
        program = self.script("exit 0")
        (self.folder / "bad").write_text("one slots=2\ntwo\n")
        hosts = ["--hostfile", "hosts"]
        for flags, words in (
                (["--hostfile", "bad"], ["bad:2", "HOST slots=N", '"two"']),
                (["--hostfile", "absent"], ["absent", "No such file"]),
                (["--include", "one"], ["--include", "--hostfile"]),
                ([*hosts, "--include", "one", "--exclude", "two"], ["--include", "--exclude"]),
                ([*hosts, "--include", "three"], ["--include", '"three"']),
                (["--elastic-training"], ["--elastic-training", "--hostfile"]),
                ([*hosts, "--min-elastic-nodes", "2"], ["--min-elastic-nodes", "--elastic-training as well"]),
                ([*hosts, "--elastic_training", "--min_elastic_nodes", "3"], ["--min-elastic-nodes", "1..2, the number of hosts", '"3"']),
                ([*hosts, "--elastic-training", "--min-elastic-nodes", "0"], ["--min-elastic-nodes", "a whole number >= 1"]),
                ([*hosts, "--exclude", "one:5"], ['slot "5" of host one']),
                ([*hosts, "--nnodes", "2"], ["--nnodes", "--hostfile"]),
                ([*hosts, "--nproc_per_node", "2"], ["--nproc-per-node", "--hostfile"]),
                ([*hosts, "--ssh", "/no/such/ssh"], ["/no/such/ssh", "no such file"]),
                ([*hosts, "--ssh", "no_such_ssh"], ["no_such_ssh", "not in PATH"]),
                ([*hosts, "--ssh-port", "70000"], ["--ssh-port", "65535"]),
                ([*hosts, "--ssh-timeout", "0"], ["--ssh-timeout", "seconds", '"0"']),
                ([*hosts, "--master-port", "0"], ["--master-port", "1..65535", "all hosts"])):
            with self.subTest(flags=flags):
                self.assert_refused(self.run_program(LOCKSTEP, "run", *flags, program), 2, *words)
        (self.folder / ".lockstep_env").write_text("A=1\nno equals sign\n")
        self.assert_refused(self.job(program), 2, ".lockstep_env:2", "NAME=VALUE", "no equals sign")

    def test_node_is_for_no_terminal(self):
        result = self.run_program("sh", "-c", f"echo hello | {LOCKSTEP} node")
        self.assert_refused(result, 1, "what lockstep run --hostfile sends")


if __name__ == "__main__":
    unittest.main()
