"""Runs lockstep's programs as a user would, with a deadline, and looks at what they leave."""
import bisect
import importlib.util
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
PEERS_PYTHON = SOURCE / "build" / "peers" / "bin" / "python"
DIGITS = BINARY / "bin" / "digits"

# A shell that starts the tests in the background has them ignore these, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def use_peers(package):
    """Goes on in build/peers, the virtual environment of the Python packages, unless `package` is here already."""
    if importlib.util.find_spec(package) is not None:
        return
    if pathlib.Path(sys.prefix).resolve() == PEERS_PYTHON.parents[1].resolve():
        sys.exit(f"build/peers lacks {package}: make it anew with tools/peers.sh")
    os.execv(PEERS_PYTHON, [str(PEERS_PYTHON), *sys.argv])


def free_port():
    """A port that nobody listens on, of those that Linux gives to no connection meanwhile: these begin at 32768."""
    while True:
        port = random.SystemRandom().randrange(25001, 32768)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def is_running(pid):
    """Whether a process is there and not a zombie; it may vanish while it is looked at."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid):
    """This process and those below it, as far as they are still there."""
    found = [pid]
    for parent in found:
        try:
            for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def data_limit(limit_mib):
    """For `preexec_fn`: the program and those below it may have no more memory of their own than that, each."""
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit_mib << 20, limit_mib << 20))


def data_kib(pid):
    """What a process has of the memory that RLIMIT_DATA limits; 0 when it has ended."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class ProgramTest(unittest.TestCase):
    """Gives each test a folder of its own, in which programs run; no flag of the outside reaches them."""

    def setUp(self):
        everybody = BINARY / "test_files"
        everybody.mkdir(exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=everybody))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def environment(self, **extra):
        hidden = ("LOCKSTEP_TRAINER", "LOCKSTEP_FABRIC", "MASTER_", "RANK", "LOCAL_", "WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        return kept | {"OMP_NUM_THREADS": "1"} | extra

    def start(self, *command, cwd=None, preexec_fn=None, **environment):
        return subprocess.Popen([str(word) for word in command], cwd=cwd or self.folder, env=self.environment(**environment),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=preexec_fn)

    def finish(self, process, deadline_s=100):
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"still running after {deadline_s} s\n{out}\n{err}")
        return Result(process.returncode, out, err)

    def run_program(self, *command, **environment):
        return self.finish(self.start(*command, **environment))

    def least_data_mib(self, *command):
        """The least limit of its memory within which a short program succeeds."""
        def succeeds(limit_mib):
            return self.finish(self.start(*command, preexec_fn=data_limit(limit_mib))).code == 0
        return bisect.bisect_left(range(4096), True, lo=1, key=succeeds)

    def peak_data_mib(self, process, deadline_s=300):
        """The most that one process of a run takes of what RLIMIT_DATA limits, while it lasts; it must succeed."""
        peak_kib = 0
        end = time.monotonic() + deadline_s
        while process.poll() is None and time.monotonic() < end:
            peak_kib = max([peak_kib, *map(data_kib, descendants(process.pid))])
            time.sleep(0.005)
        result = self.finish(process, deadline_s=5)
        self.assertEqual(result.code, 0, result)
        return peak_kib >> 10

    def wait_for(self, *names, deadline_s=100):
        """Until programs have made these files."""
        end = time.monotonic() + deadline_s
        while not all((self.folder / name).exists() for name in names):
            self.assertLess(time.monotonic(), end, f"{names} did not come")
            time.sleep(0.02)

    def wait_until(self, holds, deadline_s=100):
        """Until a function returns what is true."""
        end = time.monotonic() + deadline_s
        while not holds():
            self.assertLess(time.monotonic(), end, "it did not become true")
            time.sleep(0.02)

    def assert_ended(self, pids, deadline_s=5):
        """These processes end in time; a name stands for the file that holds the number."""
        pids = [int(pid if str(pid).isdigit() else (self.folder / pid).read_text()) for pid in pids]
        end = time.monotonic() + deadline_s
        while any(is_running(pid) for pid in pids):
            self.assertLess(time.monotonic(), end, f"of {pids} some are still there")
            time.sleep(0.02)

    def digits(self, *flags, **environment):
        data = [] if any(str(flag).startswith("--data.file") for flag in flags) else ["--data.file", SOURCE / "data" / "digits.csv.gz"]
        run_dir = [] if "--run_dir" in flags else ["--run_dir", self.folder / "run"]
        return self.run_program(DIGITS, *flags, *data, *run_dir, **environment)

    def assert_refused(self, result, code, *words):
        self.assertEqual(result.code, code, result)
        for word in words:
            self.assertIn(str(word), result.err, result)
        self.assertNotIn("terminate called", result.err)
        self.assertNotIn("C++ exception", result.err)
