#!/bin/sh
# An array job: each task computes its part of the lines, and can be repeated at any time.
#     MODEL=model.gguf REQUESTS=requests.jsonl sbatch --array=0-7 examples/server/slurm.sh
# The results are in results.0.jsonl ... results.7.jsonl, in the folder where sbatch was called. To go
# on, call it again with the same --array: how many tasks there are decides who computes what.
#SBATCH --job-name=bitnet
#SBATCH --requeue
"${BATCH:-build/batch}" -m "$MODEL" --shard auto -q \
    --resume "results.$SLURM_ARRAY_TASK_ID.jsonl" <"$REQUESTS"
code=$?
# Another try can help: 75 says so, and 137 is a kill, perhaps for memory. It goes on where it was.
case $code in
    75 | 137) [ "${SLURM_RESTART_COUNT:-0}" -ge 5 ] || scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit $code
