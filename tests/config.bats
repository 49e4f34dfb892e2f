#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Options of muster-train from a file and from variables.

load small_run

setup_file() { small_run_begin; }

setup() { cd "$BATS_FILE_TMPDIR" || return; }

source_of() { sed -n "s/^$1 = .* # //p" config.toml; }

@test "the command line goes before a variable, that before the file, and that before the default" {
    printf 'data = "tokens.u16"\nseed = 2\nsteps = 20\nclip = 2\n' >given.toml
    MUSTER_TRAIN_SEED=3 MUSTER_TRAIN_STEPS=30 muster-train --config given.toml --seed 4 \
        --print-config >config.toml
    cat config.toml
    grep -q '^seed = 4 ' config.toml && [ "$(source_of seed)" = "the command line" ]
    grep -q '^steps = 30 ' config.toml && [ "$(source_of steps)" = MUSTER_TRAIN_STEPS ]
    grep -q '^clip = 2 ' config.toml && [ "$(source_of clip)" = "line 4 of given.toml" ]
    grep -q '^layers = 12 ' config.toml && [ "$(source_of layers)" = default ]
}

@test "the file of --print-config repeats the run" {
    ! train printed --zero 1 --comm replay --print-config >config.toml || false
    train printed --zero 1 --print-config >config.toml
    [ ! -e printed ]
    train whole --print-config | sed 's/^ckpt-dir = .*/ckpt-dir = "repeated"/' >again.toml
    muster-train --config again.toml
    same_as_whole repeated
    # It is complete: what it says of itself is the same.
    diff <(sed 's/ *#.*//' again.toml) \
        <(muster-train --config again.toml --print-config | sed 's/ *#.*//')
    # Also where an option that is left out is refused with its default.
    muster-train --config config.toml --print-config >/dev/null
    rm -rf repeated printed
}

@test "of several ranks the first one prints it" {
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 train new --print-config
    done >config.toml
    [ "$(grep -c '^seed = ' config.toml)" -eq 1 ]
}

@test "what is wrong is one line with its place" {
    printf 'data = "tokens.u16"\nlayrs = 5\n' >bad.toml
    fails 2 "--config: bad.toml:2: unknown option layrs: did you mean layers?" \
        muster-train --config bad.toml
    fails 2 "--config: read: couldn't open none.toml: No such file" muster-train --config none.toml
    export MUSTER_TRAIN_LAYRES=5
    fails 2 "MUSTER_TRAIN_LAYRES: there is no such option: did you mean MUSTER_TRAIN_LAYERS?" \
        train new
}

@test "each file that is accepted is TOML, and has the values that Python's tomllib reads" {
    python3 -c 'import tomllib' 2>/dev/null || skip "no tomllib: Python 3.11 has it"
    run python3 - <<'END'
import random, subprocess, sys, tomllib

random.seed(int.from_bytes(random.randbytes(4)))
pieces = ['seed', 'steps', 'clip', 'data', 'order', 'shard-size', 'share-gpu', 'clip-', 'ddp.x',
          ' = ', '=', ' ', '\t', '\n', '\r\n', '#', ' # why', '"', "'", '"x.u16"', "'x.u16'",
          '"file"', '"2GiB"', 'true', 'false', '5', '+5', '-5', '05', '1_000', '1__0', '0x10',
          '0.5', '.5', '5.', '1e2', '1E-2', '1e', '5.0e+1', 'inf', 'nan', '[seed]', '\\', '\\n',
          '\\"', '\\u0041', '\u00e9', '\x00', '\x7f', '"""', '[1]', '{}', '1979-05-27', ',']
lines = ['seed = 5', 'steps = 1_000', 'clip = 0.5', 'clip = 1e2', "data = 'a#b'",
         'data = "a\\\\b" # c', 'order = "file"', 'shard-size = "2GiB"', 'share-gpu = true',
         '# only a comment', '']
accepted = refused = 0
for _ in range(600):
    chosen = random.sample(lines, random.randint(0, 4))
    if random.random() < 0.7:
        chosen.append("".join(random.choices(pieces, k=random.randint(1, 5))))
    text = "".join(line + random.choice(["\n", "\n", "\r\n"]) for line in chosen)
    with open("any.toml", "w", newline="") as file:
        file.write(text)
    done = subprocess.run(["muster-train", "--config", "any.toml", "--print-config"]
                          + ([] if "data" in text else ["--data", "x"]),
                          capture_output=True, text=True)
    if done.returncode == 2:
        assert len(done.stderr.splitlines()) == 1, (text, done.stderr)
        refused += 1
        continue
    assert done.returncode == 0, (text, done)
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        sys.exit(f"accepted: {text!r}: {error}")
    printed = tomllib.loads(done.stdout)
    for name, value in given.items():
        assert printed[name] == value and isinstance(value, bool) == isinstance(
            printed[name], bool), (text, name, value, printed[name])
    accepted += 1
print(accepted, "accepted,", refused, "refused")
assert min(accepted, refused) > 50
END
    echo "$output"
    [ "$status" -eq 0 ]
}
