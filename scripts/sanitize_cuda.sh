#!/usr/bin/env bash
# Runs compute-sanitizer over the CUDA tests: memcheck, initcheck, racecheck and synccheck on launch kernels and rings.
#
#     scripts/sanitize_cuda.sh build/cuda/exec_tests [folder for logs]
#
# Left out under memcheck: UploadsAndLaunchesGoOnBesideARing. The tool makes cudaMalloc wait for the kernels that run,
# which is what the test forbids. Errors that an API call reports are not counted: a test asks for too much memory.
set -u
tests=${1:?usage: scripts/sanitize_cuda.sh build/cuda/exec_tests [folder for logs]}
logs=${2:-$(mktemp -d)}
tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | head -1)
if [ -z "$tool" ]; then
  echo "compute-sanitizer is not here: it comes with the CUDA toolkit" >&2
  exit 4
fi
slabs='*Slabs*/cuda*:*Resident*/cuda:*Memory*/cuda:*Offsets/cuda:*Refuses*/cuda'
rings='*Rings*/cuda:*TwoGenerations*/cuda:*Timed*/cuda:*FlagRing*/cuda'
failed=0
run() {
  local name=$1 kind=$2 filter=$3
  if timeout -k 5 300 "$tool" --tool "$kind" --report-api-errors no --error-exitcode 9 "$tests" \
    --gtest_filter="$filter" > "$logs/$name.log" 2>&1 && grep -q '  PASSED  ' "$logs/$name.log"; then
    echo "$name: clean"
  else
    failed=1
    echo "$name: failed, see $logs/$name.log"
  fi
  grep -E 'SUMMARY|  PASSED  |  FAILED  |SKIPPED' "$logs/$name.log" | sort -u | sed 's/^/    /'
}
run memcheck-launch memcheck "$slabs"
run initcheck-launch initcheck "$slabs"
run racecheck-launch racecheck "$slabs"
run synccheck-launch synccheck "$slabs"
run memcheck-rings memcheck "$rings"
run racecheck-rings racecheck '*TwoGenerations*/cuda:*Timed*/cuda'
run synccheck-rings synccheck "$rings"
exit "$failed"
