#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The web site: made without a warning (a link to nowhere is one), with every document and manual.

load lib/places

setup_file() {
    command -v sphinx-build >/dev/null || skip "no Sphinx: apt-get install furo python3-myst-parser"
    export SITE=$BATS_FILE_TMPDIR/site
    echo '<p>a report' >"$BATS_FILE_TMPDIR/report.html"
    REPORT=$BATS_FILE_TMPDIR/report.html "$MUSTER_TOP/doc/site/build.sh" "$SITE" >&2
}

@test "every document, manual and picture is in it, and the finished report" {
    for file in "$MUSTER_TOP"/doc/*.md "$MUSTER_TOP"/doc/guide/*.md; do
        page=${file#"$MUSTER_TOP"/doc/}
        echo "$page"
        grep -q "href=\"${page%.md}.html\"" "$SITE/index.html"
    done
    for file in "$MUSTER_TOP"/doc/*.[1-9]; do
        grep -q 'NAME' "$SITE/manuals/$(basename "$file").html"
    done
    [ "$(find "$SITE/_images" -name '*.svg' | wc -l)" -ge 2 ]
    grep -q 'href="report.html"' "$SITE/index.html"
    cmp "$SITE/report.html" "$BATS_FILE_TMPDIR/report.html"
}

@test "commands are shown without their tags, and a document's name leads to it" {
    run grep -rlE 'sh (local|cluster|not-run)' "$SITE" --include '*.html'
    [ "$status" -eq 1 ]
    grep -q 'href="../pytorch.html"' "$SITE/guide/programs.html"
    grep -q 'href="../exit-status.html"' "$SITE/guide/trainer.html"
}

@test "it needs no network" {
    run grep -rhoE '(src|href)="https?://[^"]*\.(js|css|woff2?)"' "$SITE" --include '*.html'
    [ "$status" -eq 1 ]
}

@test "what it can't use" {
    run "$MUSTER_TOP/doc/site/build.sh"
    [ "$status" -eq 2 ]
    PATH=$BATS_TEST_TMPDIR:/usr/bin/nowhere run /bin/bash "$MUSTER_TOP/doc/site/build.sh" out
    [ "$status" -ne 0 ]
}
