"""Shell completion as bash does it: a terminal, the script of the program, and keys."""
import os
import pathlib
import pty
import select
import signal
import time
import unittest

from harness import DIGITS, ProgramTest

INSERT_ALL = b"\x1b*"  # readline: puts all completions of the word into the line
DEADLINE_S = 60
INPUTRC = "set enable-bracketed-paste off\nset bell-style none\n"


class Bash:
    """An interactive bash on a terminal of its own, in which `digits` writes down its arguments."""

    def __init__(self, folder, script):
        self.folder, self.number = folder, 0
        (folder / "inputrc").write_text(INPUTRC)
        (folder / "script").write_text(script)
        (folder / "rc").write_text('source ./script\ndigits() { printf "%s\\n" "$@" >words.part; mv words.part "$WORDS"; }\nPS1=ready\n')
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "INPUTRC": str(folder / "inputrc")}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--noprofile", "--rcfile", "rc", "-i"], environment)
        self.await_(lambda shown: "ready" in shown)

    def await_(self, is_there):
        shown, end = "", time.monotonic() + DEADLINE_S
        while not is_there(shown):
            if time.monotonic() > end:
                raise AssertionError(f"bash shows after {DEADLINE_S} s: {shown!r}")
            if select.select([self.terminal], [], [], 0.05)[0]:
                shown += os.read(self.terminal, 65536).decode(errors="replace")
        return shown

    def complete(self, line):
        """The words of `line` with all completions of its last one."""
        self.number += 1
        words = self.folder / f"words{self.number}"
        os.write(self.terminal, f"export WORDS={words.name}\n".encode() + line.encode() + INSERT_ALL + b"\n")
        self.await_(lambda _: words.exists())
        return words.read_text().splitlines()

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


class Completion(ProgramTest):
    def setUp(self):
        super().setUp()
        result = self.run_program(DIGITS, "--completion", "bash")
        self.assertEqual(result.code, 0, result)
        self.bash = Bash(self.folder, result.out)
        self.addCleanup(self.bash.close)

    def test_verbs(self):
        self.assertEqual(self.bash.complete("digits t"), ["test", "tune"])
        self.assertEqual(self.bash.complete("digits va"), ["validate"])

    def test_flags(self):
        self.assertEqual(self.bash.complete("digits fit --trainer.max_e"), ["fit", "--trainer.max_epochs"])
        self.assertEqual(self.bash.complete("digits --data."),
                         ["--data.batch_size", "--data.file", "--data.num_workers", "--data.val_fraction"])
        everything = set(self.bash.complete("digits --"))
        keys = {line.split()[0] for line in self.run_program(DIGITS, "--help").out.splitlines() if line.startswith("  --")}
        self.assertEqual({flag for flag in keys if flag not in everything}, set())

    def test_words_of_a_flag_behind_a_blank_and_behind_an_equals_sign(self):
        self.assertEqual(self.bash.complete("digits --trainer.strategy single_d"), ["--trainer.strategy", "single_device"])
        self.assertEqual(self.bash.complete("digits --trainer.strategy=single_d"), ["--trainer.strategy=single_device"])
        self.assertEqual(self.bash.complete("digits --optimizer.name "),
                         ["--optimizer.name", "adagrad", "adamw", "lamb", "lion", "muon", "sgd"])
        self.assertEqual(self.bash.complete("digits --trainer.barebones t"), ["--trainer.barebones", "true"])
        self.assertEqual(self.bash.complete("digits --trainer.barebones --print"), ["--trainer.barebones", "--print_config"])

    def test_what_is_not_built_is_not_offered(self):
        self.assertEqual(self.bash.complete("digits --trainer.strategy xla_"), ["--trainer.strategy", "xla_"])

    def test_files(self):
        (self.folder / "run one.yaml").write_text("")
        self.assertEqual(self.bash.complete("digits -c run"), ["-c", "run one.yaml"])
        self.assertEqual(self.bash.complete("digits --data.file run"), ["--data.file", "run one.yaml"])

    def test_a_path_to_the_program_completes_as_well(self):
        (self.folder / "digits").write_text('#!/bin/bash\nprintf "%s\\n" "$@" >words.part; mv words.part "$WORDS"\n')
        (self.folder / "digits").chmod(0o755)
        self.assertEqual(self.bash.complete("./digits va"), ["validate"])


class Scripts(ProgramTest):
    def test_every_shell_has_one_and_others_are_refused(self):
        for shell, words in {"bash": "complete -F", "zsh": "#compdef digits", "fish": "complete -c digits"}.items():
            result = self.run_program(DIGITS, "--completion", shell)
            self.assertEqual(result.code, 0, result)
            self.assertIn(words, result.out)
            self.assertIn("trainer.max_epochs", result.out)
        self.assert_refused(self.run_program(DIGITS, "--completion", "tcsh"), 2, "tcsh", "bash, zsh, fish")


if __name__ == "__main__":
    unittest.main()
