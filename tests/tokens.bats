#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# muster-tokens: what it writes is the text, whole or not at all, and bad input has its line and
# status.

load lib/places
load lib/wait_for

setup() {
    tokens=$MUSTER_BUILD/muster-tokens
    cd "$BATS_TEST_TMPDIR" || return
}

# header FILE: its magic, version and count.
header() { od -A n -t d4 -N 12 -w12 "$1" | xargs; }

# text FILE: its tokens as bytes; fails if one is above 255.
text() {
    tail -c +1025 "$1" | perl -0777 \
        -ne 'my @t = unpack "v*"; die if grep { $_ > 255 } @t; print pack "C*", @t'
}

# complains STATUS WORDS ARGS…: one line with these words, that status, and nothing left behind.
complains() {
    local status_wanted=$1 words=$2 before after
    before=$(ls -A)
    run "$tokens" "${@:3}"
    echo "$output"
    [ "$status" -eq "$status_wanted" ]
    [[ $output = *"muster-tokens: "*"$words"* ]]
    [ "$status_wanted" -eq 2 ] || [ "${#lines[@]}" -eq 1 ]
    after=$(ls -A)
    [ "$before" = "$after" ]
}

@test "bytes of several files come back, all 256 of them" {
    perl -e 'print map { chr } 0 .. 255' >all
    seq 1 50000 >numbers
    run "$tokens" -o out.bin all numbers
    [ "$status" -eq 0 ]
    [ "$output" \
        = "muster-tokens: $(cat all numbers | wc -c) tokens in out.bin (bytes: vocabulary 256)" ]
    [ "$(header out.bin)" = "20240520 1 $(cat all numbers | wc -c)" ]
    [ "$(stat -c %s out.bin)" -eq $((1024 + 2 * $(cat all numbers | wc -c))) ]
    cmp <(text out.bin) <(cat all numbers)
    [ "$(od -A n -v -t d4 -j 12 -N 1012 -w4 out.bin | sort -u | xargs)" = 0 ]
    [ "$(ls -A | xargs)" = "all numbers out.bin" ]
}

@test "standard input, alone and between files" {
    echo b >b
    echo a | "$tokens" -q -o one.bin
    [ "$(text one.bin)" = a ]
    echo a | "$tokens" -q -o two.bin b - b
    [ "$(text two.bin | xargs)" = "b a b" ]
}

@test "the end of the text is split off, by fraction and by bytes" {
    seq 1 100000 >numbers
    size=$(stat -c %s numbers)
    "$tokens" -q -o t.bin --validation=0.25 --validation-output=v.bin numbers
    [ "$(header v.bin)" = "20240520 1 $((size / 4))" ]
    cmp <(text t.bin; text v.bin) numbers
    "$tokens" -q -f -o t.bin -v 100K -V v.bin <numbers
    [ "$(header v.bin)" = "20240520 1 102400" ]
    [ "$(stat -c %s t.bin)" -eq $((1024 + 2 * (size - 102400))) ]
    cmp <(text t.bin; text v.bin) numbers
}

@test "a name in .u16 gets raw tokens" {
    printf abc | "$tokens" -q -o raw.u16
    [ "$(od -A n -t d2 raw.u16 | xargs)" = "97 98 99" ]
}

@test "an existing file is kept unless --force says otherwise" {
    echo old >out.bin
    echo new >text
    complains 2 "out.bin: it exists; --force replaces it" -o out.bin text
    [ "$(cat out.bin)" = old ]
    "$tokens" -q --force -o out.bin text
    [ "$(text out.bin)" = new ]
}

@test "one file as both outputs is refused, however it is spelt" {
    echo text >text
    complains 2 "name one file" -o out.bin -v 1 -V ./out.bin text
}

