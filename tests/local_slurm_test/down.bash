#!/usr/bin/env bash
# Stop the private SLURM in FOLDER: its jobs, its daemons, its nodes, and nothing else. The folder stays.
#
#   down.bash FOLDER

source "$(dirname "$(realpath "$0")")/common.bash"
open_folder "${1:-}"

signal_all() { # SIGNAL: to all processes, and wait up to a second until they are gone
  local left
  left=$(processes)
  [ -z "$left" ] && return 0
  kill -s "$1" $left 2>/dev/null || true
  for _ in $(seq 10); do
    [ -z "$(processes)" ] && return 0
    sleep 0.1
  done
  return 1
}

# The slurmstepd of a job that runs waits for slurmctld forever.
signal_all TERM || signal_all KILL || die "these processes don't end: $(processes | tr '\n' ' ')"
rm -f "$folder"/nodes/*
