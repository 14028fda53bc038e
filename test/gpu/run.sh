#!/usr/bin/env bash
# Everything that needs a CUDA device, in one go: builds the native code, then runs the op table against float64 references, the golden
# packs, the evaluation set, profiles, and the bench, which prints its table last. Asks for the CUDA toolkit, g++, cmake, make and Node.
#   npm run test:gpu [-- ops golden eval profile bench]
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
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(ops golden eval profile bench)

INFERD_CUDA=1 node native/build.mjs
status=0
for part in "${parts[@]}"; do
  if [ "$part" = bench ]; then
    node dist/test/gpu/bench.js || status=1
  else
    node --test "dist/test/gpu/$part.test.js" || status=1
  fi
done
exit $status
