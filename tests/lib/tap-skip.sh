#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tap-skip.sh PROGRAM: runs a test program for automake's TAP driver, which takes cmocka's "not ok #
# SKIP" for a failure.
set -o pipefail
"$@" | sed -u -E 's/^not (ok .*# *SKIP)/\1/'
