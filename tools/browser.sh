#!/usr/bin/env bash
# Makes build/browser/chromium, a Chromium without windows with which tests look at pages. One that is installed is
# taken; else Debian's packages are unpacked into build/browser, for which nobody need be root.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/browser
[ -x "$folder/chromium" ] && exit 0
mkdir -p "$folder"

for program in chromium-headless-shell google-chrome chromium; do
  if command -v "$program" >/dev/null && "$program" --version >/dev/null 2>&1; then
    ln -sfn "$(command -v "$program")" "$folder/chromium"
    exit 0
  fi
done

echo "browser: fetching Chromium (about 100 MB) into $folder"
wanted="chromium-headless-shell fonts-dejavu-core"
missing_packages() {
  LC_ALL=C apt-get install --simulate --no-install-recommends $wanted 2>/dev/null | awk '/^Inst /{print $2}'
}
download() {
  local packages; packages="$(missing_packages)"
  rm -rf "$folder/debs" "$folder/root"
  mkdir -p "$folder/debs" "$folder/root"
  # shellcheck disable=SC2086
  [ -n "$packages" ] && (cd "$folder/debs" && apt-get download -qq -o APT::Sandbox::User=root $packages >/dev/null)
}
update() { [ "$(id -u)" -eq 0 ] && apt-get update -qq; }  # where the lists of packages are old, or not there

if ! { command -v apt-get >/dev/null && { download 2>/dev/null || { update && download; }; }; }; then
  echo "browser: apt-get has no chromium-headless-shell; install Chrome or Chromium for the tests of pages" >&2
  exit 1
fi
for package in "$folder"/debs/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -rf "$folder/debs"

cat > "$folder/chromium.new" <<'RUN'
#!/usr/bin/env bash
# Chromium with the libraries and fonts beside it.
root="$(dirname "$(realpath "$0")")/root"
export LD_LIBRARY_PATH="$(find "$root/usr/lib" -maxdepth 2 -name '*-linux-gnu*' -printf '%p:%p/pulseaudio:')${LD_LIBRARY_PATH:-}"
export XDG_DATA_HOME="$root/usr/share"
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_PATH="$root/etc/fonts"
exec "$root/usr/lib/chromium/chromium-headless-shell" "$@"
RUN
chmod +x "$folder/chromium.new"
"$folder/chromium.new" --version >/dev/null
mv "$folder/chromium.new" "$folder/chromium"
