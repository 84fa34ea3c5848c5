# Pushes commits of an agent to one branch. Exit code 1: it would end the same the next time. Any other code: it may be tried again.
tab=$(printf '\t')
max_bytes=268435456

# The objects of the cluster get what is in /tmp/told: sentences of this script, and words of the project's server. What git says of the agent's commits
# quotes names, subjects and urls that the agent has written, and goes to this Pod's log alone.
fail() {
  echo "$1" >&2
  echo "$1" >>"${told:-/tmp/told}"
  exit 1
}

try_again() {
  echo "$1" >&2
  echo "$1" >>/tmp/told
  exit 75
}

# Runs a command that speaks with the project's server.
with_remote() {
  rm -f /tmp/silent
  # In a shell of its own, as a server that is silent ends it. That may be over the next time, and a push may have come through.
  if (said=/tmp/remote told=/dev/null && fetching_from "$URL" "$@") >/tmp/remote 2>&1; then
    cat /tmp/remote >&2
    return 0
  fi
  cat /tmp/remote >&2
  cat /tmp/remote >>/tmp/told
  # Neither refused credentials nor a lack of them mend themselves.
  [ ! -e /tmp/refused ] || exit 1
  [ ! -e /tmp/asked ] || [ -n "$SECRET" ] || exit 1
  return 1
}

printable_answer() {
  cat /tmp/curl
  [ ! -e /tmp/answer ] || head -c 1000 /tmp/answer | LC_ALL=C tr -c '[:print:]\n' '?'
  echo
}

# Gets the agent's commits from the gateway, which sends none when they are at $tip already. The token is in a file, as anybody may read arguments.
take_commits() {
  command -v curl >/dev/null || fail "the image of this Pod has no curl: set agents.image of the chart to one with git and curl"
  printf '%s\n' "$GATEWAY_CA" >/tmp/gateway.crt
  tries=0
  while :; do
    printf 'Authorization: Bearer %s\n' "$(cat /var/run/yoi/token)" >/tmp/header
    # A gateway that sends more than a bundle can hold does not fill the node's disk.
    status=$(
      ulimit -f $((max_bytes / 512 + 8))
      curl --silent --show-error --noproxy '*' --cacert /tmp/gateway.crt --header @/tmp/header --connect-to "::$GATEWAY" --connect-timeout 30 \
        --speed-limit 1 --speed-time 60 --output /tmp/answer --write-out '%{http_code}' "https://$GATEWAY_NAME/v1/push${tip:+?at=$tip}" 2>/tmp/curl
    ) && ended=0 || ended=$?
    # The answer holds words of the agent's runtime.
    [ "$ended,$status" = 0,200 ] || printable_answer >&2
    case $ended,$status in
      0,200) break ;;
      0,413) fail "the agent's commits are more than $((max_bytes >> 20)) MiB: take files out of them that are no source" ;;
      0,400 | 0,409) fail "the agent's runtime does not give out its commits (answer $status): kubectl yoi pull says why" ;;
      # By the limit, or by a disk without room.
      23,* | 153,*) fail "the agent's commits are more than $((max_bytes >> 20)) MiB, or more than this Pod can keep: take files out of them that are no source" ;;
    esac
    tries=$((tries + 1))
    why="the gateway gave no commits (curl $ended, answer $status)"
    [ "$ended" -eq 0 ] || why="$why: $(tail -n 1 /tmp/curl)"
    # The Pod that reads a stopped agent may still be starting.
    [ "$tries" -lt "${TRIES:-40}" ] || try_again "$why"
    sleep 3
  done
  rm -f /tmp/header /tmp/curl
  IFS=' ' read -r head _ commits uncommitted </tmp/answer
  tail -n +2 /tmp/answer >/tmp/bundle
  rm -f /tmp/answer
}

list_branch() {
  exec git ls-remote --refs -- "$URL" "refs/heads/$BRANCH" >/tmp/branch
}

# Sets $tip to the commit of the branch on the server, or to nothing.
look_at_branch() {
  with_remote list_branch || try_again "the branch could not be looked at"
  tip=
  while IFS="$tab" read -r id name; do
    [ "$name" != "refs/heads/$BRANCH" ] || tip=$id
  done </tmp/branch
}

# Sets $tip before anything is taken from the agent. Where the branch cannot be looked at, that counts once there is something to push: $look is the exit
# code then, and /tmp/look has the words.
look_before() {
  look=0
  (look_at_branch && echo "$tip" >/tmp/tip) || look=$?
  [ "$look" -ne 0 ] || tip=$(cat /tmp/tip)
  [ ! -e /tmp/told ] || mv -f /tmp/told /tmp/look
}

