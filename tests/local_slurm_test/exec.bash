#!/usr/bin/env bash
# Run a command as on the login node of the private SLURM in FOLDER.
#
#   exec.bash FOLDER COMMAND...

source "$(dirname "$(realpath "$0")")/common.bash"
open_folder "${1:-}"; shift
at login "$@"
