#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What README.md and the documents say is so: their files exist, their options are known, and each
# command that they give runs as it is pasted. `local` ones run here (first-minute.sh in
# first_minute.bats), `cluster` ones in cluster/examples.bats and cluster/pytorch.bats; `gpu` ones
# need a card, and `not-run` ones something else that no test has.

load lib/places
load lib/documents

# all_commands: the commands of all tags in all documents.
all_commands() { for tag in local cluster gpu not-run; do commands $tag "${DOCUMENTS[@]}"; done; }

# named: the files in the tree that they name. NOUN stands for any.
named() {
    cat "${DOCUMENTS[@]}" | grep -o '`\(doc\|slurm-examples\|bench\|tests\)/[A-Za-z0-9./_-]*`' |
        tr -d '`' | grep -v NOUN | sort -u
}

# links FILE: where its links within the tree lead.
links() {
    grep -o ']([A-Za-z.][A-Za-z0-9./_-]*)' "$1" | tr -d '()]' | sort -u
}

@test "every file and folder that they name is there" {
    for path in $(named); do
        echo "$path"
        [ -e "$MUSTER_TOP/$path" ]
    done
    for file in "${DOCUMENTS[@]}"; do
        for path in $(links "$file"); do
            echo "$file: $path"
            [ -e "$(dirname "$file")/$path" ]
        done
    done
}

@test "every command has a tag, and the README none without a fence; it is short" {
    [ "$(wc -l <"$MUSTER_TOP/README.md")" -le 150 ]
    run grep -vE '```(sh (local|cluster|gpu|not-run)|python|c|toml|json|text|\{[a-z]+\}.*)$' \
        <(awk '/^```/ && (inside = !inside) { print FILENAME ": " $0 }' "${DOCUMENTS[@]}")
    echo "$output"
    [ "$status" -eq 1 ]
    run grep -n '^    ' <(awk '/^```/ { inside = !inside } !inside' "$MUSTER_TOP/README.md")
    [ "$status" -eq 1 ]
    for tag in local cluster gpu not-run; do
        echo "# $(commands $tag "${DOCUMENTS[@]}" | wc -l) commands are $tag" >&3
    done
    [ "$(commands local "${DOCUMENTS[@]}" | wc -l)" -gt 20 ]
}

@test "every option of a program that they name is known to it" {
    for program in muster-train muster-tokens muster-generate muster-eval muster-doctor; do
        for option in $(all_commands | grep -o "\b$program .*" | grep -o -- ' --[a-z-]*' |
            sort -u); do
            echo "$program $option"
            "$program" --help | grep -q -- "$option\b"
        done
    done
    while read -r _ command rest; do
        for option in $(grep -o -- '--[a-z-]*' <<<"$rest"); do
            echo "muster-ckpt $command $option"
            muster-ckpt "$command" --help | grep -q -- "$option\b"
        done
    done < <(all_commands | grep '^muster-ckpt ')
    # What the text of the trainer's pages names without a program before it.
    for option in $(cat "$MUSTER_TOP"/doc/guide/{trainer,checkpoints}.md |
        grep -o '`--[a-z-]*' | tr -d '`' | sort -u); do
        echo "$option"
        {
            muster-train --help; muster-tokens --help; muster-curve --help; muster-top --help
            sbatch --help
        } |
            grep -q -- "$option\b" || [ "$option" = --json ] || [ "$option" = --muster ]
    done
}

@test "their packages are those that the tests install to build" {
    for package in $(sed -n 's/^build *//p' "$MUSTER_TOP/tests/packages.txt"); do
        echo "$package"
        commands not-run "$MUSTER_TOP/README.md" | grep '^apt-get install' | grep -qw -- "$package"
    done
}

# paste FILE: its local commands, one after the other, with fewer steps. diff ends with 1.
paste_local() {
    local line
    commands local "$MUSTER_TOP/$1" | grep -v first-minute.sh |
        sed "s/--steps 200/--steps 4 --ckpt-every 2/; s/step-00000100/step-00000002/
            s/step-00000200/step-00000004/; s/ 100\$/ 2/; s:/usr/local:$MUSTER_PREFIX:" >commands
    [ -s commands ]
    while read -r line; do
        echo "$line"
        if [[ $line = export* ]]; then
            eval "$line"
        else
            run eval "$line" </dev/null
            echo "$output"
            [[ $line = *" diff "* ]] && [ "$status" -eq 1 ] || [ "$status" -eq 0 ]
        fi
    done <commands
}

setup() {
    cd "$BATS_TEST_TMPDIR"
    cat "$MUSTER_TOP"/LICENSE "$MUSTER_TOP"/README.md "$MUSTER_TOP"/doc/*.md >book.txt
}

@test "the README's local commands" {
    command -v muster-report || skip "built without dygraphs"
    paste_local README.md
    [ "$(muster-curve run1 | wc -l)" -eq 4 ]
    [ -e run1/attempts.jsonl ]
    [ -e report.html ]
}

@test "a training alone, its curve, what it writes, and its checkpoints" {
    command -v muster-report || skip "built without dygraphs"
    paste_local doc/guide/trainer.md
    [ "$(muster-curve run1 | wc -l)" -eq 4 ]
    [ -e report.html ]
    paste_local doc/guide/checkpoints.md
    [ -e run1/step-00000002/pinned ]
    [ -e run1/step-00000004 ]
    [ -e run2/step-00000000 ]
}

@test "a program in C, and what the package for Python finds" {
    cp "$MUSTER_TOP/slurm-examples/ring.c" program.c
    export PKG_CONFIG_PATH=$MUSTER_PREFIX/lib/pkgconfig
    paste_local doc/guide/programs.md
    [ -x a.out ]
    paste_local doc/pytorch.md
    [[ $output = *"$MUSTER_PREFIX"* ]]
}
