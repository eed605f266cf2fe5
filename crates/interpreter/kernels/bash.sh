# The kernel of Bash contexts: a shell that keeps its variables, functions and directory from one cell to the next.
# The protocol is in README.md. Started as: bash --noprofile --norc KERNEL CELLS
#
# A cell that calls `exit`, fails under `set -e` or is interrupted would end the shell. Its exit trap writes down variables,
# functions and aliases and replaces the shell by a new one, in the same process, that reads them back: the cell is over, the
# context is not. Only options and traps are as new afterwards.

__panda_cells=$1
__panda_self=$0
__panda_count=${2:-0}
__panda_cell=

shopt -s expand_aliases

if [[ -z $3 ]]; then
  # Lines come from a private descriptor; the user's standard input is empty.
  exec {__panda_in}<&0 </dev/null
else
  __panda_in=$4
  __panda_out=$5
  __panda_err=$6
  # What cannot be set again (UID and the like) has its value already.
  source "$3" 2>/dev/null
fi
if [[ -z $__panda_out ]]; then
  exec {__panda_out}>&1 {__panda_err}>&2
fi

# Empties the file of a cell that is over. Removing takes a program, so that is done for many at once.
__panda_files=()
__panda_forget() {
  : >|"$__panda_cells/$__panda_cell"
  __panda_files+=("$__panda_cells/$__panda_cell")
  if ((${#__panda_files[@]} >= 32)); then
    command rm -f -- "${__panda_files[@]}"
    __panda_files=()
  fi
} 2>/dev/null

__panda_mark() {
  printf '\x1e%s %s\n' "$__panda_cell" "$1" >&"$__panda_out"
  printf '\x1e%s %s\n' "$__panda_cell" "$1" >&"$__panda_err"
}

__panda_exit() {
  local status=$?
  trap '' INT
  [[ $BASHPID == "$$" && -n $__panda_cell ]] || return
  # The cell may have sent its output elsewhere.
  exec >&"$__panda_out" 2>&"$__panda_err" </dev/null
  set +eux
  local state=$__panda_cells/$__panda_cell.state mask
  mask=$(umask)
  umask 077
  { alias -p; declare -p; declare -f; } >"$state" 2>/dev/null
  __panda_mark ") $status $__panda_count"
  command rm -f -- "$__panda_cells/$__panda_cell" "${__panda_files[@]}"
  umask "$mask"
  # A signal that is ignored now could never be caught again.
  trap - INT
  exec "$BASH" --noprofile --norc "$__panda_self" "$__panda_cells" "$__panda_count" "$state" \
    "$__panda_in" "$__panda_out" "$__panda_err"
}

if [[ -n $3 ]]; then
  command rm -f "$3"
fi

while IFS= read -r -u "$__panda_in" __panda_line; do
  [[ $__panda_line =~ ^run\ ([0-9a-f]{16})$ ]] || continue
  __panda_cell=${BASH_REMATCH[1]}
  # A cell whose file is gone was withdrawn.
  [[ -r $__panda_cells/$__panda_cell ]] || continue
  __panda_count=$((__panda_count + 1))
  trap __panda_exit EXIT
  trap 'exit 130' INT
  __panda_mark '('
  source "$__panda_cells/$__panda_cell"
  # A trace is of the cell's own commands, not of what follows here.
  { __panda_status=$?; set +xv; } 2>/dev/null
  trap '' INT
  exec >&"$__panda_out" 2>&"$__panda_err" </dev/null
  __panda_mark ") $__panda_status $__panda_count"
  __panda_forget
  __panda_cell=
done
trap - EXIT
