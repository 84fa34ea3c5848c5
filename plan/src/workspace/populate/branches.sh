# Fails if HEAD of the source names a branch that is not there: an agent would take the empty tree for the source. A source without any branch is empty.
require_default_branch() {
  ! git rev-parse --quiet --verify HEAD >/dev/null || return 0
  list_branches
  [ ! -s /tmp/branches ] || fail "$(no_default_branch "$(git symbolic-ref --quiet HEAD)")"
}

# Writes the names of the source's branches to /tmp/branches.
list_branches() {
  fetching_from "$URL" sh -c 'exec git ls-remote --quiet --heads -- "$1" >/tmp/refs' list "$URL" || exit 1
  sed 's|^[0-9a-f]*[[:space:]]*refs/heads/||' /tmp/refs >/tmp/branches
}

# Says what to do about a source whose HEAD names no commit, but $1 if that is known. It has the branches in /tmp/branches.
no_default_branch() {
  count=$(wc -l </tmp/branches)
  names=$(head -n 10 /tmp/branches | tr '\n' ' ')
  names=$(echo "${names% }" | sed 's/ /, /g')
  [ "$count" -le 10 ] || names="$names and $((count - 10)) more"
  named=${1#refs/heads/}
  echo "the source has no branch ${named:+"$named, "}which its HEAD names; it has $names: name one in $FIELD.ref, or let HEAD name one on the server"
}
