#!/usr/bin/env bash
# Builds the project of docs/tutorials/000 against an installed package and against a build folder, as the page says, and trains.
# Usage: own_project_test.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
project=examples/06_own_environment_and_strategy
cp -r "$source/$project" "$work/project"

cmake --install "$build" --prefix "$work/prefix" >/dev/null
for place in "CMAKE_PREFIX_PATH=$work/prefix" "lockstep_DIR=$build"; do
  own=$work/${place%%=*}
  cmake -S "$work/project" -B "$own" -G Ninja -D "$place" >/dev/null
  cmake --build "$own" >/dev/null
  if [[ $place == CMAKE_PREFIX_PATH* ]]; then
    found=$(ldd "$own/local_sgd" | awk '/liblockstep\.so/ {print $3}')
    [[ $found == "$work/prefix/"* ]]
  fi
  cd "$work"
  "$work/project/pool_run.py" 2 "$own/local_sgd" --train.data "$source/data/digits.csv.gz" --trainer.max_steps 4 | tee "$work/out"
  grep -q 'trained on 2 ranks' "$work/out"
done