# Fetches commits and trees, and of the files only those that git needs, where the server can do that.
fetch_base() {
  with_remote git fetch --quiet --progress --no-tags --filter=blob:none "$@" origin "+$base:refs/yoi/base"
}

# The history before the base, where one commit of it is not enough.
fetch_history() {
  [ ! -e "$GIT_DIR/shallow" ] || fetch_base --unshallow || try_again "the history of $base could not be fetched"
}

# Makes a repository of its own with the base in it, if there is one. Nothing is checked out, so no filter and no attribute counts.
make_repository() {
  export GIT_DIR=/tmp/repository
  rm -rf "$GIT_DIR"
  format=sha1
  [ "${#head}" -eq 40 ] || format=sha256
  git init --quiet --bare --object-format="$format" --template= "$GIT_DIR"
  git config remote.origin.url "$URL"
  [ -n "$base" ] || return 0
  # What failed the first time has been made good then.
  fetch_base --depth=1 || { fetch_base && rm -f /tmp/told; } || {
    # What git and its servers say of a commit that they do not have, or do not give.
    grep -q -e 'not our ref' -e 'unadvertised object' -e 'want [0-9a-f]* not valid' /tmp/said ||
      try_again "commit $base, which the agent's tree was made from, could not be fetched from $URL"
    fail "$URL does not give commit $base, which the agent's tree was made from: has it another history now, or may Secret ${SECRET:-of nobody} not read it?"
  }
}

# Takes the bundle's objects, if it holds one name, begins at the base and has only sound objects.
take_bundle() {
  header=$(LC_ALL=C sed '/^$/q' /tmp/bundle | head -c 4194304 | wc -c)
  ! head -c "$header" /tmp/bundle | LC_ALL=C grep -q -a '^@filter' || fail "the agent's bundle leaves objects out"
  git bundle list-heads /tmp/bundle >/tmp/heads || fail "the agent's bundle is none"
  [ "$(cat /tmp/heads)" = "$head HEAD" ] || {
    head -c 1000 /tmp/heads | LC_ALL=C tr -c '[:print:]\n' '?' >&2
    fail "the agent's bundle holds $(wc -l </tmp/heads | tr -d ' ') names, and not HEAD at $head alone"
  }
  # A merge of what came before the base.
  ! head -c "$header" /tmp/bundle | LC_ALL=C grep -a '^-' | grep -q -v "^-$base" || fetch_history
  git bundle verify --quiet /tmp/bundle || not_on_base "the agent's bundle does not begin at $base, which its tree was made from"
  tail -c +$((header + 1)) /tmp/bundle | git index-pack --stdin --fix-thin --fsck-objects --max-input-size="$max_bytes" >/dev/null ||
    fail "an object of the agent's commits is not sound"
  rm -f /tmp/bundle
}

# Fails with $1, or where there is no base with what that means.
not_on_base() {
  [ -z "$base" ] || fail "$1"
  fail "it is not known which commit the agent's tree was made from, and $URL has commits that its own do not go on from: use kubectl yoi pull"
}

check_commits() {
  git merge-base --is-ancestor "$commit" "$head" ||
    fail "commit $commit is not in the agent's tree any more, which is at $head: push again"
  check_pointers
  if [ -z "$base" ]; then
    check_all_branches
    return 0
  fi
  git merge-base --is-ancestor "$base" "$commit" ||
    fail "commit $commit is not made on top of $base, which the agent's tree was made from: let the agent rebase it onto that"
  [ "$(git rev-list --count --max-parents=0 "$commit" "^$base")" -eq 0 ] ||
    fail "a history was merged into commit $commit that has nothing in common with the project's"
}

list_branches() {
  exec git ls-remote --heads -- "$URL" >/tmp/branches
}

# A tree without a base was made from a repository without commits, or it is not known from what. Its commits go on from all that is there, if anything is.
check_all_branches() {
  with_remote list_branches || try_again "the branches could not be looked at"
  while IFS="$tab" read -r id _; do
    git merge-base --is-ancestor "$id" "$commit" 2>/dev/null || not_on_base
  done </tmp/branches
}

