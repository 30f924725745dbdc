#!/usr/bin/env bash
# alray on Slurm: a Ray cluster of all nodes of the allocation, which runs one command of alray and ends.
#
#     sbatch cluster/slurm.sh run specs/quickstart.yaml pipeline.stages=4
#     sbatch --nodes=8 --cpus-per-task=16 cluster/slurm.sh study specs/studies/strong_scaling.yaml
#     sbatch cluster/slurm.sh resume runs/quickstart-20261121-090000
#
# The words after the script are those of `alray`. Submit from a folder that all nodes share: run folders are made in it.
#
# GPUs: sbatch --gpus-per-node=4 cluster/slurm.sh run SPEC resources.device=cuda 'resources.per_stage={CPU: 1, GPU: 1}'
#
# Two minutes before the time limit, and at `scancel --signal=TERM --batch JOB`, the run writes a checkpoint and ends; then
# `sbatch cluster/slurm.sh resume RUN` goes on. Slurm does not put the job back into its queue by itself (--no-requeue): the
# same words would begin another run.
#
# The job has its nodes to itself (--exclusive): Ray's symmetric-run does not start on a node where another Ray runs, and at its
# end it stops every Ray of this user there. Ray counts --cpus-per-task processors on each node.
#
# Environment: ALRAY_VENV is the virtual environment with alray, on all nodes. Default: .venv in the folder of sbatch.
#SBATCH --job-name=alray
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --output=alray-%j.log
#SBATCH --signal=B:TERM@120
#SBATCH --no-requeue
set -euo pipefail

# shellcheck disable=SC1091 # the environment is the user's
source "${ALRAY_VENV:-.venv}/bin/activate"

# The head is the node that this script runs on, the first one. Ray needs its IP address: for a name it would ask a name
# server, even if /etc/hosts has the name, and on some nodes their name means 127.0.1.1.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
known=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
head=$( (getent ahostsv4 "$known" || true) | awk '$1 !~ /^127\./ {print $1; exit}')
head=${head:-$(hostname -I | awk '{print $1}')}
# A port for each job: a node that an earlier job left behind must not find this head.
port=$((20000 + SLURM_JOB_ID % 10000))
address=$head:$port

# Ray opens many files and sockets, of which many systems allow 1,024 unless asked.
ulimit -n "$(ulimit -Hn)"

# Only this job may use its Ray.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token
# Ray would run the stages at niceness 15, behind every other process.
export RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0

# Ray's symmetric-run has two traps. It gives up if the head is not there yet, so the other nodes wait for the head's port. And
# it exits with 0 even if the head did not start. So the command makes a file when it begins, and the script looks for that
# file, which holds the number of its process.
began=$(mktemp -u "$PWD/.alray-$SLURM_JOB_ID-XXXXXX")
trap 'rm -f "$began"' EXIT
export first head port began RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
# shellcheck disable=SC2016 # the nodes expand both
on_node='if [[ $SLURMD_NODENAME == "$first" ]]; then
    "$@" || exit
    [[ -e $began ]] || { echo "Ray could not be started on $first" >&2; exit 1; }
else
    until (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null; do sleep 1; done
    exec "$@"
fi'
# shellcheck disable=SC2016
on_cluster='echo $$ >"$began" && exec alray "$@"'

# Slurm tells this script alone of the time limit. The driver runs on the same node.
trap '[[ ! -s $began ]] || kill -TERM "$(<"$began")"' TERM
srun --kill-on-bad-exit=1 \
    --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    bash -c "$on_node" node \
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --disable-usage-stats \
    -- bash -c "$on_cluster" alray "$@" --address "$address" &
step=$!
# A signal ends `wait` before the step has ended.
while kill -0 "$step" 2>/dev/null; do
    wait "$step" || true
done
wait "$step"
