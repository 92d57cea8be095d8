#!/usr/bin/env bash
# What `make test-system` needs beside what `make test` does: root, Debian's packages for networks of namespaces, a
# scheduler and launchers, build/system/conan with Conan, build/system/sshd, which is unpacked there rather than
# installed, so that no daemon is started, and build/system/bare.tar, this system as it is when nothing has been
# installed on it.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(iproute2 openssh-client util-linux slurm-wlm munge openmpi-bin mpich debootstrap dpkg-dev)
folder=build/system
conan_version=2.34.0

if [ "$(id -u)" -ne 0 ]; then
  echo "system: these tests make networks and need root: sudo make test-system" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "system: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

make_bare_system() {
  local suite mirror
  # shellcheck source=/dev/null
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' | sed -n "s/^$suite //p" | head -1)
  echo "system: making a bare $suite in $folder"
  rm -rf "$folder/bare"
  unshare --mount debootstrap --variant=minbase "$suite" "$folder/bare" "$mirror" >"$folder/debootstrap.log" \
    || { echo "system: debootstrap failed; see $folder/debootstrap.log" >&2; exit 1; }
  tar -C "$folder/bare" -cf "$folder/bare.tar.new" .
  rm -rf "$folder/bare"
  mv "$folder/bare.tar.new" "$folder/bare.tar"
}

install_conan() {
  echo "system: installing Conan into $folder"
  rm -rf "$folder/conan"
  python3 -m venv "$folder/conan"
  "$folder/conan/bin/pip" install --quiet --no-compile --disable-pip-version-check "conan==$conan_version"
}

mkdir -p "$folder"
[ -e "$folder/bare.tar" ] || make_bare_system
"$folder/conan/bin/conan" --version >/dev/null 2>&1 || install_conan
[ -x "$folder/sshd" ] && exit 0
if command -v /usr/sbin/sshd >/dev/null; then
  ln -sfn /usr/sbin/sshd "$folder/sshd"
  exit 0
fi
echo "system: fetching sshd into $folder"
download() {
  rm -rf "$folder/debs" "$folder/root"
  mkdir -p "$folder/debs" "$folder/root"
  (cd "$folder/debs" && apt-get download -qq -o APT::Sandbox::User=root openssh-server libwrap0 >/dev/null)
}
download 2>/dev/null || { apt-get update -qq && download; }
for package in "$folder"/debs/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -rf "$folder/debs"
cat > "$folder/sshd.new" <<'RUN'
#!/usr/bin/env bash
# sshd with the library beside it.
root="$(dirname "$(realpath "$0")")/root"
export LD_LIBRARY_PATH="$(dirname "$(find "$root" -name 'libwrap.so.0' | head -1)")"
exec "$root/usr/sbin/sshd" "$@"
RUN
chmod +x "$folder/sshd.new"
mv "$folder/sshd.new" "$folder/sshd"
