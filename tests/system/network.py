"""Hosts on this machine: network namespaces on one bridge, inside a network of this process alone.

A host is called node-0, node-1, ... and has the address 10.77.0.1, 10.77.0.2, ...; all names are known everywhere.
"""
import os
import pathlib
import subprocess
import sys

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
        pathlib.Path("/run/netns").mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
        table = pathlib.Path(folder) / "names_of_hosts"
        table.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(host)} {name}\n" for host, name in enumerate(self.names)))
        subprocess.run(["mount", "--bind", table, "/etc/hosts"], check=True)
        ip("link", "add", "bridge", "type", "bridge")
        ip("link", "set", "bridge", "up")
        for host, name in enumerate(self.names):
            self._add(host, name)

    def _add(self, host, name):
        ip("netns", "add", name)
        ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"to-{name}", "master", "bridge", "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def on(self, host, *command):
        """`command`, to be executed on that host."""
        return ["ip", "netns", "exec", self.names[host], *map(str, command)]

    def cut(self, host):
        """From now on nothing comes from that host or reaches it, and nobody is told."""
        ip("link", "set", f"to-{self.names[host]}", "down")

    def slow_down(self, host, rate):
        """What that host sends goes at `rate`, such as 2mbit."""
        subprocess.run(self.on(host, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16k",
                               "latency", "400ms"), check=True)

    def close(self):
        for name in self.names:
            ip("link", "delete", f"to-{name}")
            ip("netns", "delete", name)
        ip("link", "delete", "bridge")
        subprocess.run(["umount", "/etc/hosts", "/run/netns"], check=True)
