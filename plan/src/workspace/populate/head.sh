# Fails if HEAD is not what it was when the base was filled. No git reads it, because whatever ran in prepare may have written any setting.

# Whether $1 is a file of this tree, and no link leads to it.
is_plain_file() {
  [ -f "$1" ] && [ "$(readlink -f -- "$1")" = "$(pwd -P)/$1" ]
}

# Sets $commit and $branch to those of HEAD, and to - what it does not name.
read_head() {
  commit=- branch=-
  # Git would find branches elsewhere.
  if [ -e .git/commondir ] || [ -e .git/reftable ] || ! is_plain_file .git/HEAD; then return 0; fi
  IFS= read -r line <.git/HEAD || true
  case $line in
    "ref: "*)
      branch=${line#ref: }
      if is_plain_file ".git/$branch"; then
        IFS= read -r commit <".git/$branch" || true
      elif is_plain_file .git/packed-refs; then
        while IFS=' ' read -r id name; do
          [ "$name" != "$branch" ] || { commit=$id && break; }
        done <.git/packed-refs
      fi
      ;;
    *) commit=$line ;;
  esac
  is_commit_id "$commit" || commit=-
}

# Says in words what HEAD names: commit $1 and branch $2.
describe() {
  case $1 in -) place="no commit" ;; *) place="commit $1" ;; esac
  case $2 in -) echo "$place" ;; *) echo "$place on ${2#refs/heads/}" ;; esac
}

[ -n "$COMMIT" ] || fail "the Pod that has filled the base did not say which commit it is at"
cd "$DEST"
read_head
[ "$commit $branch" = "$COMMIT $BRANCH" ] ||
  fail "it moved HEAD from $(describe "$COMMIT" "$BRANCH") to $(describe "$commit" "$branch"). prepare may not commit, reset or check out: do that in the repository, or name another commit in spec.source.git.ref"
