"""`lockstep run` starts any program as ranks: what they are told, where they write to, and how they end."""
import os
import pathlib
import resource
import signal
import subprocess
import time
import unittest

from harness import BINARY, DIGITS, PEERS_PYTHON, SOURCE, ProgramTest, is_running

LOCKSTEP = BINARY / "bin" / "lockstep"

ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(mine)
open(f"sum_{dist.get_rank()}", "w").write(str(mine.item()))
dist.destroy_process_group()
"""


def processors(text):
    """The numbers of a list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",")]
    return [number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)]


class LockstepRun(ProgramTest):
    def script(self, text):
        path = self.folder / "program"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    def ranks(self, count, *command, **variables):
        return self.run_program(LOCKSTEP, "run", "--nproc-per-node", count, *command, **variables)

    def succeed(self, *command, **variables):
        result = self.ranks(*command, **variables)
        self.assertEqual(result.code, 0, result)
        return result

    def test_ranks_are_told_what_torchruns_workers_are(self):
        program = self.script('env > "env_$RANK"')
        self.succeed(2, "--rdzv-id", "job", "--max-restarts", 3, program)
        for rank in range(2):
            told = dict(line.split("=", 1) for line in (self.folder / f"env_{rank}").read_text().splitlines() if "=" in line)
            expected = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", GROUP_RANK="0",
                            GROUP_WORLD_SIZE="1", ROLE_NAME="default", ROLE_RANK=str(rank), ROLE_WORLD_SIZE="2",
                            MASTER_ADDR="127.0.0.1", TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT="0",
                            TORCHELASTIC_MAX_RESTARTS="3", TORCHELASTIC_USE_AGENT_STORE="False")
            self.assertEqual(expected, {name: told.get(name) for name in expected})
            # None that a connection of anybody may take before rank 0 does.
            first, last = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
            port = int(told["MASTER_PORT"])
            self.assertTrue(1024 <= port < first or port > last or (first < 21000 and last > 64000), port)
            self.assertIn("OMP_NUM_THREADS", told)

    def test_python_programs_form_a_process_group(self):
        program = self.folder / "all_reduce.py"
        program.write_text(ALL_REDUCE)
        path = f"{PEERS_PYTHON.parent}:{os.environ['PATH']}"
        self.succeed(2, program, PATH=path)
        self.assertEqual([(self.folder / f"sum_{rank}").read_text() for rank in range(2)], ["3.0", "3.0"])

    def test_a_job_of_one_node_has_a_name_of_its_own(self):
        names = [self.succeed(1, *flags, self.script("echo $TORCHELASTIC_RUN_ID")).out for flags in ((), (), ("--rdzv-id", "mine"))]
        self.assertRegex(names[0], r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n$")
        self.assertNotEqual(names[0], names[1])
        self.assertEqual(names[2], "mine\n")

    def test_our_programs_need_no_change(self):
        result = self.succeed(2, DIGITS, "--trainer.max_epochs", 1, "--trainer.strategy", "ddp", "--trainer.devices", 2,
                              "--data.file", SOURCE / "data" / "digits.csv.gz", "--run_dir", self.folder / "run")
        self.assertIn("val_accuracy", result.out)
        self.assertIn('"world_size": 2', (self.folder / "run" / "summary.json").read_text())

    def test_the_first_failure_is_named_with_its_last_lines(self):
        program = self.script('echo "rank $RANK says" >&2; if [ $RANK = 1 ]; then echo "last words" >&2; exit 3; fi; sleep 60')
        begin = time.monotonic()
        result = self.ranks(3, program)
        self.assertLess(time.monotonic() - begin, 30)
        self.assert_refused(result, 3, "rank 1 (node 0, pid", "exited with code 3", "its last lines on stderr were\nrank 1 says\nlast words")

    def test_an_error_of_our_program_is_named(self):
        result = self.ranks(2, DIGITS, "--trainer.strategy", "ddp", "--data.file", SOURCE / "data" / "digits.csv.gz", "--run_dir",
                            self.folder / "run", "--fault.kind", "throw", "--fault.rank", 1, "--fault.step", 3)
        self.assert_refused(result, 1, "rank 1 (node 0, pid", "failed: injected fault at step 3")

    def test_a_place_that_is_none_is_refused(self):
        program = self.script("exit 0")
        for flags, words in ((("--first-rank", 1), ("--first-rank", "both")), (("--world-size", 2), ("--world-size", "both")),
                             (("--first-rank", 1, "--world-size", 2), ("--world-size", "at least", "3"))):
            self.assert_refused(self.ranks(2, *flags, program), 2, *words)

    def test_the_first_signal_after_a_failure_kills_nobody(self):
        program = self.script('if [ $RANK = 1 ]; then while [ ! -e ready ]; do sleep 0.02; done; exit 7; fi\n'
                              'trap "touch told; sleep 5; touch saved; exit 0" TERM; touch ready; while :; do sleep 0.02; done')
        job = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, "--max-restarts", 3, program)
        self.wait_for("told")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(job, 20).code, 7)
        self.assertTrue((self.folder / "saved").exists())

    def test_restarts(self):
        program = self.script('echo "attempt $TORCHELASTIC_RESTART_COUNT" >> "tries_$RANK"; '
                              '[ $TORCHELASTIC_RESTART_COUNT = 2 ] || [ $RANK = 0 ] || exit 5')
        result = self.succeed(2, "--max-restarts", 2, program)
        self.assertIn("restart 2 of 2", result.err)
        self.assertEqual((self.folder / "tries_1").read_text(), "attempt 0\nattempt 1\nattempt 2\n")
        self.assertEqual(self.ranks(2, "--max-restarts", 1, program).code, 5)

    def test_output_to_files_and_with_prefixes(self):
        program = self.script("echo out $RANK; echo err $RANK >&2")
        logs = self.folder / "logs"
        result = self.succeed(2, "--tee", "0:3,1:2", "--redirects", "1:1", "--log-dir", logs, "--role", "trainer", program)
        self.assertEqual(result.out, "[trainer0]:out 0\n")
        self.assertEqual(sorted(result.err.splitlines()), ["[trainer0]:err 0", "[trainer1]:err 1"])
        (run,) = logs.iterdir()
        for rank in range(2):
            folder = run / "attempt_0" / str(rank)
            self.assertEqual([(folder / name).read_text() for name in ("stdout.log", "stderr.log")], [f"out {rank}\n", f"err {rank}\n"])

    def test_lines_of_ranks_do_not_mix(self):
        program = self.script('for i in $(seq 200); do printf "%s" "$RANK$RANK"; printf "%s\\n" "$RANK"; done')
        lines = self.succeed(3, "--tee", 1, "--log-dir", self.folder / "logs", program).out.splitlines()
        self.assertEqual(len(lines), 600)
        self.assertEqual(set(lines), {f"[default{rank}]:{rank}{rank}{rank}" for rank in range(3)})

    PIECES = 'for i in $(seq 200); do printf "%s" "$RANK$RANK"; printf "%s\\n" "$RANK"; done'

    def test_lines_in_pieces_are_whole_on_a_pipe_and_in_a_file(self):
        program = self.script(self.PIECES)
        whole = sorted(3 * f"{rank}" for rank in range(3) for _ in range(200))
        self.assertEqual(sorted(self.succeed(3, program).out.splitlines()), whole)
        with open(self.folder / "out", "w") as file:
            subprocess.run([LOCKSTEP, "run", "--nproc-per-node", "3", program], stdout=file, env=self.environment(), check=True)
        self.assertEqual(sorted((self.folder / "out").read_text().splitlines()), whole)
        both = self.script(self.PIECES.replace('$RANK"; done', '$RANK"; echo on stderr $RANK >&2; done'))
        result = subprocess.run([LOCKSTEP, "run", "--nproc-per-node", "3", both], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=self.environment(), check=True)
        self.assertEqual(sorted(result.stdout.splitlines()), sorted(whole + [f"on stderr {rank}" for rank in range(3) for _ in range(200)]))

    def test_no_byte_is_lost_nor_added(self):
        for last, end in (("printf 'no end'", 0), ("printf 'no end'; kill -9 $$", 137), ("printf 'no end'; touch ready; sleep 60", 143)):
            with self.subTest(last):
                (self.folder / "ready").unlink(missing_ok=True)
                process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, self.script(f"[ $RANK = 1 ] && exit 0; echo begun; {last}"))
                if end == 143:
                    self.wait_for("ready")
                    process.send_signal(signal.SIGTERM)
                result = self.finish(process)
                self.assertEqual((result.code, result.out), (end, "begun\nno end"), result)
        program = self.script('if [ $RANK = 0 ]; then printf "no end"; touch ended; else while [ ! -e ended ]; do sleep 0.02; done; sleep 0.3; echo whole; fi')
        self.assertIn(self.succeed(2, program).out, ("no end\nwhole\n", "whole\nno end"))

    def test_a_slow_reader_gets_all(self):
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, self.script('seq -f "$RANK %.0f" 300000; exit $((RANK * 3))'))
        time.sleep(3)
        result = self.finish(process)
        self.assertEqual(result.code, 3, result.err)
        for rank in range(2):
            mine = [line for line in result.out.splitlines() if line.startswith(f"{rank} ")]
            self.assertEqual(mine[:2] + mine[-1:], [f"{rank} 1", f"{rank} 2", f"{rank} {len(mine)}"])
            self.assertTrue(rank == 0 or len(mine) == 300000)

    def test_who_waits_for_a_reader_ends_when_told_to(self):
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, self.script("seq 30000; touch done_$RANK"))
        self.wait_for("done_0", "done_1")
        time.sleep(0.5)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 143)
        self.finish(process)

    def test_where_nobody_reads_ranks_get_sigpipe(self):
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, "yes")
        self.assertEqual(process.stdout.readline(), "y\n")
        process.stdout.close()
        self.assertEqual(process.wait(20), 141)
        process.stderr.close()

    def test_what_ranks_leave_behind_does_not_hold_up_the_end(self):
        self.assertIn("x\n", self.succeed(2, self.script("[ $RANK = 1 ] || (setsid sh -c 'for i in $(seq 600); do echo x; sleep 0.05; done' &) ; sleep 0.5")).out)

    def test_what_ranks_leave_behind_may_go_on_writing(self):
        program = self.script('(for i in $(seq 3000); do [ -e go ] && break; sleep 0.02; done; for i in 1 2 3; do /bin/echo late $RANK && /bin/echo so >&2 || break; sleep 0.1; done\n'
                              'echo "ended at $i" > end_$RANK) &')
        kept = ["--log-dir", "logs"]
        for number, flags in enumerate(([], ["--redirects", 3, *kept], ["--tee", 3, *kept])):
            for is_pipe in (True, False):
                with self.subTest(flags=flags, is_pipe=is_pipe):
                    folder = self.folder / f"{number}_{is_pipe}"
                    folder.mkdir()
                    with (folder / "shown").open("w") as shown:
                        process = subprocess.Popen([str(word) for word in (LOCKSTEP, "run", "--nproc-per-node", 2, *flags, program)], cwd=folder,
                                                   env=self.environment(), stdout=subprocess.PIPE if is_pipe else shown, stderr=subprocess.PIPE)
                        process.communicate(timeout=100)
                    self.assertEqual(process.returncode, 0)
                    (folder / "go").touch()
                    for rank in (0, 1):
                        self.wait_until(lambda: (folder / f"end_{rank}").exists() and (folder / f"end_{rank}").read_text() == "ended at 3\n")
                    logs = list(folder.rglob("[01]/stdout.log"))
                    self.assertEqual(len(logs), 2 if flags else 0)
                    for log in logs:
                        self.wait_until(lambda: log.read_text() == f"late {log.parent.name}\n" * 3)
                    if not is_pipe and "--redirects" not in flags:
                        self.wait_until(lambda: (folder / "shown").read_text().count("late") == 6)

    def test_ranks_find_the_terminal(self):
        ours, theirs = os.openpty()
        process = subprocess.Popen([LOCKSTEP, "run", "--nproc-per-node", "2", "sh", "-c", "[ -t 1 ]"], stdout=theirs, env=self.environment())
        self.assertEqual(process.wait(20), 0)
        os.close(ours)
        os.close(theirs)

    def test_a_rank_in_another_folder_finds_its_error_file(self):
        program = self.script('cd /\nprintf \'{"message": "the disk is full"}\' > "$TORCHELASTIC_ERROR_FILE"\nexit 3')
        self.assertIn("the disk is full", self.ranks(1, "--log-dir", "logs", program).err)

    def test_long_lines_stay_whole(self):
        program = self.script('for i in 1 2 3; do head -c 300000 /dev/zero | tr "\\0" $RANK; echo; echo short $RANK; done')
        lines = self.succeed(3, "--tee", 1, "--log-dir", "logs", program).out.splitlines()
        self.assertEqual(len(lines), 18)
        self.assertEqual(set(lines), {f"[default{rank}]:{text}" for rank in range(3) for text in (str(rank) * 300000, f"short {rank}")})
        result = self.ranks(1, self.script('(head -c 300000 /dev/zero | tr "\\0" x; echo; echo last words) >&2; exit 3'))
        self.assertTrue(result.err.startswith("x" * 300000 + "\nlast words\n"))
        self.assertIn("stderr were\n" + "x" * 1000 + "...\nlast words\n", result.err)

    def test_a_long_line_that_is_not_over_holds_up_nobody(self):
        program = self.script('if [ $RANK = 0 ]; then head -c 100000 /dev/zero | tr "\\0" x; touch begun; while [ ! -e go ]; do sleep 0.02; done; echo end\n'
                              'else while [ ! -e begun ]; do sleep 0.02; done; sleep 0.2; echo hello; fi')
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, "--tee", 1, "--log-dir", "logs", program)
        first = process.stdout.readline()
        self.assertTrue(first.startswith("[default0]:xxx") and len(first) > 65536, first[:100])
        self.assertEqual(process.stdout.readline(), "[default1]:hello\n")
        (self.folder / "go").touch()
        rest = self.finish(process).out
        self.assertEqual(first.count("x") + rest.count("x"), 100000)
        self.assertTrue(rest.startswith("[default0]:") and rest.endswith("end\n"), rest[:30])

    def test_only_some_ranks_are_shown(self):
        result = self.succeed(3, "--local-ranks-filter", "1", self.script("echo out $RANK; echo err $RANK >&2"))
        self.assertEqual((result.out, result.err), ("out 1\n", "err 1\n"))

    def test_sigterm_is_passed_on_to_all_that_ranks_started(self):
        program = self.script('trap "touch stopped_$RANK; exit 0" TERM; sleep 60 & echo $! > child_$RANK; touch ready_$RANK; wait')
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, program)
        self.wait_for("ready_0", "ready_1")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process).code, 143)
        for rank in range(2):
            self.assertTrue((self.folder / f"stopped_{rank}").exists())
            self.assertFalse(is_running(int((self.folder / f"child_{rank}").read_text())))

    # Ranks, what they start, and what that starts in a session of its own.
    FAMILY = """
echo $$ > rank_$RANK
sleep 60 & echo $! > child_$RANK
setsid sh -c "echo \\$\\$ > far_$RANK; trap '' TERM; sleep 60; sleep 60" &
while [ ! -s far_$RANK ]; do sleep 0.01; done
touch ready_$RANK
wait
"""

    def family(self, ranks):
        return [int((self.folder / f"{who}_{rank}").read_text()) for who in ("rank", "child", "far") for rank in range(ranks)]

    def test_nothing_survives_a_killed_launcher(self):
        for _ in range(5):
            process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, self.script(self.FAMILY))
            self.wait_for("ready_0", "ready_1")
            process.kill()
            self.finish(process)
            self.assert_ended(self.family(2))
            for rank in range(2):
                (self.folder / f"ready_{rank}").unlink()
                (self.folder / f"far_{rank}").unlink()

    def test_nothing_survives_a_killed_supervisor(self):
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, self.script(self.FAMILY))
        self.wait_for("ready_0", "ready_1")
        (supervisor,) = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(supervisor), signal.SIGKILL)
        self.assertEqual(self.finish(process).code, 137)
        self.assert_ended(self.family(2))

    def test_a_restart_leaves_nothing_of_the_attempt_before(self):
        family = self.FAMILY.replace("wait\n", "exit 1\n")
        self.succeed(1, "--max-restarts", 1, self.script("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n" + family))
        self.assert_ended(self.family(1))

    def test_what_ranks_leave_behind_is_waited_for_when_it_ends(self):
        program = self.script("""
for i in 1 2 3; do sh -c 'setsid sh -c "echo \\$\\$ > far_$0; exit 0" &' $i; done
while [ ! -s far_1 ] || [ ! -s far_2 ] || [ ! -s far_3 ]; do sleep 0.01; done
touch ready_0; while [ ! -e go ]; do sleep 0.01; done""")
        process = self.start(LOCKSTEP, "run", program)
        self.wait_for("ready_0")
        zombies = [int((self.folder / f"far_{i}").read_text()) for i in (1, 2, 3)]
        end = time.monotonic() + 20
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in zombies):
            self.assertLess(time.monotonic(), end, "zombies are kept")
            time.sleep(0.02)
        (self.folder / "go").touch()
        self.assertEqual(self.finish(process).code, 0)

    def test_a_full_disk_is_said_once_and_ends_no_run(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        program = self.script("for i in $(seq 3000); do echo line $i; done; echo done > done_$RANK")
        result = self.finish(self.start(LOCKSTEP, "run", "--tee", 1, "--log-dir", "logs", program, preexec_fn=limit))
        self.assertEqual((result.code, len(result.out.splitlines())), (0, 3000), result.err)
        self.assertEqual(result.err.count("cannot write"), 1, result.err)
        self.assertIn("stdout.log: File too large; the rest of it is not kept", result.err)

    def test_a_line_may_end_in_carriage_return_and_line_feed(self):
        program = self.script(r'printf "one\r\ntwo\r"; sleep 0.3; printf "\nthree\n10%%\r20%%\r"')
        process = self.start(LOCKSTEP, "run", "--tee", 1, "--log-dir", "logs", program)
        process.stdout.reconfigure(newline="")
        out = process.stdout.read()
        self.finish(process)
        line = "[default0]:"
        self.assertEqual(out, f"{line}one\r\n{line}two\r\n{line}three\n{line}10%\r{line}20%\r")

    def test_of_foreign_programs_no_collective_is_told(self):
        self.assertNotIn("collective", self.ranks(1, self.script("exit 3")).err)
        self.assert_refused(self.ranks(3, BINARY / "bin" / "launch_case", self.folder, "kill"), 137, "killed by SIGKILL in all_gather seq 1")

    def test_the_error_file_of_a_python_program_is_told(self):
        program = self.script("""printf %s '{"message": {"message": "ValueError: no\\nsuch", "extraInfo": {}}}' > $TORCHELASTIC_ERROR_FILE; exit 1""")
        result = self.ranks(1, "--log-dir", "logs", program)
        self.assert_refused(result, 1, "exited with code 1: ValueError: no\n")
        broken = self.script("echo '{' > $TORCHELASTIC_ERROR_FILE; exit 1")
        self.assert_refused(self.ranks(1, "--log-dir", "logs", broken), 1, "exited with code 1\n")

    def test_a_job_may_be_called_anything(self):
        self.succeed(1, "--rdzv-id", "a/b/../c", "--log-dir", "logs", self.script('echo "$TORCHELASTIC_RUN_ID" > id'))
        (folder,) = (self.folder / "logs").iterdir()
        self.assertTrue(folder.name.startswith("a_b_.._c_"), folder)
        self.assertEqual((self.folder / "id").read_text(), "a/b/../c\n")

    def test_the_program_may_come_behind_two_dashes(self):
        self.assertEqual(self.succeed(1, "--", "echo", "--", "-x").out, "-- -x\n")
        script = self.run_program(LOCKSTEP, "slurm-script", "--nodes", 2, "--", "./train", "--", "-x")
        self.assertIn("./train -- -x\n", script.out, script)

    def test_a_bus_error_is_told_with_its_usual_cause(self):
        result = self.ranks(1, self.script("kill -BUS $$"))
        self.assertEqual(result.code, 128 + signal.SIGBUS, result)
        self.assertRegex(result.err, "killed by SIGBUS.*; a file that it has mapped, .* has become shorter")

    def test_other_signals_are_passed_on_to_groups(self):
        program = self.script('trap "echo usr1 >> got_$RANK" USR1; trap "echo usr2 >> got_$RANK; exit 0" USR2; touch ready_$RANK; '
                              'while :; do sleep 0.05; done')
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, program)
        self.wait_for("ready_0", "ready_1")
        process.send_signal(signal.SIGUSR1)
        self.wait_for("got_0", "got_1")
        process.send_signal(signal.SIGUSR2)
        result = self.finish(process)
        self.assertEqual(result.code, 0, result)
        self.assertEqual((self.folder / "got_1").read_text(), "usr1\nusr2\n")

    def test_signals_that_are_passed_on_end_no_launcher_between_two_attempts(self):
        # Attempts end by themselves or by the signal, so that many of these come between two of them.
        process = self.start(LOCKSTEP, "run", "--max-restarts", 9999, self.script("touch begun; [ -e go ]"))
        self.wait_for("begun")
        for _ in range(150):
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.001)
        (self.folder / "go").touch()
        result = self.finish(process)
        self.assertEqual(result.code, 0, result)

    def test_sigquit_stops(self):
        program = self.script('trap "touch stopped_$RANK; exit 0" QUIT; touch ready_$RANK; while :; do sleep 0.05; done')
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, program)
        self.wait_for("ready_0", "ready_1")
        process.send_signal(signal.SIGQUIT)
        self.assertEqual(self.finish(process).code, 131)
        self.assertTrue((self.folder / "stopped_0").exists() and (self.folder / "stopped_1").exists())

    def test_nothing_survives_a_launcher_that_was_stopped_and_killed(self):
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, self.script(self.FAMILY))
        self.wait_for("ready_0", "ready_1")
        (supervisor,) = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, int(supervisor)):
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        self.finish(process)
        self.assert_ended([*self.family(2), int(supervisor)])

    def bound(self, ranks, *flags, **variables):
        program = self.script('echo "$(grep Cpus_allowed_list /proc/self/status | cut -f2) $OMP_NUM_THREADS" > "bound_$RANK"')
        command = ["run", "--nproc-per-node", ranks, *flags, program]
        environment = self.environment()
        del environment["OMP_NUM_THREADS"]
        result = self.finish(subprocess.Popen([str(word) for word in (LOCKSTEP, *command)], cwd=self.folder, env=environment | variables,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        self.assertEqual(result.code, 0, result)
        return [(self.folder / f"bound_{rank}").read_text().split() for rank in range(ranks)], result.err

    def test_ranks_are_bound_to_cores(self):
        first, *_, last = usable = sorted(os.sched_getaffinity(0))
        places, text = self.bound(2, "--bind-core-list", f"{last},{first}")
        self.assertEqual((places, text), ([[str(last), "1"], [str(first), "1"]], ""))
        places, _ = self.bound(1, "--bind_cores_to_rank")
        self.assertEqual(processors(places[0][0]), usable)
        places, _ = self.bound(1, "--bind-cores", OMP_NUM_THREADS="7")
        self.assertEqual(places[0][1], "7")
        self.assertEqual(processors(self.bound(1, "--numa-binding", "socket")[0][0][0])[:1], usable[:1])

    def test_more_ranks_than_cores_share_them(self):
        ranks = len(os.sched_getaffinity(0)) + 1
        places, text = self.bound(ranks, "--bind-cores")
        self.assertTrue(all(threads == "1" for _, threads in places))
        self.assertIn(f"{ranks} ranks share", text)

    def test_a_rank_for_each_device_of_nvidia(self):
        program = self.script('touch "rank_$RANK"')
        fake = dict(LD_LIBRARY_PATH=str(BINARY / "tests/device"))  # two devices
        for count, visible, expected in (("gpu", None, 2), ("auto", None, 2), ("gpu", "1", 1), ("2", "0", 2)):
            with self.subTest(count, visible=visible):
                for path in self.folder.glob("rank_*"):
                    path.unlink()
                variables = {**fake, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {})}
                result = self.run_program(LOCKSTEP, "run", "--nproc-per-node", count, program, **variables)
                self.assertEqual((result.code, len(list(self.folder.glob("rank_*")))), (0, expected), result)
        none = self.run_program(LOCKSTEP, "run", "--nproc-per-node", "gpu", program, **fake, CUDA_VISIBLE_DEVICES="-1")
        self.assertEqual(none.code, 2, none)
        self.assertIn("CUDA_VISIBLE_DEVICES", none.err)

    def test_a_working_directory_that_was_removed_is_named(self):
        gone = self.folder / "gone"
        gone.mkdir()
        line = 'cd "$1" && rmdir "$1" && exec "$0" run --nproc-per-node 1 printenv RANK'
        result = self.run_program("sh", "-c", line, LOCKSTEP, gone)
        self.assertEqual(result.code, 0, result)
        self.assertIn("the working directory cannot be used (No such file or directory)", result.err)

    def test_an_endpoint_with_port_0_is_that_of_one_node(self):
        # As on torchrun's page for several jobs on a node.
        for nodes in ("1", "1:1"):
            result = self.succeed(1, "--rdzv-backend", "c10d", "--rdzv-endpoint", " localhost:0 ", "--nnodes", nodes,
                                  self.script('echo "$WORLD_SIZE $MASTER_PORT"'))
            self.assertRegex(result.out, r"^1 [1-9]\d+$")
        result = self.ranks(1, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--nnodes", "1:2", self.script("exit 0"))
        self.assert_refused(result, 2, "--rdzv-endpoint", "a port of 1 to 65535")

    def test_variables_of_torchrun_stand_for_flags(self):
        told = self.script('echo "$WORLD_SIZE $TORCHELASTIC_RUN_ID $TORCHELASTIC_MAX_RESTARTS"')
        run = lambda *flags, **variables: self.run_program(LOCKSTEP, "run", *flags, **variables)
        variables = dict(PET_NPROC_PER_NODE="2", PET_RDZV_ID="job", PET_MAX_RESTARTS="3", PET_STANDALONE="1", PET_NNODES="")
        self.assertEqual(run(told, **variables).out, "2 job 3\n" * 2)
        self.assertEqual(run("--nproc-per-node", 1, told, **variables, PET_TEE="3", PET_LOG_DIR=self.folder / "logs").out,
                         "[default0]:1 job 3\n")
        module = self.folder / "place.py"
        module.write_text("import os; print('rank', os.environ['RANK'])")
        self.assertEqual(run("place", PET_MODULE="1", PYTHONPATH=self.folder).out, "rank 0\n")
        program = self.script("exit 0")
        self.assertEqual(run(program, PET_STANDALONE="0", PET_NNODES="1", PET_NODE_RANK="0").code, 0)
        for variable, value, words in (("PET_NNODES", "2:1", ["--nnodes", "MIN:MAX", "2:1"]), ("PET_NODE_RANK", "one", ["--node-rank", "a whole number"]),
                                       ("PET_MASTER_PORT", "70000", ["--master-port", "70000"]), ("PET_STANDALONE", "maybe", ["1 or 0", "maybe"]),
                                       ("PET_NPROC_PER_NODE", "x", ["--nproc-per-node"]), ("PET_RDZV_CONF", "speed=1", ["--rdzv-conf", "speed"])):
            with self.subTest(variable):
                self.assert_refused(run(program, **{variable: value}), 2, "environment variable " + variable, *words)
        result = run(program, PET_START_METHOD="fork")
        self.assertEqual(result.code, 0, result)
        self.assertIn("PET_START_METHOD has no effect", result.err)

    def test_bad_input(self):
        program = self.script("exit 0")
        plain = self.folder / "plain"
        plain.write_text("text")
        for flags, words in (
                (["--nproc-per-node", "0", program], ["--nproc-per-node", "0", "a number >= 1"]),
                (["--nproc-per-node=", program], ["--nproc-per-node", "a number >= 1", 'got ""']),
                (["--tee=", "--nproc_per_node=", program], ["--nproc-per-node", 'got ""']),
                (["--rdzv-id=", "--log-dir=", program], ["--rdzv-id", 'got ""']),
                (["--nnodes", "2:1", program], ["--nnodes", "2:1", "MIN:MAX"]),
                (["--nnodes", "0", program], ["--nnodes", "0", "MIN:MAX"]),
                (["--nnodes", "2", "--standalone", program], ["--standalone", "--nnodes 1"]),
                (["--nnodes", "2", "--node-rank", "2", program], ["node_rank", "0..1", "2"]),
                (["--shutdown-timeout", "nan", program], ["--shutdown-timeout", "nan"]),
                (["--max-restarts", "-1", program], ["--max-restarts; expected a whole number >= 0", "-1"]),
                (["--tee", "4", program], ["--tee", "4", "3 (both)"]),
                (["--redirects", "0:3,1", program], ["--redirects", "0:3,1"]),
                (["-r", "0:3,0:1", program], ["--redirects", "each local rank once", "0:3,0:1"]),
                (["-r", "0:3,", program], ["--redirects", "0:3,"]),
                (["-m"], ["--module", "the name of a Python module"]),
                (["--bind-core-list", "", program], ["--bind-core-list", "0-3,8"]),
                (["--max-restarts", "some", program], ["--max-restarts", 'a whole number >= 0; got "some"']),
                (["--shutdown-timeout", "soon", program], ["--shutdown-timeout", '0 to 1000000 seconds; got "soon"']),
                (["--monitor-interval", "0", program], ["--monitor-interval", '0.001 to 1000000 seconds; got "0"']),
                (["--world-size", "0", program], ["--world-size", 'a whole number >= 1; got "0"']),
                (["--local-ranks-filter", "a", program], ["--local-ranks-filter", "a", "0,1"]),
                (["--tee", "0:1,1:1", program], ["--tee", "local ranks 0..0"]),
                (["-r", "2:3", program], ["--redirects", "local ranks 0..0"]),
                (["--nproc-per-node", "2", "--local-ranks-filter", "0,2", program], ["--local-ranks-filter", "local ranks 0..1"]),
                (["--nnodes", "1", "--nnodes", "1", program], ["--nnodes is given twice"]),
                (["--nnodes"], ["--nnodes needs a value"]),
                (["--bind-core-list", "3-1", program], ["--bind-core-list", "0-3,8"]),
                (["--bind-core-list", "65000", program], ["--bind-core-list", "65000"]),
                (["--numa-binding", "nowhere", program], ["--numa-binding", "core-complex"]),
                (["--numa-binding", "node", "--bind-cores", program], ["--numa-binding", "--bind-cores"]),
                (["x" * 5000], ["not in PATH"]),
                (["./" + "x" * 5000], ["File name too long"]),
                (["x" * 5000 + ".py"], ["File name too long"]),
                (["--nonsense", program], ["--nonsense", "--help"]),
                (["--nproc_per_nodes=2", program], ["--nproc_per_nodes=2", "did you mean --nproc-per-node?"]),
                ([], ["a program to run"]),
                (["absent_program"], ["absent_program", "not in PATH"]),
                (["./absent"], ["./absent", "no such file"]),
                (["absent.py"], ["absent.py", "no such file"]),
                ([plain], ["plain", "without permission to execute"]),
                ([self.folder], ["a folder"])):
            with self.subTest(flags=flags):
                self.assert_refused(self.run_program(LOCKSTEP, "run", *flags), 2, *words)

    def test_below_another_launcher(self):
        program = self.script("echo rank $RANK of $WORLD_SIZE")
        result = self.succeed(2, program, RANK="7", LOCAL_RANK="3", WORLD_SIZE="9", SLURM_NTASKS="2", SLURM_PROCID="1", SLURM_STEP_ID="0")
        self.assertEqual(sorted(result.out.splitlines()), ["rank 0 of 2", "rank 1 of 2"])

    def test_no_python_executes_the_file_itself(self):
        program = self.script("echo a shell").rename(self.folder / "program.py")
        self.assertEqual(self.succeed(1, "--no-python", program).out, "a shell\n")

    def test_what_cannot_be_executed_is_said(self):
        program = self.folder / "program"
        program.write_text("#!/no/such/interpreter\n")
        program.chmod(0o755)
        self.assert_refused(self.ranks(1, program), 2, program, "the interpreter /no/such/interpreter: no such file")
        program.write_text("#! /bin/sh\r\nexit 0\r\n")
        self.assert_refused(self.ranks(1, program), 2, "the interpreter /bin/sh and a carriage return")
        program.write_text("no program")
        self.assert_refused(self.ranks(1, program), 127, "cannot execute", "Exec format error")

    def test_folders_that_cannot_be_used_are_named(self):
        program = self.script("exit 0")
        plain = self.folder / "plain"
        plain.write_text("")
        self.assert_refused(self.ranks(1, "--tee", 1, "--log-dir", plain / "logs", program), 2, f"--log-dir {plain}/logs", "File exists")
        self.assert_refused(self.ranks(1, "--tee", 1, program, TMPDIR=str(plain)), 2, f"TMPDIR {plain}", "Not a directory")

    def test_a_program_in_between_may_close_descriptors(self):
        program = self.folder / "wrapper.py"
        for kind, ranks, code in (("none", 1, 0), ("throw", 2, 1)):
            program.write_text(f"import subprocess, sys\nsys.exit(subprocess.run(['{BINARY}/bin/launch_case', '{self.folder}', '{kind}']).returncode)\n")
            result = self.ranks(ranks, "--shutdown-timeout", 1, program)
            self.assertEqual(result.code, code, result)
            self.assertIn("Python's subprocess does by default", result.err)
            self.assertNotIn("the same version", result.err)
        self.assertRegex(result.err, r"lockstep: rank 1 \(pid \d+\) failed: injected fault")

    def test_who_is_tied_to_stdin_says_why_it_ends(self):
        process = self.start("sh", "-c", f"(while [ ! -e ready_0 ]; do sleep 0.02; done) | {LOCKSTEP} run --tied-to-stdin "
                             f"{self.script('touch ready_0; sleep 60')}")
        self.assert_refused(self.finish(process, 20), 137, "stdin has ended, to which this run is tied")

    def test_a_line_that_is_not_over_is_shown(self):
        result = self.ranks(1, self.script('printf "one\nfatal: x" >&2; exit 3'))
        self.assert_refused(result, 3, "stderr were\none\nfatal: x\n")
        self.assertIn("partial", self.succeed(1, self.script("printf partial >&2; sleep 2 & exit 0")).err)

    def test_a_reader_that_goes_away_ends_no_run(self):
        program = self.script("for i in $(seq 2000); do echo line $i >&2; done; touch done_$RANK")
        pipeline = f"{LOCKSTEP} run --nproc-per-node 2 {program} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"
        self.assertEqual(self.run_program("bash", "-c", pipeline).code, 0)
        self.assertTrue((self.folder / "done_0").exists() and (self.folder / "done_1").exists())

    def test_ranks_that_never_stop_writing_can_be_stopped(self):
        process = self.start("bash", "-c", f"exec {LOCKSTEP} run --nproc-per-node 2 {self.script('touch ready_$RANK; exec yes >&2')} 2> /dev/null")
        self.wait_for("ready_0", "ready_1")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process, deadline_s=20).code, 143)

    def test_an_output_that_nobody_reads_does_not_keep_a_run_from_its_end(self):
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 1, self.script("touch ready_0; exec yes >&2"))
        self.wait_for("ready_0")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 143)
        self.finish(process)

    def test_who_stops_a_run_wants_no_restart(self):
        program = self.script('echo x >> tries_$RANK; [ $RANK = 0 ] && { while [ ! -e ready_1 ]; do sleep 0.02; done; exit 1; }\n'
                              'trap "touch told" TERM; touch ready_1; while true; do sleep 0.1; done')
        process = self.start(LOCKSTEP, "run", "--nproc-per-node", 2, "--max-restarts", 3, "--shutdown-timeout", 3, program)
        self.wait_for("told")
        process.send_signal(signal.SIGTERM)
        self.assertNotIn("restart", self.finish(process).err)
        self.assertEqual((self.folder / "tries_1").read_text(), "x\n")

    def test_a_failure_leaves_nothing_behind(self):
        fails = "[ $RANK = 0 ] && { while [ ! -e ready_1 ]; do sleep 0.01; done; exit 3; }\n"
        family = self.FAMILY.replace("wait\n", fails + "wait\n")
        self.assertEqual(self.ranks(2, self.script(family)).code, 3)
        self.assert_ended(self.family(2))


if __name__ == "__main__":
    unittest.main()
