#!/bin/sh
# An array job: each task computes its part of the lines, and can be repeated at any time.
#     MODEL=model.gguf REQUESTS=requests.jsonl sbatch --array=0-7 --cpus-per-task=8 --mem=4G \
#         examples/server/slurm.sh
# The results are in results.0.jsonl ... results.7.jsonl, in the folder where sbatch was called. To go
# on, call it again with the same --array: how many tasks there are decides who computes what.
#SBATCH --job-name=bitnet
#SBATCH --requeue
results=results.$SLURM_ARRAY_TASK_ID.jsonl
kills=$results.kills                   # a line for each try that was killed, perhaps for memory
parallel=32 n=$(cat "$kills" 2>/dev/null | wc -l)
while [ "$n" -gt 0 ] && [ $parallel -gt 1 ]; do parallel=$((parallel / 2)) n=$((n - 1)); done

"${BATCH:-build/batch}" -m "$MODEL" --shard auto -q -np $parallel \
    ${SLURM_CPUS_PER_TASK:+-t "$SLURM_CPUS_PER_TASK"} --resume "$results" <"$REQUESTS"
code=$?
# Another try can help: 75 says so. Killed (137) it needs less memory, so half as many lines at a time,
# and if one at a time is too many, another try is in vain. It goes on where it was.
case $code in
    75) [ "${SLURM_RESTART_COUNT:-0}" -ge 5 ] || scontrol requeue "$SLURM_JOB_ID" ;;
    137)
        echo "killed with -np $parallel" >>"$kills"
        [ $parallel -eq 1 ] || scontrol requeue "$SLURM_JOB_ID" ;;
    *) rm -f "$kills" ;;
esac
exit $code
