# Submodules are fetched one by one, so that no host is spoken to that the source does not name.
tab=$(printf '\t')

# The keys in which git has registered the URLs of submodules. No name of one holds a line feed.
registered() {
  git config --local --name-only -z --get-regexp '^submodule\..*\.url$' | tr '\0' '\n' | sort
}

# A link in the way of $1 would lead out of its place.
has_link() {
  way= left=$1/
  while [ -n "$left" ]; do
    way=$way${left%%/*} left=${left#*/}
    [ ! -L "$way" ] || return 0
    way=$way/
  done
  return 1
}

# Fetches the submodules of the repository in this folder, which is $1 levels deep and at $2 in the tree.
fetch_submodules() {
  # The folder of a submodule that is not fetched is empty. An agent would take it for the source.
  git ls-files -s >/tmp/index
  paths=$(sed -n "s/^160000 [0-9a-f]* [0-9]$tab//p" /tmp/index)
  [ -n "$paths" ] || return 0
  [ "$1" -lt 8 ] || fail "submodules of $2 lie more than 8 deep in one another"
  [ ! -L .gitmodules ] || fail "$2.gitmodules is a link"
  printf '%s\n' "$paths" | while IFS= read -r path; do fetch_submodule "$1" "$2" "$path" </dev/null; done
}

fetch_submodule() {
  at=$2$3
  echo "$at" >>/tmp/submodules
  [ "$(wc -l </tmp/submodules)" -le 500 ] || fail "the source has more than 500 submodules"
  case $3 in "\""* | -*) fail "submodule $at has a name that is not taken: without quotes and control characters, and not from a dash on" ;; esac
  ! has_link "$3" || fail "submodule $at lies behind a link"
  # Git alone reads .gitmodules, where one key may stand many times. What it has registered for this path is what it will fetch from.
  registered >/tmp/before
  # No name is a pattern of names.
  GIT_LITERAL_PATHSPECS=1 git submodule --quiet init -- "$3" || fail "submodule $at is not taken: $2.gitmodules has no entry of it that git takes"
  registered >/tmp/after
  key=$(comm -13 /tmp/before /tmp/after)
  [ "$(comm -13 /tmp/before /tmp/after | wc -l)" -eq 1 ] || fail "submodule $at has no url of its own in $2.gitmodules"
  url=$(git config --local --get "$key" || true)
  require_host "$url" "submodule $at"
  fetching_from "$url" env GIT_LITERAL_PATHSPECS=1 git submodule --quiet update --progress --checkout --no-recommend-shallow ${DEPTH:+"--depth=$DEPTH"} -- "$3" ||
    fail "submodule $at is not fetched from $url"
  wanted=$(GIT_LITERAL_PATHSPECS=1 git ls-files -s -- "$3" | cut -d ' ' -f 2)
  (
    cd -- "$3"
    [ "$(git rev-parse HEAD)" = "$wanted" ] || fail "submodule $at is not at commit $wanted"
    [ "$LFS" = Skip ] || fetch_lfs "$url" "$at/"
    fetch_submodules $(($1 + 1)) "$at/"
  )
}
