#!/bin/sh
# Tests of examples/server/slurm.sh: a cluster of two nodes on this machine, which ends with the test.
#     test_slurm.sh PATH_TO_BATCH PATH_TO_MODEL
# Needs Debian's slurm-wlm, and root. Prints a line for each case and at the end `slurm: N passed, N failed, N skipped`.
[ $# -eq 2 ] || { echo "usage: $0 PATH_TO_BATCH PATH_TO_MODEL" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$1
BATCH=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") MODEL=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
. "$root/tests/cases.sh"
why=
for tool in sbatch squeue scontrol slurmctld slurmd; do command -v $tool >/dev/null 2>&1 || why="$tool is not installed"; done
[ "$(id -u)" = 0 ] || why="only root can set up a cluster"
[ -z "$why" ] || { skip "an array job" "$why"; echo "slurm: 0 passed, 0 failed, 1 skipped"; exit 0; }
export BATCH MODEL REQUESTS="$tmp/requests.jsonl" SLURM_CONF="$tmp/slurm.conf"

stop_cluster() {
    for name in one two ctld; do
        [ ! -s "$tmp/$name.pid" ] || kill "$(cat "$tmp/$name.pid")" 2>/dev/null
    done
    sleep 1
    rm -rf "$tmp"
}
trap stop_cluster EXIT

# Ports that are free, as far as one can know.
port=$((20000 + $$ % 20000))
mkdir "$tmp/state"
cat >"$SLURM_CONF" <<END
ClusterName=bitnet
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_res
SelectTypeParameters=CR_Core
MpiDefault=none
AccountingStorageType=accounting_storage/none
StateSaveLocation=$tmp/state
SlurmdSpoolDir=$tmp/spool.%n
SlurmctldPidFile=$tmp/ctld.pid
SlurmdPidFile=$tmp/%n.pid
SlurmctldLogFile=$tmp/ctld.log
SlurmdLogFile=$tmp/%n.log
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0
ReturnToService=2
NodeName=one NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1 State=UNKNOWN
NodeName=two NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1 State=UNKNOWN
PartitionName=all Nodes=one,two Default=YES State=UP
END
cd "$tmp" || exit 2
slurmctld && slurmd -N one && slurmd -N two || { bad "the cluster starts" "see its logs"; exit 1; }
is_idle() { [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; }
wait_for $$ is_idle
check "a cluster of two nodes" "$(tail -n 3 "$tmp/ctld.log")" is_idle

i=0
while [ $i -lt 400 ]; do
    printf '{"custom_id":"%d","prompt":"Once upon a time there was a %d","max_tokens":200}\n' $i $i
    i=$((i + 1))
done >"$REQUESTS"
"$BATCH" -m "$MODEL" -q <"$REQUESTS" | sort >want

sbatch -Q --array=0-3 -o "$tmp/%a.log" "$root/examples/server/slurm.sh"
killed=
kill_one() { killed=$(pgrep -f -- "--resume results.1.jsonl" | head -n 1) && [ -s results.1.jsonl ] && kill -9 "$killed"; }
wait_for $$ kill_one
check "a task is killed on the way" "none was running" [ -n "$killed" ]
before=$(wc -l <results.1.jsonl)
is_over() { [ -z "$(squeue -h 2>/dev/null)" ]; }
wait_for $$ is_over
cat results.?.jsonl | sort >got
check "each line has its result, once" "$(cmp want got 2>&1); $(tail -n 2 ctld.log)" cmp want got
check "the task that was killed went on" "$before lines, then $(wc -l <results.1.jsonl)" \
    [ "$before" -lt "$(wc -l <results.1.jsonl)" ]
echo "slurm: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
