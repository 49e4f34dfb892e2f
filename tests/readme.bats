#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the README says is so: its files exist, its options are known, and its local lines run as
# they are pasted.

load lib/places

# The indented lines of the README, continuation lines joined.
pasted() { sed -n 's/^    //p' "$MUSTER_TOP/README.md" | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta'; }

@test "every file and folder it names is there" {
    for path in $(grep -o '`[a-z-]*/[A-Za-z0-9./_-]*`' "$MUSTER_TOP/README.md" | tr -d '`' |
        grep -v '^run1/' | sort -u); do
        echo "$path"
        [ -e "$MUSTER_TOP/$path" ]
    done
}

@test "every option of a program that it names is known to it" {
    for program in muster-train muster-tokens; do
        for option in $(pasted | grep "^$program " | grep -o -- ' --[a-z-]*' | sort -u); do
            echo "$program $option"
            "$program" --help | grep -q -- "$option\b"
        done
    done
    while read -r _ command rest; do
        for option in $(grep -o -- '--[a-z-]*' <<<"$rest"); do
            echo "muster-ckpt $command $option"
            muster-ckpt "$command" --help | grep -q -- "$option\b"
        done
    done < <(pasted | grep '^muster-ckpt ')
    for option in $(pasted | grep -o 'muster-doctor .*' | grep -o -- ' --[a-z-]*') --list --json; do
        echo "muster-doctor $option"
        muster-doctor --help | grep -q -- "$option\b"
    done
    for option in --require-identical --cpu-isa --reduction --slots --ckpt-every --keep-last \
        --keep-every --keep-best \
        --ckpt-writers --shard-size --trace --trace-steps --zero; do
        grep -q -- "$option" "$MUSTER_TOP/README.md"
        muster-train --help | grep -q -- "$option\b"
    done
}

@test "its packages are those that the tests install to build" {
    for package in $(sed -n 's/^build *//p' "$MUSTER_TOP/tests/packages.txt"); do
        echo "$package"
        pasted | grep '^apt-get install' | grep -qw -- "$package"
    done
}

@test "tokens, a training alone and its curve, as pasted" {
    cd "$BATS_TEST_TMPDIR"
    cat "$MUSTER_TOP"/LICENSE "$MUSTER_TOP"/README.md "$MUSTER_TOP"/doc/*.md >book.txt
    tokens=$(pasted | grep '^muster-tokens ')
    train=$(pasted | grep '^muster-train ')
    curve=$(pasted | grep '^muster-curve ')
    eval "$tokens"
    eval "${train/--steps 200/--steps 4 --ckpt-every 2}"
    [ "$(eval "$curve" | wc -l)" -eq 4 ]
    [ -e run1/attempts.jsonl ]
    [ "$(eval "$(pasted | grep '^muster-generate ')" | wc -c)" -gt 200 ]
    if command -v muster-report; then
        eval "$(pasted | grep '^muster-report ')"
        [ -e report.html ]
    fi
    # The lines about checkpoints, with the steps that there are.
    lines=$(pasted | grep '^muster-ckpt ' |
        sed 's/step-00000100/step-00000002/; s/step-00000200/step-00000004/; s/ 100$/ 2/')
    [ "$(wc -l <<<"$lines")" -eq 9 ]
    while read -r line; do
        echo "$line"
        run eval "$line" </dev/null
        echo "$output"
        [[ $line = *" diff "* ]] && [ "$status" -eq 1 ] || [ "$status" -eq 0 ]
    done <<<"$lines"
    [ -e run1/step-00000002/pinned ]
    [ -e run1/step-00000004 ]
    [ -e run2/step-00000000 ]
}
