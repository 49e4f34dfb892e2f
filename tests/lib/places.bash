# SPDX-License-Identifier: Apache-2.0
# For the bats files: where the sources and the build are, unless tests/run.sh has said so.
# shellcheck shell=bash

: "${MUSTER_TOP:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}"
: "${MUSTER_BUILD:=$MUSTER_TOP/build}"
export MUSTER_TOP MUSTER_BUILD
