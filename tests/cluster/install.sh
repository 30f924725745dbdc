#!/usr/bin/env bash
# Installs what the tests of this folder need from Debian's packages, where it may. It starts no service and never fails:
# a test that lacks something is skipped and says so.
set -euo pipefail

packages=(curl iproute2 munge openssh-client openssh-server rsync slurm-wlm)
policy=/usr/sbin/policy-rc.d

missing() {
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "not root, or no apt-get: nothing is installed" >&2
    exit
fi
mapfile -t wanted < <(missing)
if [[ ${#wanted[@]} -eq 0 ]]; then
    exit
fi
# Debian starts what it installs, unless this file forbids it.
if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q || true
apt-get install -q -y --no-install-recommends "${wanted[@]}" || echo "not installed: ${wanted[*]}" >&2