# A server takes a pointer of git LFS without its content, and every later checkout fails.
check_pointers() {
  version='version https://git-lfs.github.com/spec/v1'
  git rev-list --objects "$commit" ${base:+"^$base"} >/tmp/objects
  # A pointer is shorter than 1024 bytes.
  cut -d ' ' -f 1 /tmp/objects | git cat-file --batch-check='%(objecttype) %(objectsize) %(objectname)' |
    sed -n -e 's/^blob [0-9]\{1,3\} //p' -e 's/^blob 10[0-2][0-9] //p' >/tmp/small
  # The line before such a line is the one in which git names the blob, or both are of another text, which is looked at once more.
  git cat-file --batch </tmp/small | LC_ALL=C sed -n -e '/^[0-9a-f]* blob [0-9]*$/h' -e "\\|^$version\$|{x;p;x}" | cut -d ' ' -f 1 >/tmp/candidates
  while read -r id; do
    [ "$(git cat-file blob "$id" 2>/dev/null | head -n 1)" != "$version" ] || sed -n "s/^$id //p" /tmp/objects
  done </tmp/candidates >/tmp/pointers
  count=$(wc -l </tmp/pointers)
  [ "$count" -eq 0 ] || {
    echo "pointers of git LFS:"
    LC_ALL=C tr -c '[:print:]\n' '?' </tmp/pointers
    fail "the commits hold pointers of git LFS, $count in all, whose contents are in the agent's tree only. Pull the commits, copy .git/lfs/objects of the agent's tree into your clone, then git lfs push and git push: docs/use.md has the commands"
  }
}

# Says why nothing may be pushed onto the branch as it is.
check_branch() {
  [ "$tip" != "$EXPECTED" ] || return 0
  if [ -n "$EXPECTED" ]; then
    fail "branch $BRANCH is at ${tip:-no commit}, and not at $EXPECTED, as --force-with-lease says: nothing was pushed"
  fi
  [ -n "$tip" ] || return 0
  git merge-base --is-ancestor "$tip" "$commit" 2>/dev/null || {
    fetch_history
    git merge-base --is-ancestor "$tip" "$commit" 2>/dev/null || refuse_moved
  }
}

refuse_moved() {
  fail "branch $BRANCH has moved: it is at $tip, and the agent's commit $commit is not made on top of that; nothing was pushed. To lose what is there: --force-with-lease=$tip"
}

push_commit() {
  # What the server has already is asked for, and not sent. Deltas to the base's files are not looked for, as each such file would be fetched first.
  set -- git -c push.negotiate=true -c pack.window=0 push --quiet --no-verify --recurse-submodules=no
  [ -z "$EXPECTED" ] || set -- "$@" "--force-with-lease=refs/heads/$BRANCH:$EXPECTED"
  with_remote "$@" origin "$commit:refs/heads/$BRANCH"
}

finish() {
  printf '%s %s %s\n' "${commit:--}" "${1:--}" "$uncommitted" >/dev/termination-log
}

push() {
  set_environment
  check_credentials
  tip=
  look_before
  take_commits
  # The cluster's objects name it. What the agent says of it is not asked for.
  base=$BASE
  commit=${COMMIT:-$head}
  if [ "$commits" -eq 0 ]; then
    [ -z "$COMMIT" ] || [ "$COMMIT" = "$head" ] || fail "commit $COMMIT is not in the agent's tree any more, which is at $head: push again"
    commit=
    finish
    return 0
  fi
  if [ "$look" -ne 0 ]; then
    mv -f /tmp/look /tmp/told
    exit "$look"
  fi
  before=$tip
  # The gateway has sent no bundle then.
  if [ "$tip" = "$commit" ]; then
    finish "$before"
    return 0
  fi
  make_repository
  take_bundle
  check_commits
  check_branch
  # A server that died may have done it all the same, and another push may have come first.
  push_commit || {
    look_at_branch
    if [ "$tip" != "$commit" ]; then
      [ "$tip" = "$before" ] || refuse_moved
      # A rule of the server's stays. A lock goes with the push that holds it: that of another, or of an attempt that was killed.
      ! grep -q -F '[remote rejected]' /tmp/said || grep -q -F ".lock': File exists" /tmp/said || exit 1
      try_again "the push failed, and branch $BRANCH is still ${before:+at }${before:-not there}"
    fi
  }
  finish "$before"
}

rm -f /tmp/silent /tmp/told /tmp/look
push >/tmp/said 2>&1 </dev/null &
if wait $!; then code=0; else code=$?; fi
report
if [ "$code" -ne 0 ]; then
  [ -s /tmp/told ] || echo "git failed on the way, with exit code $code" >/tmp/told
  print_words /tmp/told >/dev/termination-log
fi
rm -f /tmp/said
exit "$code"
