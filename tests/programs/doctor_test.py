"""`lockstep doctor` on this machine as it is, and with something really broken."""
import json
import os
import resource
import shutil
import time
import unittest

from harness import BINARY, ProgramTest

COMMAND = BINARY / "bin" / "lockstep"
SELF_TEST = BINARY / "bin" / "lockstep-self-test"
CHECKS = ["lockstep", "system", "LibTorch", "accelerators", "processors", "memory", "limits", "shared memory", "host names", "interfaces", "ports",
          "cluster", "variables", "self-test"]


class Doctor(ProgramTest):
    def report(self, *flags, command=COMMAND, code=0, preexec_fn=None, **environment):
        """What `lockstep doctor --json` has found."""
        result = self.finish(self.start(command, "doctor", "--json", *flags, preexec_fn=preexec_fn, **environment))
        self.assertEqual((result.code, result.err), (code, ""), result)
        report = json.loads(result.out)
        self.assertEqual(report["healthy"], code == 0)
        return report

    def said(self, report, check, state):
        return "\n".join(f"{each['text']} -> {each['advice']}" for each in report["findings"] if (each["check"], each["state"]) == (check, state))

    def timings(self, report):
        return [each for each in report["findings"] if each["check"] == "self-test" and each["unit"] == "microseconds"]

    def broken_copy(self, self_test=None):
        """The command with another program, or none, in the place of lockstep-self-test."""
        (self.folder / "bin").mkdir()
        (self.folder / "lib").symlink_to(BINARY / "lib")
        shutil.copy2(COMMAND, self.folder / "bin" / "lockstep")
        if self_test is not None:
            file = self.folder / "bin" / "lockstep-self-test"
            libraries = self.run_program(SELF_TEST, "libraries").out.strip()
            file.write_text(f"#!/bin/sh\n[ \"$1\" = libraries ] && exec echo '{libraries}'\n{self_test}\n")
            file.chmod(0o755)
        return self.folder / "bin" / "lockstep"


