#!/usr/bin/env bash
# What `make test-system` needs beside what `make test` does: root, and Debian's packages for networks of namespaces.
set -euo pipefail

packages=(iproute2 util-linux)

if [ "$(id -u)" -ne 0 ]; then
  echo "system: these tests make networks and need root: sudo make test-system" >&2
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
echo "system: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
