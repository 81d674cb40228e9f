#!/bin/bash
# Installs real engines for the tests; see install.py. Usage: install.sh vllm|sglang|llamacpp|transformers|models[=NAME,…] …
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
for python in python3.11 python3; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    exec "$python" "$here/install.py" "$@"
  fi
done
echo "install.sh: no Python of 3.11 or later was found as python3.11 or python3; install one and try again" >&2
exit 1
