# SPDX-License-Identifier: Apache-2.0
# The commands in README.md and doc/: fenced, with a tag that says where they run.
# shellcheck shell=bash

# All documents with commands for users.
# shellcheck disable=SC2034 # read by the bats files
DOCUMENTS=("$MUSTER_TOP"/README.md "$MUSTER_TOP"/doc/*.md "$MUSTER_TOP"/doc/guide/*.md)

# commands TAG FILE…: the commands of that tag without comments, continuation lines joined.
commands() {
    local tag=$1
    shift
    sed -n '/^```sh '"$tag"'$/,/^```$/ { /^```/d; /^#/d; p }' "$@" |
        sed -e ':a' -e '/\\$/N; s/\\\n *//; ta'
}
