"""Hosts on this machine: network namespaces on one bridge, inside a network of this process alone.

A host is called node-0, node-1, ... and has the address 10.77.0.1, 10.77.0.2, ... at its interface eth0; all names are
known everywhere. At eth1 it has 10.78.0.1, ..., a network of its own.
"""
import os
import pathlib
import subprocess
import sys

BRIDGES = ("bridge-0", "bridge-1")
OUTSIDE = "LOCKSTEP_TEST_OUTSIDE"  # the network namespace that must not be touched


def enter_namespaces():
    """Goes on with mounts, network and process ids of its own, which end with the program."""
    here = os.readlink("/proc/self/ns/net")
    if OUTSIDE not in os.environ:
        if os.geteuid() != 0:
            sys.exit("these tests make networks and need root: sudo make test-system")
        own = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvpe("unshare", ["unshare", *own, sys.executable, *sys.argv], os.environ | {OUTSIDE: here})
    if os.environ.pop(OUTSIDE) == here:
        sys.exit("unshare has made no network")


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True)


class Network:
    """`hosts` of them; close() undoes all."""

    def __init__(self, hosts, folder):
        self.names = [f"node-{host}" for host in range(hosts)]
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        pathlib.Path("/run/netns").mkdir()
        table = pathlib.Path(folder) / "names_of_hosts"
        table.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(host)} {name}\n" for host, name in enumerate(self.names)))
        subprocess.run(["mount", "--bind", table, "/etc/hosts"], check=True)
        for bridge in BRIDGES:
            ip("link", "add", bridge, "type", "bridge")
            ip("link", "set", bridge, "up")
        for host, name in enumerate(self.names):
            self._add(host, name)

    def _add(self, host, name):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        for number, bridge in enumerate(BRIDGES):
            ip("link", "add", f"{name}-{number}", "type", "veth", "peer", "name", f"eth{number}", "netns", name)
            ip("link", "set", f"{name}-{number}", "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{self.address(host, number)}/24", "dev", f"eth{number}")
            ip("-n", name, "link", "set", f"eth{number}", "up")

    @staticmethod
    def address(host, interface=0):
        return f"10.{77 + interface}.0.{host + 1}"

    def on(self, host, *command):
        """`command`, to be executed on that host."""
        return ["ip", "netns", "exec", self.names[host], *map(str, command)]

    def cut(self, host):
        """From now on nothing comes from that host or reaches it, and nobody is told."""
        for number in range(len(BRIDGES)):
            ip("link", "set", f"{self.names[host]}-{number}", "down")

    def sent_bytes(self, host, interface):
        return int(subprocess.run(self.on(host, "cat", f"/sys/class/net/{interface}/statistics/tx_bytes"), capture_output=True, check=True).stdout)

    def slow_down(self, host, rate):
        """What that host sends goes at `rate`, such as 2mbit."""
        subprocess.run(self.on(host, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16k",
                               "latency", "400ms"), check=True)

    def close(self):
        for name in self.names:
            for number in range(len(BRIDGES)):
                ip("link", "delete", f"{name}-{number}")
            ip("netns", "delete", name)
        for bridge in BRIDGES:
            ip("link", "delete", bridge)
        subprocess.run(["umount", "/etc/hosts"], check=True)
        subprocess.run(["umount", "--recursive", "/run"], check=True)  # ip has mounted there, too
