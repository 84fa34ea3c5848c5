# Prints the commit that REF of URL is at, as a clone would take it: a branch before a tag.
commit_of_ref() {
  branch=$REF tag=$REF
  case $REF in
    '') branch= tag= ;;
    refs/heads/*) branch=${REF#refs/heads/} tag= ;;
    refs/tags/*) branch= tag=${REF#refs/tags/} ;;
    refs/*) branch= tag= ;;
  esac
  set -- "${REF:-HEAD}"
  [ -z "$branch" ] || set -- "$@" "refs/heads/$branch"
  [ -z "$tag" ] || set -- "$@" "refs/tags/$tag^{}" "refs/tags/$tag"
  fetching_from "$URL" sh -c 'exec git ls-remote --quiet -- "$@" >/tmp/refs' look "$URL" "$@" || exit 1
  # The server's answer holds more than what was asked for: a pattern is also the end of another name.
  shift
  [ -n "$branch$tag" ] || set -- "${REF:-HEAD}"
  for wanted in "$@"; do
    while read -r commit name; do
      if [ "$name" = "$wanted" ]; then
        is_commit_id "$commit" || fail "the server names no commit for $wanted"
        echo "$commit" >/tmp/commit
        return 0
      fi
    done </tmp/refs
  done
  [ -z "$REF" ] || fail "the source has no branch or tag $REF now"
  list_branches
  [ -s /tmp/branches ] || fail "the source has no branch yet"
  fail "$(no_default_branch '')"
}