@test "wrong usage" {
    echo text >text
    complains 2 "--output is missing" text
    complains 2 "go together" -o out.bin -v 0.1 text
    complains 2 "go together" -o out.bin -V v.bin text
    for size in 0 0.0 1.5 -3 -0.5 ten 10Q 1KK 99999999999999999999 20000000000000G; do
        complains 2 "--validation=$size is neither" -o out.bin --validation=$size -V v.bin text
    done
    complains 2 "unrecognized option" -o out.bin --colour text
    complains 2 "not a regular file" --force -o /dev/null text
    run "$tokens" --help
    [ "$status" -eq 0 ]
    [[ $output = *"(default: refuse)"* ]]
}

@test "texts that can't be used" {
    : >empty
    echo text >text
    complains 65 "couldn't open none: No such file" -o out.bin text none
    complains 65 "Is a directory" -o out.bin text .
    complains 65 "the text is empty" -o out.bin empty
    complains 65 "couldn't split off 5 of 5 tokens" -o out.bin -v 9 -V v.bin text
    complains 65 "couldn't split off 0 of 5 tokens" -o out.bin -v 0.1 -V v.bin text
    complains 1 "couldn't open the folder none: No such file" -o none/out.bin text
}

@test "more tokens than an int32 counts are refused before they are read" {
    truncate -s 2147483648 huge
    complains 65 "2147483647 at most" -o out.bin huge
    complains 65 "v.bin: its header counts in an int32" -o out.bin -v 2147483649 -V v.bin huge huge
}

@test "a full disk leaves neither file" {
    seq 1 100000 >numbers
    run bash -c 'trap "" XFSZ; ulimit -f 200; exec "$0" "$@"' "$tokens" -o out.bin numbers
    echo "$output"
    [ "$status" -eq 1 ] # EFBIG; a full disk is ENOSPC and 69
    [[ $output = *"couldn't write out.bin: File too large"* ]]
    [ "$(ls -A)" = numbers ]
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "a disk to fill needs root"
    run unshare -m bash \
        -c 'mkdir disk && mount -t tmpfs -o size=64k none disk && "$0" -o disk/out.bin numbers; s=$?
        ls -A disk; exit $s' "$tokens"
    echo "$output"
    [ "$status" -eq 69 ]
    [ "$output" = "muster-tokens: write: couldn't write disk/out.bin: No space left on device" ]
}

writing() { compgen -G '.out.bin.*' >/dev/null; }

@test "a signal leaves nothing behind" {
    mkfifo pipe
    for signal in INT TERM HUP; do
        (exec env --default-signal="$signal" "$tokens" -o out.bin pipe) 3>&- &
        pid=$!
        exec 4>pipe
        echo text >&4
        LOOK_EVERY=0.01 wait_for 5 writing
        kill -s "$signal" $pid
        status=0
        wait $pid || status=$?
        exec 4>&-
        [ "$status" -eq $((128 + $(kill -l "$signal"))) ]
        [ "$(ls -A)" = pipe ]
    done
}

