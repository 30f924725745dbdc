#!/usr/bin/env bash
# A Ray cluster of two nodes on this machine, with a dashboard and a token, to try `alray submit` on.
#
#     source .venv/bin/activate         # the jobs run in this environment
#     cluster/local.sh up               # starts both nodes, and prints what to export
#     cluster/local.sh down             # ends them; other Rays on this machine go on
#
# Environment, with the default of each:
#     LOCAL_CLUSTER    where the token, the process numbers and the logs are kept   ~/.cache/alray/local-cluster
#     PORT             of the head                                                  6379
#     DASHBOARD_PORT   of its dashboard                                             8265
#     CPUS             processors that each node has, as Ray counts them            2
#     RAY_TMP          where Ray keeps its files                                     /tmp/ray
set -euo pipefail

here=${LOCAL_CLUSTER:-$HOME/.cache/alray/local-cluster}
port=${PORT:-6379}
dashboard_port=${DASHBOARD_PORT:-8265}
cpus=${CPUS:-2}
tmp=${RAY_TMP:-/tmp/ray}
address=http://127.0.0.1:$dashboard_port

up() {
    if [[ -e $here/head.pid || -e $here/worker.pid ]]; then
        echo "a local cluster is running, or was not ended: cluster/local.sh down" >&2
        exit 1
    fi
    mkdir -p "$here"
    (umask 077 && python -c 'import secrets; print(secrets.token_hex(32), end="")' >"$here/token")
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$here/token
    export RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0
    start head --head --port="$port" --dashboard-host=127.0.0.1 --dashboard-port="$dashboard_port" --temp-dir="$tmp"
    wait_for head dashboard_answers
    start worker --address="127.0.0.1:$port"
    wait_for worker both_nodes_are_there
    cat <<END
export RAY_API_SERVER_ADDRESS=$address RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$here/token
END
}

# Start a node in the background. A separate process group lets `down` end it with all that it started.
start() {
    local name=$1
    shift
    # With 0, the ports that are the same for every node are free ones: several nodes run on this machine.
    # A script lets what it starts in the background ignore SIGINT. `trap -` undoes that: `ray job stop` sends it.
    (
        trap - INT
        exec setsid ray start "$@" --num-cpus="$cpus" --dashboard-agent-listen-port=0 --min-worker-port=0 \
            --max-worker-port=0 --disable-usage-stats --block
    ) >"$here/$name.log" 2>&1 </dev/null &
    echo "$! $(begun $!)" >"$here/$name.pid"
}

# When a process began: the system's boot, and the clock ticks from then on; without ticks where there is no such process.
# After a reboot another program may have the number.
begun() {
    echo "$(cat /proc/sys/kernel/random/boot_id):$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20)"
}

wait_for() {
    local name=$1 asked=$2 pid mark
    read -r pid mark <"$here/$name.pid"
    for _ in {1..240}; do
        if "$asked"; then
            return
        fi
        [[ $(begun "$pid") == "$mark" ]] || break
        sleep 0.5
    done
    echo "the $name did not start:" >&2
    tail -n 20 "$here/$name.log" >&2
    down
    exit 1
}

dashboard_answers() {
    curl -fs -o /dev/null -H "Authorization: Bearer $(cat "$here/token")" "$address/api/version"
}

both_nodes_are_there() {
    [[ $(curl -fs -H "Authorization: Bearer $(cat "$here/token")" "$address/api/v0/nodes" |
        grep -o '"state": "ALIVE"' | wc -l) -eq 2 ]]
}

down() {
    local name pid mark now
    for name in worker head; do
        if [[ -e $here/$name.pid ]]; then
            read -r pid mark <"$here/$name.pid"
            now=$(begun "$pid")
            if [[ $now == "$mark" ]]; then
                end "$pid"
            elif [[ $now == "${mark%:*}:" ]]; then
                end_group "$pid" # `ray start` was killed in this boot, and what it started may go on
            fi
            rm -f "$here/$name.pid"
        fi
    done
}

# Ask a node to end, and end what is left of it after 10 s.
end() {
    kill -TERM "$1" 2>/dev/null || true
    for _ in {1..40}; do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.25
    done
    end_group "$1"
}

end_group() {
    kill -KILL -- "-$1" 2>/dev/null || true
}

case ${1:-} in
up | down) "$1" ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
    ;;
esac
