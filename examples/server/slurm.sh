#!/bin/sh
# An array job: each task computes its part of the lines, and can be repeated at any time.
#     MODEL=model.gguf REQUESTS=requests.jsonl sbatch --array=0-7 examples/server/slurm.sh
# The results are in results.0.jsonl ... results.7.jsonl, in the folder where sbatch was called.
#SBATCH --job-name=bitnet
#SBATCH --requeue
"${BATCH:-build/batch}" -m "$MODEL" --shard auto -q \
    --resume "results.$SLURM_ARRAY_TASK_ID.jsonl" <"$REQUESTS"
code=$?
# 75: another try can help, so the task goes back to the queue.
[ $code -ne 75 ] || scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
exit $code