class Healthy(Doctor):
    def test_the_text_has_every_check_and_the_times_of_the_ranks(self):
        result = self.run_program(COMMAND, "doctor")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertEqual([line[10:25].strip() for line in result.out.splitlines() if line.startswith("[") and line[10] != " "], CHECKS)
        self.assertRegex(result.out, r"\[ok\] +self-test +2 ranks were started, added tensors and ended within \d+\.\d\d s")
        self.assertRegex(result.out, r"all_reduce of 4\.00 MiB by shared memory: \d+\.\d\d us, the median of 20\n")
        self.assertRegex(result.out, r"all_reduce of 4\.00 KiB by sockets: \d+\.\d\d us, the median of 200\n")
        self.assertIn("\n0 errors, ", result.out)

    def test_json_has_the_numbers_with_their_units(self):
        report = self.report()
        version = self.run_program(COMMAND, "--version").out
        self.assertIn(f"lockstep {report['lockstep']}\n", version)
        self.assertIn(report["commit"], version)
        self.assertEqual(sorted({each["check"] for each in report["findings"]}), sorted(CHECKS))
        self.assertEqual(sum(report["counts"].values()), len(report["findings"]))
        timings = self.timings(report)
        for way in ("shared memory", "sockets"):
            self.assertEqual([f"by {way}: " in each["text"] for each in timings].count(True), 2, timings)
        self.assertTrue(all(each["value"] > 0 for each in timings))
        processors = next(each for each in report["findings"] if each["check"] == "processors")
        self.assertEqual((processors["value"], processors["unit"]), (len(os.sched_getaffinity(0)), "processors"))

    def test_more_ranks_and_no_ranks(self):
        report = self.report("--ranks", 3)
        self.assertIn("3 ranks were started", self.said(report, "self-test", "ok"))
        report = self.report("--no-self-test")
        self.assertIn("--no-self-test", self.said(report, "self-test", "note"))
        self.assertEqual(self.timings(report), [])

    def test_without_shared_memory_all_goes_by_sockets(self):
        report = self.report(LOCKSTEP_SHARED_MEMORY="0")
        self.assertIn("sockets alone", self.said(report, "shared memory", "note"))
        self.assertIn("do not share memory", self.said(report, "self-test", "note"))
        self.assertEqual(["sockets" in each["text"] for each in self.timings(report)], [True, True])

    def test_a_rank_of_another_launcher_may_ask_too(self):
        place = {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
        report = self.report(**place)
        self.assertIn("as one of 4 ranks", self.said(report, "cluster", "note"))
        self.assertIn("2 ranks were started", self.said(report, "self-test", "ok"))

    def test_secrets_stay_untold(self):
        result = self.run_program(COMMAND, "doctor", "--no-self-test", LOCKSTEP_STORE_TOKEN="hunter2", MLFLOW_TRACKING_TOKEN="hunter3",
                                  LOCKSTEP_SHARED_MEMORY="1")
        self.assertNotIn("hunter", result.out)
        self.assertIn("LOCKSTEP_STORE_TOKEN", result.out)
        self.assertIn("LOCKSTEP_SHARED_MEMORY=1", result.out)

    def test_wrong_flags(self):
        for words, text in ((("--ranks", 1), "a whole number >= 2"), (("--timeout", "soon"), '"soon"'), (("--timeout", 0.5), "1 to 1000000 seconds"),
                            (("--jsn",), "did you mean --json?"), (("x",), '"x" is one too many')):
            self.assert_refused(self.run_program(COMMAND, "doctor", *words), 2, text)


class Broken(Doctor):
    def test_too_few_open_files(self):
        report = self.report(code=1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16)))
        self.assertIn("open files: 16, which lockstep raises up to 16", self.said(report, "limits", "error"))
        self.assertIn("ulimit -n", self.said(report, "self-test", "error"))

    def test_a_host_without_an_address(self):
        report = self.report("--no-self-test", "--host", "no host has this name", "--host", "localhost", code=1)
        self.assertIn("The host no host has this name cannot be resolved", self.said(report, "host names", "error"))
        self.assertIn("localhost is ", self.said(report, "host names", "ok"))
        report = self.report("--no-self-test", code=1, MASTER_ADDR="no host has this name")
        self.assertIn("The host no host has this name cannot be resolved", self.said(report, "cluster", "error"))

    def test_variables_that_ranks_refuse(self):
        report = self.report(code=1, GLOO_SOCKET_IFNAME="nowhere0")
        self.assertIn("names nowhere0, which is no interface", self.said(report, "interfaces", "error"))
        self.assertIn("network interface nowhere0 has no address", self.said(report, "self-test", "error"))
        report = self.report(code=1, LOCKSTEP_SHARED_MEMORY="7")
        self.assertIn('LOCKSTEP_SHARED_MEMORY is "7"', self.said(report, "shared memory", "error"))
        self.assertIn("LOCKSTEP_SHARED_MEMORY", self.said(report, "self-test", "error"))
        report = self.report("--no-self-test", code=1, RANK="x", WORLD_SIZE="2")
        self.assertIn("RANK", self.said(report, "cluster", "error"))

    def test_a_program_that_is_not_there_or_cannot_load_its_libraries(self):
        command = self.broken_copy()
        report = self.report(command=command, code=1)
        self.assertIn("install lockstep as a whole", self.said(report, "LibTorch", "error"))
        self.assertIn("left out", self.said(report, "self-test", "note"))
        (self.folder / "lib").unlink()
        (self.folder / "lib").mkdir()
        for library in (BINARY / "lib").glob("liblockstep_core.so*"):
            (self.folder / "lib" / library.name).symlink_to(library)
        shutil.copy2(SELF_TEST, self.folder / "bin")
        report = self.report(command=command, code=1)
        self.assertIn("liblockstep.so", self.said(report, "LibTorch", "error"))
        self.assertIn("LD_LIBRARY_PATH", self.said(report, "LibTorch", "error"))

    def test_ranks_that_hang_are_told_within_the_deadline_and_ended(self):
        command = self.broken_copy(f"echo $$ >{self.folder}/pid$RANK; echo here is rank $RANK; exec sleep 1000")
        begin = time.monotonic()
        report = self.report("--timeout", 5, command=command, code=1)
        self.assertLess(time.monotonic() - begin, 60)
        said = self.said(report, "self-test", "error")
        self.assertIn("has not ended; expected its end within 5000 ms", said)
        self.assertIn("here is rank 1", said)
        self.assert_ended(["pid0", "pid1"])

    def test_a_rank_that_stays_away_is_named_before_the_deadline(self):
        command = self.broken_copy(f'[ "$RANK" = 1 ] && exec sleep 1000\nexec {SELF_TEST} "$@"')
        report = self.report("--timeout", 30, command=command, code=1)
        self.assertRegex(self.said(report, "self-test", "error"), r"rank 1|ranks? .*1")
        self.assertNotIn("has not ended", self.said(report, "self-test", "error"))

    def test_a_rank_that_dies_is_named(self):
        command = self.broken_copy(f'[ "$RANK" = 1 ] && exit 7\nexec {SELF_TEST} "$@"')
        report = self.report(command=command, code=1)
        self.assertIn("rank 1", self.said(report, "self-test", "error"))
        self.assertIn("7", self.said(report, "self-test", "error"))


if __name__ == "__main__":
    unittest.main()
