clone() {
  fetching_from "$URL" git clone --quiet --progress "$@" -- "$URL" . || exit 1
}

# Fetches one ref or commit that no branch need hold.
fetch_one() {
  fetching_from "$URL" git fetch --quiet --progress --no-tags ${DEPTH:+"--depth=$DEPTH"} origin "$1"
}

no_such_ref() {
  fail "the source has no branch, tag or commit $REF"
}

# Sets branch and tag to the names that REF may stand for.
parse_ref() {
  branch=$REF tag=$REF
  case $REF in
    refs/heads/*) branch=${REF#refs/heads/} tag= ;;
    refs/tags/*) branch= tag=${REF#refs/tags/} ;;
    refs/*) branch= tag= ;;
  esac
  # A commit id is no name, whatever the names of branches are.
  if is_commit_id "$REF"; then branch= tag=; fi
}

# Whether the source has the branch that REF names.
is_remote_branch() {
  [ -n "$branch" ] && git rev-parse --quiet --verify "refs/remotes/origin/$branch" >/dev/null
}

fetch_source() {
  # No server has anything of it: all is in what somebody has synced.
  if [ -z "$URL" ]; then
    git init --quiet --initial-branch=main .
    return 0
  fi
  parse_ref
  if [ -z "$DEPTH" ]; then
    clone
  elif [ -z "$REF" ]; then
    clone --depth "$DEPTH"
  elif [ -n "$branch$tag" ]; then
    clone --depth "$DEPTH" --branch "${branch:-$tag}"
  else
    git init --quiet .
    git remote add origin "$URL"
  fi
  if [ -n "$REF" ]; then checkout_ref; elif [ -z "$REVISION" ]; then require_default_branch; fi
}

checkout_ref() {
  if is_remote_branch; then
    git checkout --quiet -B "$branch" --track "origin/$branch"
  elif [ -n "$tag" ] && git rev-parse --quiet --verify "refs/tags/$tag^{commit}" >/dev/null; then
    git checkout --quiet --detach "refs/tags/$tag"
  elif is_commit_id "$REF"; then
    git cat-file -e "$REF^{commit}" 2>/dev/null || fetch_one "$REF" || no_such_ref
    git checkout --quiet --detach "$REF^{commit}"
    [ "$(git rev-parse HEAD)" = "$REF" ] || no_such_ref
  elif [ -n "$branch$tag" ] && git rev-parse --quiet --verify "$REF^{commit}" >/dev/null; then
    git checkout --quiet --detach "$REF"
  else
    fetch_one "$REF" || no_such_ref
    git checkout --quiet --detach FETCH_HEAD
  fi
}

# The generation is of this commit, though the branch may have moved on: a look has found it, or another node holds it already.
take_revision() {
  take_bundle
  check_names
  [ -n "$REVISION" ] && [ "$(git rev-parse --verify HEAD 2>/dev/null || true)" != "$REVISION" ] || return 0
  git cat-file -e "$REVISION^{commit}" 2>/dev/null || [ -n "$URL" ] ||
    fail "what was synced as commit $REVISION is not there any more: say kubectl yoi sync again"
  git cat-file -e "$REVISION^{commit}" 2>/dev/null || fetch_one "$REVISION" ||
    fail "this generation is of commit $REVISION of the source, and the server does not give it any more"
  git reset --quiet --hard "$REVISION"
}
