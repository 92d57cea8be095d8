#!/usr/bin/env bash
# Makes the site of the documentation: build/docs/html/index.html. Sphinx and what it needs go into build/docs/venv; Doxygen is that of
# the machine, or Debian's package unpacked into build/docs/tools, for which nobody need be root. A warning is an error, and so is
# a public symbol that nothing documents. Usage: tools/docs.sh [--fetch]; with the argument it only fetches what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/docs
venv="$folder/venv"
requirements="sphinx==8.1.3 docutils==0.21.2 myst-parser==4.0.1 breathe==4.36.0 furo==2025.12.19"
mkdir -p "$folder"

make_environment() {
  echo "docs: making $venv with Sphinx"
  rm -rf "$venv"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086
  "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check $requirements
  echo "$requirements" > "$venv/requirements.txt"
}

download_doxygen() {
  local packages
  packages="$(LC_ALL=C apt-get install --simulate --no-install-recommends doxygen 2>/dev/null | awk '/^Inst /{print $2}')"
  rm -rf "$folder/debs" "$folder/tools"
  mkdir -p "$folder/debs" "$folder/tools"
  # shellcheck disable=SC2086
  [ -n "$packages" ] && (cd "$folder/debs" && apt-get download -qq -o APT::Sandbox::User=root $packages >/dev/null)
}
update_lists() { [ "$(id -u)" -eq 0 ] && apt-get update -qq; }  # where the lists of packages are old, or not there

fetch_doxygen() {
  echo "docs: fetching Doxygen (about 12 MB) into $folder/tools"
  if ! { command -v apt-get >/dev/null && { download_doxygen 2>/dev/null || { update_lists && download_doxygen; }; }; }; then
    echo "docs: apt-get has no doxygen; install Doxygen 1.9 or later" >&2
    exit 1
  fi
  local package
  for package in "$folder"/debs/*.deb; do dpkg-deb --extract "$package" "$folder/tools"; done
  rm -rf "$folder/debs"
  run_doxygen --version >/dev/null
}
run_doxygen() {
  if [ -x "$folder/tools/usr/bin/doxygen" ]; then
    LD_LIBRARY_PATH="$(find "$PWD/$folder/tools/usr/lib" -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd :)" \
      "$folder/tools/usr/bin/doxygen" "$@"
  else
    doxygen "$@"
  fi
}

[ "$(cat "$venv/requirements.txt" 2>/dev/null)" = "$requirements" ] || make_environment
[ -x "$folder/tools/usr/bin/doxygen" ] || command -v doxygen >/dev/null || fetch_doxygen
[ "${1:-}" != --fetch ] || exit 0

rm -rf "$folder/doxygen"
mkdir -p "$folder/doxygen"
run_doxygen docs/site/Doxyfile 2> "$folder/doxygen/warnings.txt"
if grep -v -e DOT_GRAPH -e 'are not documented:' -e "^  parameter '" "$folder/doxygen/warnings.txt" >&2; then exit 1; fi
"$venv/bin/python" docs/site/check_comments.py > "$folder/comments.txt" || { cat "$folder/comments.txt" >&2; exit 1; }
command=$(ls -t build/*/bin/lockstep 2>/dev/null | head -1 || true)
"$venv/bin/python" docs/site/pages.py ${command:+--command "$command"}
"$venv/bin/python" -m sphinx -W --keep-going -q -j auto -c docs/site -d "$folder/doctrees" -b html "$folder/source" "$folder/html"
echo "docs: $folder/html/index.html"
