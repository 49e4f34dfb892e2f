#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# muster-requeue [OPTION…] JOB ATTEMPT
# muster-requeue [OPTION…] --status N
# The muster-requeue of a Muster that was built without Slurm's headers: it asks Slurm by scontrol.
# Of the options in muster-requeue(8) it has --status, --running, --runs, --times, --deadline and
# --quiet.
set -u
deadline=300 look='' status='' quiet=''

say() { echo "muster-requeue: $*" >&2; }

help() { sed -n '/^# muster-requeue \[/,/^set/s/^# //p' "$0"; }

usage() {
    say "$1; see muster-requeue --help"
    exit 2
}

# number WHAT TEXT
number() {
    case $2 in
    '' | *[!0-9]* | ?????????*) usage "$1 $2: not a number from 0 to 99999999" ;;
    esac
}

while [ $# -gt 0 ]; do
    case $1 in
    --deadline=* | --status=*)
        argument=${1#*=} option=${1%%=*}
        shift
        set -- "$option" "$argument" "$@"
        continue
        ;;
    --deadline | --status)
        [ $# -gt 1 ] || usage "$1 needs a number"
        number "$1" "$2"
        [ "$1" = --deadline ] && deadline=$2 || status=$2
        shift
        ;;
    -\? | --help) help && exit ;;
    --running | --runs | --times) look=$1 ;;
    -q | --quiet) quiet=yes ;;
    -*) usage "$1: no such option without libslurm" ;;
    *) break ;;
    esac
    shift
done

# What the script of a job asks ends with N, whatever comes of it.
if [ -n "$status" ]; then
    [ $# -eq 0 ] || usage "give JOB and ATTEMPT, or --status N alone"
    [ "$status" -eq 75 ] || [ "$status" -eq 69 ] || [ "$status" -ge 128 ] || exit "$status"
    "$0" ${quiet:+--quiet} --deadline "$deadline" "${SLURM_JOB_ID-}" "${SLURM_RESTART_COUNT:-0}"
    exit "$status"
fi
[ $# -eq 2 ] || usage "give JOB and ATTEMPT, or --status N alone"
number JOB "$1"
number ATTEMPT "$2"
job=$1 attempt=$2 ends=$(($(date +%s) + deadline))

# ask ARGUMENT…: scontrol's answer, in $answer; tried until the deadline. Fails where the
# controller knows no such job; ends where no other try would help.
ask() {
    until answer=$(timeout 10 scontrol "$@" 2>&1); do
        case $answer in
        *'Invalid job id'*) return 1 ;;
        *'not found'* | *'No such file'*)
            say "couldn't run scontrol: put Slurm's programs into PATH"
            exit 1
            ;;
        '' | *'contact slurm controller'* | *'timed out'* | *refused* | *'standby mode'*) ;;
        *)
            say "couldn't ask Slurm about job $job: $answer"
            exit 1
            ;;
        esac
        [ "$(date +%s)" -lt "$ends" ] || {
            say "couldn't reach the controller before the deadline${answer:+: $answer}"
            exit 69
        }
        sleep 1
    done
}

# field NAME: of the job. What its user names or writes comes on lines of its own.
field() {
    printf '%s\n' "$answer" | sed '1d; /^   \(Comment\|AdminComment\|Command\|WorkDir\)=/d' |
        sed -n "s/^\(.* \)\{0,1\}$1=\([^ ]*\).*/\2/p" | head -n 1
}

# seconds NAME: the time of that field since the epoch; 0: not known.
seconds() { date -d "$(field "$1")" +%s 2>/dev/null || echo 0; }

known=yes
ask show job "$job" || known=''
state=$(field JobState)
case $known$state in
yesRUNNING | yesCOMPLETING | yesSUSPENDED | yesSTOPPED | yesSIGNALING | yesSTAGE_OUT) runs=yes ;;
*) runs='' ;;
esac
case $look in
--runs)
    echo "${runs:-no}"
    exit
    ;;
--running)
    [ -n "$runs" ] && [ "$(field Restarts)" = "$attempt" ]
    exit
    ;;
--times)
    [ -n "$known" ] || exit 1
    echo "$(seconds SubmitTime) $(seconds StartTime) $(seconds EndTime)"
    exit
    ;;
esac

leave() { [ -n "$quiet" ] || say "job $job is left as it is: $1"; }

if [ -z "$known" ]; then
    leave "the controller knows no such job"
elif [ -z "$runs" ] || [ "$state" = COMPLETING ] || [ "$(field Restarts)" != "$attempt" ]; then
    leave "it is $state after $(field Restarts) restarts"
elif [ "$(field Requeue)" != 1 ]; then
    say "job $job can't be put back: it was submitted with --no-requeue"
    exit 1
# A job that was cancelled meanwhile stays so.
elif ask requeue Incomplete "$job"; then
    say "job $job is put back in the queue after attempt $attempt"
fi
