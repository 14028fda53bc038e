#!/usr/bin/env bash
# Everything that needs a CUDA device, in one go; the parts are listed in run.mjs. Asks for the CUDA toolkit, cuBLAS (the toolkit's or a
# Python package's), g++, cmake, make and Node.
#   npm run test:gpu [-- parts]
# With a packed folder (test/gpu/pack.mjs) also for machines without Node or packages: bash test/gpu/run.sh <folder> [parts]
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ -n "${1:-}" ] && [ -f "$1/node.xz" ]; then
  packed=$1
  shift
  mkdir -p /tmp/inferd-gpu
  xz -dc -T0 "$packed/node.xz" >/tmp/inferd-gpu/node
  chmod +x /tmp/inferd-gpu/node
  export PATH="/tmp/inferd-gpu:$PATH"
  tar -xf "$packed/packed.tar.xz"
fi
exec node test/gpu/run.mjs "$@"