@test "a tokenizer's tokens are the text, with a separator after each file" {
    command -v pcre2-config >/dev/null || skip "no PCRE2: apt-get install libpcre2-dev"
    for _ in {1..40}; do cat "$MUSTER_TOP"/doc/*.md; done >book
    printf 'caf\303\251 \360\237\230\200' >short
    python3 "$MUSTER_TOP/tests/lib/small_tokenizer.py" "$MUSTER_TOP/README.md" 300 >tokenizer.json
    run "$tokens" -o out.bin -t tokenizer.json -s '<|endoftext|>' book short
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *" tokens in out.bin (tokenizer.json: vocabulary 557)" ]]
    PYTHONPATH=$MUSTER_TOP/tests/lib python3 - <<'END'
import json, struct
from byte_level import bytes_of
value = json.load(open("tokenizer.json"))
text = {i: bytes_of(token) for token, i in value["model"]["vocab"].items()}
data = open("out.bin", "rb").read()[1024:]
ids = struct.unpack(f"<{len(data) // 2}H", data)
ends = [i for i, token in enumerate(ids) if token == 556]
assert len(ends) == 2 and ends[1] == len(ids) - 1
decode = lambda part: b"".join(text[token] for token in part)
assert decode(ids[:ends[0]]) == open("book", "rb").read()
assert decode(ids[ends[0] + 1:-1]) == open("short", "rb").read()
assert len(ids) < 0.7 * len(open("book", "rb").read())
END
    # With an id that 16 bits do not have, tokens have 32.
    sed 's/"id": 556/"id": 128000/' tokenizer.json >wide.json
    "$tokens" -q -o wide.bin -t wide.json -s '<|endoftext|>' -v 0.5 -V validation.bin book short
    [ "$(header wide.bin | cut -d' ' -f1,2)" = "20240801 7" ]
    python3 - <<'END'
import struct
def read(name, kind):
    data = open(name, "rb").read()[1024:]
    return [one for one, in struct.iter_unpack("<" + kind, data)]
wide = read("wide.bin", "I") + read("validation.bin", "I")
assert [128000 if one == 556 else one for one in read("out.bin", "H")] == wide
END
    complains 2 "raw tokens have 16 bits" -o x.u16 -t wide.json short
    # The same by one thread, and from the folder of the tokenizer.
    OMP_NUM_THREADS=1 "$tokens" -q -o one.bin -t . -s '<|endoftext|>' book short
    cmp one.bin out.bin
    rm one.bin out.bin
    printf 'ab\377' >bad
    complains 65 "bad: text: the byte 0xff at offset 2 is not UTF-8" -o x.bin -t . bad
    complains 2 "tokenizer.json has no token \"<s>\" for --separator" -o x.bin -t tokenizer.json \
        -s '<s>' short
    complains 2 "--separator is a token of --tokenizer: give both" -o x.bin -s '<s>' short
    complains 65 "couldn't use short: it is not valid JSON" -o x.bin -t short short
}

# ids FILE…: all tokens of these files, one a line.
ids() {
    python3 - "$@" <<'END'
import struct, sys
for name in sys.argv[1:]:
    data = open(name, "rb").read()
    magic, version, count = struct.unpack("<3i", data[:12])
    tokens = struct.unpack(f"<{count}{'I' if version == 7 else 'H'}", data[1024:])
    print(*tokens, sep="\n")
END
}

@test "each line of JSONL is a document" {
    mkdir files
    for k in 1 2 3 4 5; do
        head -c $((k * 3000)) "$MUSTER_TOP/doc/testing.md" | tail -c 3000 >files/$k
        printf '%s' "\"q\" \\ caf\303\251 $k" >>files/$k
    done
    : >files/6
    python3 - <<'END' >lines.jsonl
import json
for k in range(1, 7):
    text = open(f"files/{k}", "rb").read().decode()
    print(json.dumps({"id": k, "text": text}, ensure_ascii=k % 2 == 0))
    if k == 3:
        print("  ")
END
    "$tokens" -q -o files.bin files/*
    "$tokens" -q -o lines.bin --field text lines.jsonl
    "$tokens" -q -o stdin.bin --field text <lines.jsonl
    cmp files.bin lines.bin
    cmp files.bin stdin.bin
    command -v pcre2-config >/dev/null || return 0
    python3 "$MUSTER_TOP/tests/lib/small_tokenizer.py" "$MUSTER_TOP/README.md" 300 >tokenizer.json
    "$tokens" -q -f -o files.bin -t tokenizer.json -s '<|endoftext|>' files/*
    "$tokens" -q -f -o lines.bin -t tokenizer.json -s '<|endoftext|>' --field text lines.jsonl
    cmp files.bin lines.bin
    [ "$(ids lines.bin | grep -cx 556)" -eq 6 ]
}

@test "a line of JSONL that can't be used is named" {
    echo '{"text": "good"}' >lines
    while read -r words line; do
        { cat lines; echo "$line"; } >bad
        complains 65 "bad: couldn't use line 2: ${words//_/ }" -o out.bin --field text bad
    done <<'END'
it_is_not_valid_JSON {"text": "never ends
it_is_no_object [17]
it_has_no_member_"text"_(--field) {"content": "x"}
its_member_"text"_(--field)_is_no_text {"text": 5}
it_is_not_valid_JSON {"text": "x"} more
END
    printf '{"text": "\377"}\n' >bad
    complains 65 "bad: couldn't use line 1: it is not valid JSON" -o out.bin --field text bad
}

@test "shards hold the tokens of one file, and name themselves to the trainer" {
    seq 1 20000 >numbers
    size=$(stat -c %s numbers)
    "$tokens" -q -o one.bin -v 0.3 -V v.bin numbers
    run "$tokens" -o many.bin --shard-size 10000 -v 0.3 -V w.bin numbers
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *" tokens in many_*.bin ($(((size - size * 3 / 10 + 9999) / 10000)) files), "* ]]
    cmp v.bin w.bin
    cmp <(ids one.bin) <(ids many_*.bin)
    [ "$(header many_000001.bin)" = "20240520 1 10000" ]
    # A whole number of shards has no empty one more.
    head -c 30000 numbers | "$tokens" -q -o exact.bin -S 10000
    [ "$(ls exact_*.bin | xargs)" = "exact_000001.bin exact_000002.bin exact_000003.bin" ]
    # Shards of a longer text are not taken for its own.
    head -c 15000 numbers >shorter
    complains 2 "exact_000003.bin exists and is no shard of this text, which has 2" -f \
        -o exact.bin -S 10000 shorter
    complains 2 "exact_000001.bin: it exists" -o exact.bin -S 10000 shorter
    complains 2 "--shard-size=0 is no number of tokens" -o exact.bin -S 0 shorter
    mkdir dir.d
    "$tokens" -q -o dir.d/raw -S 7 shorter
    [ -e dir.d/raw_000001 ]
    "$tokens" -q -o raw.u16 -S 10000 shorter
    [ "$(stat -c %s raw_000001.u16) $(stat -c %s raw_000002.u16)" = "20000 10000" ]
}

@test "on a terminal the last line says what comes next, and elsewhere nothing does" {
    command -v script >/dev/null || skip "no script(1): apt-get install bsdutils"
    seq 1 30000 >numbers
    script -qec "$tokens -o out.bin numbers" typescript </dev/null >/dev/null
    grep -q '^next: muster-train --data out.bin --vocabulary 256 --ckpt-dir run1' typescript
    run "$tokens" -f -o out.bin numbers
    [[ $output != *next:* ]]
    [ -x "$MUSTER_BUILD/muster-train" ] || skip "this build has no trainer"
    train="$MUSTER_BUILD/muster-train --data out.bin --vocabulary 256 --layers 1 --width 16"
    train+=" --heads 2 --context 16 --global-batch 4 --steps 3 --threads 1"
    script -qec "$train --ckpt-dir run1" typescript </dev/null >/dev/null
    grep -q '^next: muster-generate run1, or muster-report run1' typescript
    # shellcheck disable=SC2086
    run $train --ckpt-dir run2
    [ "$status" -eq 0 ]
    [[ $output != *next:* ]]
}

@test "a bar is drawn on a terminal while text is read" {
    command -v script >/dev/null || skip "no script(1): apt-get install bsdutils"
    strace -o probe true 2>/dev/null || skip "strace can't trace here"
    seq 1 900000 >numbers
    slowly="strace -o /dev/null -e trace=read -e inject=read:delay_enter=60000 $tokens"
    $slowly -q -o quiet.bin numbers 2>err
    [ ! -s err ]
    script -qec "$slowly -o out.bin numbers" typescript </dev/null >/dev/null
    grep -q 'tokens \[#*\.*\] .* of 6.2 MB, .*/s, .* s left' typescript
}
