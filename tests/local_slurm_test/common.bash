# What up, down and exec share: where the private SLURM in FOLDER is, and the mark by which its processes are found.

set -euo pipefail

die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

open_folder() { # FOLDER
  [ -n "${1:-}" ] || die "which folder? the first lines of this script say how it is called"
  folder=$(realpath -m "$1")
  # Every process that is started here inherits the mark, and nothing else has it.
  mark=MPIMBS_PRIVATE_SLURM=$folder
}

at() { # NODE COMMAND...: run there, marked, as a process of this SLURM; "login" is where slurmctld and the clients are
  local node=$1 holder; shift
  local marked=(env "$mark" "SLURM_CONF=$folder/etc/$node/slurm.conf")
  if [ ! -e "$folder/nodes/$node" ]; then exec "${marked[@]}" "$@"; fi
  holder=$(cat "$folder/nodes/$node")
  exec nsenter --target "$holder" --net --uts --ipc --mount --wd="$PWD" -- "${marked[@]}" "$@"
}

processes() { # the ids of all live processes of this SLURM: daemons, nodes, jobs
  local id
  # A slurmstepd writes its title over its environment; it keeps the log of its slurmd open.
  { grep -lszxF -- "$mark" /proc/[0-9]*/environ || true
    for id in $(pidof slurmstepd || true); do
      find "/proc/$id/fd" -lname "$folder/log/*" 2>/dev/null || true
    done
  } | cut -d/ -f3 | sort -un | while read -r id; do
    if [ "$id" != $$ ] && grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$id/status"; then echo "$id"; fi
  done
}
