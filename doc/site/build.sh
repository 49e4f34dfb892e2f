#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# doc/site/build.sh OUT: makes the web site in the folder OUT, from README's sisters in doc/, the
# manuals and the drawings. Needs Debian's furo, python3-myst-parser, mandoc and graphviz. A warning
# of Sphinx's, such as a link to nowhere, is an error. REPORT=FILE is shown as the finished report.
set -eu -o pipefail
export LC_ALL=C.UTF-8

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# = 1 ] || { echo "usage: doc/site/build.sh OUT" >&2; exit 2; }
for program in sphinx-build mandoc dot; do
    command -v $program >/dev/null || {
        echo "build.sh: no $program: apt-get install furo python3-myst-parser mandoc graphviz" >&2
        exit 1
    }
done
PAGES=$(mktemp -d)
trap 'rm -rf "$PAGES"' EXIT
mkdir -p "$PAGES/guide" "$PAGES/manuals" "$PAGES/images" "$PAGES/extra"

# page FILE: a document, in which `doc/NAME.md` becomes a link, and the tags of commands are left
# out. Links to files outside doc/ become their names.
page() {
    local up=''
    [ "$(basename "$(dirname "$1")")" != guide ] || up=../
    sed -E -e 's/^```sh [a-z-]+$/```sh/' \
        -e "s:\`doc/([a-z0-9/-]+)\.md\`:[\1](${up}\1.md):g" \
        -e 's:\[([^]]*)\]\((\.\./)*[A-Z]+\.md\):\1:g' "$1"
}

# manual FILE: a page with what mandoc makes of it.
manual() {
    local name section
    name=$(basename "$1")
    section=${name##*.}
    printf '# %s(%s)\n\n```{raw} html\n' "${name%.*}" "$section"
    mandoc -T html -O fragment "$1" |
        sed -E -e '/^<table class="(head|foot)">/,/^<\/table>/d' \
            -e 's:(</?)h2:\1h3:g; s:(</?)h1:\1h2:g'
    printf '```\n'
}

for file in "$TOP"/doc/*.md "$TOP"/doc/guide/*.md; do
    page "$file" >"$PAGES/${file#"$TOP"/doc/}"
done
for file in "$TOP"/doc/*.[1-9]; do
    manual "$file" >"$PAGES/manuals/$(basename "$file").md"
done
cp "$TOP"/doc/site/index.md "$PAGES/"
cp "$TOP"/doc/images/*.svg "$TOP"/doc/images/*.png "$PAGES/images/" 2>/dev/null || true
dot -Tsvg "$TOP/doc/images/how-it-works.dot" -o "$PAGES/images/how-it-works.svg"
[ -z "${REPORT-}" ] || cp "$REPORT" "$PAGES/extra/report.html"
[ -e "$PAGES/extra/report.html" ] || sed -i '/report.html/d' "$PAGES/index.md"
sphinx-build -q -W --keep-going -c "$TOP/doc/site" -D html_extra_path="$PAGES/extra" -b html \
    "$PAGES" "$1"
echo "build.sh: $(find "$1" -name '*.html' | wc -l) pages in $1"
