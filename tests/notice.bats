#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Spot notices: each cloud's metadata service, a server that replies as the cloud documents it or
# otherwise, and a training that stops before its machine is taken.

load small_run
bats_require_minimum_version 1.5.0

setup_file() {
    [ -x "$MUSTER_BUILD/muster-notice" ] || return 0
    small_run_begin
}

setup() {
    [ -x "$MUSTER_BUILD/muster-notice" ] || skip "this build has no muster-notice: no libcurl"
    cd "$BATS_FILE_TMPDIR"
    PIDS=() SERVERS=() # start_world sets PIDS anew
    pace 20
}

# shellcheck disable=SC2046
teardown() {
    { kill -9 $(running "${PIDS[@]}" "${SERVERS[@]}") && wait "${PIDS[@]}" "${SERVERS[@]}"; } \
        2>/dev/null || :
}

# serve CLOUD: a server of that cloud, with the folder $SERVER and the source $SOURCE.
serve() {
    SERVER=$BATS_TEST_TMPDIR/$1
    mkdir -p "$SERVER" && rm -f "$SERVER"/{port,asked}
    python3 "$MUSTER_TOP/tests/lib/metadata_server.py" "$1" "$SERVER" 3>&- &
    SERVERS+=($!)
    wait_for 20 test -e "$SERVER/port"
    SOURCE=$1=http://127.0.0.1:$(cat "$SERVER/port")
    SOURCE=${SOURCE#page=}
}

# says FILE TEXT: what the server replies from now on.
says() { printf %s "$2" >"$SERVER/$1.new" && mv "$SERVER/$1.new" "$SERVER/$1"; }

# once STATUS OUTPUT
once() {
    run --separate-stderr timeout "$HANG" muster-notice --once "$SOURCE"
    # shellcheck disable=SC2154
    echo "status $status: $output $stderr"
    [ "$status $output" = "$1 $2" ]
}

# listen: muster-notice in the background, with its words in "said" and a pipe to it at 7.
listen() {
    rm -f said words
    mkfifo words
    muster-notice "$SOURCE" <words >said 2>errors 3>&- &
    PIDS+=($!)
    LISTENER=$!
    exec 7>words
}

# paced COMMAND…: one rank alone, or rank 0 of those that it starts, takes as long for a step as the
# last `pace MILLISECONDS` says. However late the notice is heard, there is a step to stop after.
paced() {
    STEP_MILLISECONDS=20 STEPS_PACE=$PWD/pace \
        LD_PRELOAD=$MUSTER_BUILD/tests/tools/.libs/slow_steps.so "$@"
}
pace() { echo "$1" >pace.new && mv pace.new pace; }

asked() { [ "$(grep -c "$1" "$SERVER/asked")" -ge "$2" ]; }
has_said() { grep -qFx "$1" said; }

@test "aws: a token first, then the action, then the recommendation; a token that has expired" {
    serve aws
    once 0 ""
    [ "$(cat "$SERVER/asked")" = "PUT /latest/api/token
GET /latest/meta-data/spot/instance-action
GET /latest/meta-data/events/recommendations/rebalance" ]
    says rebalance '{"noticeTime": "2020-10-27T08:22:00Z"}'
    once 75 "notice aws: rebalance recommendation of 2020-10-27T08:22:00Z"
    says action '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    once 75 "notice aws: terminate at 2017-09-18T08:22:00Z"
    says action '{"action": "hibernate", "time": "2017-09-18T08:22:00Z"}'
    : >"$SERVER/expire"
    once 75 "notice aws: hibernate at 2017-09-18T08:22:00Z"
    [ ! -e "$SERVER/expire" ]
}

@test "gcp: the reply comes when it changes" {
    serve gcp
    once 0 ""
    listen
    wait_for 20 asked wait_for_change 1
    says preempted TRUE
    wait_for 20 has_said "notice gcp: preempted"
    exec 7>&-
    wait $LISTENER
    once 75 "notice gcp: preempted"
}

@test "azure: events of this machine that take it away, acknowledged once the word comes" {
    event() {
        printf '{"EventId": "%s", "EventType": "%s", "Resources": [%s], ' "$@"
        echo '"EventStatus": "Scheduled", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}'
    }
    serve azure
    says events "[$(event a-1 Preempt '"vm1"'), $(event a-2 Freeze '"vm0"')]"
    once 0 ""
    listen
    wait_for 20 asked scheduledevents 3
    says events "[$(event a-3 Preempt '"vm1", "vm0"')]"
    wait_for 20 has_said "notice azure: Preempt, not before Mon, 19 Sep 2016 18:29:47 GMT"
    [ ! -e "$SERVER/posted" ]
    echo durable >&7
    wait_for 20 has_said acknowledged
    [ "$(cat "$SERVER/posted")" = '{"StartRequests":[{"EventId":"a-3"}]}' ]
    [ ! -s errors ]
    # A word that does not get there is told.
    says how 500
    echo durable >&7
    wait_for 20 grep -qFx \
        "muster-notice: couldn't acknowledge the event: the reply has status 500" errors
    exec 7>&-
    wait $LISTENER
}

@test "a page: its first line is the notice" {
    serve page
    once 0 ""
    says page ""
    once 0 ""
    says page $'maintenance of rack 7\nsecond line\n'
    once 75 "notice page: maintenance of rack 7"
}

@test "replies that are slow, malformed, refused or endless are no notices, and are told once" {
    local cloud how
    local -A malformed=([aws]="the reply is no token" [gcp]="the reply is neither TRUE nor FALSE"
        [azure]="the reply is not valid JSON")
    for cloud in aws gcp azure page; do
        serve $cloud
        for how in malformed endless 401 403 500 slow; do
            [ "$cloud $how" != "azure slow" ] || continue # its first reply may take two minutes
            [ "$cloud $how" != "page malformed" ] || continue
            [ "$cloud $how" != "gcp slow" ] || continue
            says how $how
            once 69 ""
            [[ $stderr = "muster-notice: $cloud: "* && $stderr != *$'\n'* ]]
            [[ $how != malformed || $stderr = *": ${malformed[$cloud]}"* ]]
        done
    done
    serve aws
    says how 404
    once 69 ""
    kill "${SERVERS[-1]}"
    wait "${SERVERS[-1]}" || :
    once 69 ""
    [[ $stderr = *"connect"* ]]
    # One that goes on asking says so once, and then that it is answered.
    serve page
    says how 500
    listen
    wait_for 60 asked GET 5
    [ "$(cat errors)" = "muster-notice: page: the reply has status 500: no notice can come until that works; still asking" ]
    rm "$SERVER/how"
    wait_for 60 grep -q "answers again" errors
    says page gone
    wait_for 20 has_said "notice page: gone"
    exec 7>&-
    wait $LISTENER
    [ "$(wc -l <errors)" -eq 2 ]
}

@test "a training stops after the step, saves and ends with 75; then it goes on to the same bits" {
    local before
    serve aws
    MUSTER_NOTICE=off REPLACE=exec paced train noticed --notice "$SOURCE" >noticed.out 2>&1 3>&- &
    PIDS+=($!)
    wait_step noticed 10
    pace 1000
    says action '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    wait $! && status=0 || status=$?
    cat noticed.out
    [ $status -eq 75 ]
    local when="at 2017-09-18T08:22:00Z"
    local then="the run stops after this step, saves and asks to come back"
    grep -F "warning: spot notice: this node is taken away (aws: terminate $when): $then" noticed.out
    before=$(grep -o '^{"step": [0-9]*' noticed/metrics-0.jsonl | tail -n 1)
    grep -q '"event":"notice".*"why":"a spot notice"' noticed/attempts.jsonl
    # Another machine, with no notice.
    MUSTER_NOTICE=off train noticed
    same_as_whole noticed
    [[ $(head -n 1 noticed/metrics-1.jsonl) = '{"step": '$((${before##* } + 1)),* ]]
}

@test "azure takes the machine once the last save is durable" {
    serve azure
    MUSTER_NOTICE=$SOURCE REPLACE=exec paced train ready >ready.out 2>&1 3>&- &
    PIDS+=($!)
    wait_step ready 10
    pace 1000
    says events '[{"EventId": "b-1", "EventType": "Preempt", "Resources": ["vm0"]}]'
    wait $! && status=0 || status=$?
    cat ready.out
    [ $status -eq 75 ]
    [ "$(cat "$SERVER/posted")" = '{"StartRequests":[{"EventId":"b-1"}]}' ]
}

@test "several ranks: the first of a node listens, and all stop after the same step" {
    serve page
    MUSTER_NOTICE=$SOURCE paced start_world 4 several
    wait_step several 10
    pace 1000
    says page "gone at noon"
    end_world || [ $? -eq 75 ]
    [ "${STATUSES[*]}" = "75 75 75 75" ]
    [ "$(cat rank*.out | grep -cF "this node is taken away (page: gone at noon)")" -eq 1 ]
    MUSTER_NOTICE=off train several
    same_as_whole several
}

@test "a service that does harm, and one that is not there, leave a training as it is" {
    serve aws
    says how malformed
    MUSTER_NOTICE=$SOURCE train harmed >harmed.out 2>&1
    same_as_whole harmed
    says how endless
    MUSTER_NOTICE=$SOURCE slowly train endless >endless.out 2>&1
    same_as_whole endless
    MUSTER_NOTICE=aws=http://127.0.0.1:1 train absent >absent.out 2>&1
    same_as_whole absent
    ! grep -h "spot notice" harmed.out endless.out absent.out || false
}

@test "nothing listens once the training is gone, however it went" {
    serve page
    listeners() { pgrep -f "^[^ ]*muster-notice $SOURCE\$" >/dev/null; }
    gone() { ! listeners; }
    pace 1000
    MUSTER_NOTICE=$SOURCE REPLACE=exec paced train killed >killed.out 2>&1 3>&- &
    PIDS+=($!)
    wait_step killed 1
    listeners
    kill -9 $!
    wait $! || :
    wait_for 20 gone
    MUSTER_NOTICE=$SOURCE train whole-again >again.out 2>&1
    gone
}

@test "a source that can't be used" {
    local words="spot notices: couldn't use 'asw': give auto, off, aws, gcp, azure, one of these clouds with =URL, or the URL of a page"
    fails 2 "$words" train wrong --notice asw
    MUSTER_NOTICE=asw fails 2 "$words" train wrong
    fails 2 "$words" muster-notice --once asw
    fails 2 "the URL in 'http://aaa" muster-notice --once "http://$(printf 'a%.0s' {1..300})"
    fails 2 "too many arguments" muster-notice aws gcp
    muster-notice off
}
