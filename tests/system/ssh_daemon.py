"""The real sshd on hosts of network.py, with keys of its own; nothing of it outlives the test's namespaces."""
import getpass
import pathlib
import subprocess
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SYSTEM = SOURCE / "build" / "system"  # made by tools/system.sh

CONFIG = """
Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
"""


class SshDaemons:
    """On all hosts of `network`; `flags` are those of `lockstep run` that let ssh find them."""

    def __init__(self, network, folder):
        self.folder = pathlib.Path(folder) / "ssh"
        self.folder.mkdir(mode=0o700)
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        (self.folder / "config").write_text(CONFIG.format(folder=self.folder))
        self._be_a_machine()
        self.processes = [subprocess.Popen(network.on(host, SYSTEM / "sshd", "-D", "-f", self.folder / "config"))
                          for host in range(len(network.names))]
        self.flags = ["--ssh-args", f"-i {self.folder}/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
                                    f"-o LogLevel=ERROR -l {getpass.getuser()}"]
        for host in range(len(network.names)):
            self._wait_for(network, host)

    # sshd wants a user and a folder, which are there in our mount namespace alone; /run is the network's own.
    def _be_a_machine(self):
        users = self.folder / "passwd"
        users.write_text(pathlib.Path("/etc/passwd").read_text() + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
        subprocess.run(["mount", "--bind", users, "/etc/passwd"], check=True)
        pathlib.Path("/run/sshd").mkdir(mode=0o755)

    @staticmethod
    def _wait_for(network, host):
        for _ in range(2000):
            if ":22 " in subprocess.run(network.on(host, "ss", "-ltnH"), capture_output=True, text=True, check=True).stdout:
                return
            time.sleep(0.02)
        raise RuntimeError(f"no sshd on {network.names[host]}")

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        subprocess.run(["umount", "/etc/passwd"], check=True)
