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
    [ ! -s /tmp/remote ] || cat /tmp/remote >&2
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

# Opens the one connection to the project's server that the push needs: the program that git itself would start for each of its questions, which it answers
# line by line, gitremote-helpers(7). For other urls git is asked each time. With $1 the token goes with the first request, and not once one was refused.
open_session() {
  case $URL in https://* | http://*) ;; *) return 0 ;; esac
  close_session
  mkfifo /tmp/questions /tmp/answers
  : >/tmp/session
  included=
  [ -z "${1:-}" ] || write_token
  GIT_CONFIG_COUNT=${included:+1} GIT_CONFIG_KEY_0=include.path GIT_CONFIG_VALUE_0=$included "$(git --exec-path)/git-remote-${URL%%:*}" origin "$URL" </tmp/questions >/tmp/answers 2>>/tmp/session &
  session=$!
  exec 7>/tmp/questions 8</tmp/answers
}

# Writes the header for the project's server into $included: in memory, and only until the connection's program has read it at its start. Older versions of git
# read no such file, and servers that want another header refuse this one: then the credential helper is asked, as always.
write_token() {
  case $URL in https://*) [ -s /yoi/credentials/password ] || return 0 ;; *) return 0 ;; esac
  included=$(mktemp /dev/shm/XXXXXXXX 2>/dev/null) || return 0
  printf '[http "https://%s/"]\n\textraHeader = Authorization: Basic %s\n' "$(host_of "$URL")" \
    "$(printf '%s:%s' "$(cat /yoi/credentials/username)" "$(cat /yoi/credentials/password)" | base64 | tr -d '\n')" >"$included"
}

close_session() {
  [ -z "$session" ] || {
    exec 7>&- 8<&-
    kill "$session" 2>/dev/null || true
    wait "$session" 2>/dev/null || true
  }
  session=
  rm -f /tmp/questions /tmp/answers
}

# Asks the open connection, with a line for each argument. What it answers is in /tmp/reply. Fails if the empty line at its end does not come.
ask() {
  printf '%s\n' "$@" >&7
  ended=
  # Not by another program: it may wait for more than has come.
  while IFS= read -r line; do
    [ -n "$line" ] || {
      ended=true
      break
    }
    printf '%s\n' "$line"
  done <&8 >/tmp/reply
  [ ! -s /tmp/session ] || cat /tmp/session
  : >/tmp/session
  [ -n "$ended" ]
}

list_branch() {
  if [ -n "$session" ]; then
    ask "list for-push" || return 1
    LC_ALL=C sed -n "s/^\([0-9a-f]*\) /\1$tab/p" /tmp/reply >/tmp/branch
  else
    exec git ls-remote --heads -- "$URL" >/tmp/branch
  fi
}

# Sets $tip to the commit of the branch on the server, or to nothing. /tmp/branch has all branches.
look_at_branch() {
  with_remote list_branch || try_again "the branch could not be looked at"
  tip=$(LC_ALL=C grep -F "${tab}refs/heads/$BRANCH" /tmp/branch | while IFS="$tab" read -r id name; do
    [ "$name" != "refs/heads/$BRANCH" ] || echo "$id"
  done)
}

# Sets $tip before anything is taken from the agent. Where the branch cannot be looked at, that counts once there is something to push: $look is the exit
# code then, and /tmp/look has the words.
look_before() {
  look=0
  (look_at_branch && echo "$tip" >/tmp/tip) || look=$?
  [ -z "$included" ] || {
    rm -f "$included"
    # It may want the header to be made in another way.
    [ "$look" -eq 0 ] || [ ! -e /tmp/refused ] || {
      rm -f /tmp/told
      open_session
      look_before
      return 0
    }
  }
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

# Makes an empty repository of its own, of the hash that commits such as $1 have. Nothing is checked out, so no filter and no attribute counts.
init_repository() {
  export GIT_DIR=/tmp/repository
  rm -rf "$GIT_DIR"
  format=sha1
  [ "${#1}" -ne 64 ] || format=sha256
  git init --quiet --bare --object-format="$format" --template= "$GIT_DIR"
  # Deltas to the base's files are not looked for, as each such file would be fetched first.
  printf '[pack]\n\twindow = 0\n' >>"$GIT_DIR/config"
}

# Makes a repository with the base in it, if there is one.
make_repository() {
  whole=
  init_repository "$head"
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

# Reads what stands before the bundle's objects: it must hold one name, and leave nothing out.
read_header() {
  LC_ALL=C sed '/^$/q' /tmp/bundle | head -c 4194304 >/tmp/head
  header=$(wc -c </tmp/head)
  ! LC_ALL=C grep -q -a '^@filter' /tmp/head || fail "the agent's bundle leaves objects out"
  git bundle list-heads /tmp/bundle >/tmp/heads || fail "the agent's bundle is none"
  [ "$(cat /tmp/heads)" = "$head HEAD" ] || {
    head -c 1000 /tmp/heads | LC_ALL=C tr -c '[:print:]\n' '?' >&2
    fail "the agent's bundle holds $(wc -l </tmp/heads | tr -d ' ') names, and not HEAD at $head alone"
  }
  # More than the base: a merge of what came before it.
  needs_more=$(LC_ALL=C sed -n "/^-$base/d; /^-/{s/.*/true/p; q;}" /tmp/head)
}

index_objects() {
  tail -c +$((header + 1)) /tmp/bundle | git index-pack --stdin "$@" --fsck-objects --max-input-size="$max_bytes" >/dev/null
}

# Takes the objects of a bundle that holds the base, too: its commit, and each folder on the way to what the agent has changed. They are what their hashes
# say, so it does not matter who sends them. Nothing is fetched or negotiated then. Fails where the server has not said that it has the base, with a branch that
# is there or with this one on top of it, and where an object is missing or not sound.
take_whole_bundle() {
  [ -n "$base" ] && [ -z "$needs_more" ] || return 1
  index_objects || return 1
  echo "$base" >"$GIT_DIR/shallow"
  LC_ALL=C grep -q "^$base$tab" /tmp/branch || git merge-base --is-ancestor "$base" "${tip:-none}" || return 1
  list_objects || return 1
  whole=true
}

# Takes the objects of a bundle that begins at the base, which comes from the server.
take_bundle() {
  make_repository
  [ -z "$needs_more" ] || fetch_history
  git bundle verify --quiet /tmp/bundle || not_on_base "the agent's bundle does not begin at $base, which its tree was made from"
  index_objects --fix-thin || fail "an object of the agent's commits is not sound"
  rm -f /tmp/bundle
}

# Fails with $1, or where there is no base with what that means.
not_on_base() {
  [ -z "$base" ] || fail "$1"
  fail "it is not known which commit the agent's tree was made from, and $URL has commits that its own do not go on from: use kubectl yoi pull"
}

# Lists every object of the commits that the base does not have. Fails where one of them is not here.
list_objects() {
  git rev-list --objects "$commit" ${base:+"^$base"} >/tmp/objects
}

check_commits() {
  [ "$commit" = "$head" ] || git merge-base --is-ancestor "$commit" "$head" ||
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
  [ -n "$whole" ] || list_objects
  # A pointer is shorter than 1024 bytes.
  cut -d ' ' -f 1 /tmp/objects | git cat-file --batch-check='%(objecttype) %(objectsize) %(objectname)' |
    sed -n -e 's/^blob [0-9]\{1,3\} //p' -e 's/^blob 10[0-2][0-9] //p' >/tmp/small
  [ -s /tmp/small ] || return 0
  # The line before such a line is the one in which git names the blob, or both are of another text, which is looked at once more.
  git cat-file --batch </tmp/small | LC_ALL=C sed -n -e '/^[0-9a-f]* blob [0-9]*$/h' -e "\\|^$version\$|{x;p;x}" | cut -d ' ' -f 1 >/tmp/candidates
  while read -r id; do
    [ "$(git cat-file blob "$id" 2>/dev/null | head -n 1)" != "$version" ] || sed -n "s/^$id //p" /tmp/objects
  done </tmp/candidates >/tmp/pointers
  [ ! -s /tmp/pointers ] || {
    count=$(wc -l </tmp/pointers)
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
    # It may have come before the base.
    [ -z "$whole" ] || take_bundle
    fetch_history
    git merge-base --is-ancestor "$tip" "$commit" 2>/dev/null || refuse_moved
  }
}

refuse_moved() {
  fail "branch $BRANCH has moved: it is at $tip, and the agent's commit $commit is not made on top of that; nothing was pushed. To lose what is there: --force-with-lease=$tip"
}

push_commit() {
  # What the server has already is asked for, and not sent.
  [ -n "$whole" ] || git config push.negotiate true
  if [ -n "$session" ]; then
    with_remote push_in_session
  else
    set -- git push --quiet --no-verify --recurse-submodules=no
    [ -z "$EXPECTED" ] || set -- "$@" "--force-with-lease=refs/heads/$BRANCH:$EXPECTED"
    with_remote "$@" "$URL" "$commit:refs/heads/$BRANCH"
  fi
}

push_in_session() {
  ask_option "verbosity 0" || return 1
  [ -z "$EXPECTED" ] || ask_option "cas refs/heads/$BRANCH:$EXPECTED" || return 1
  ask "push $commit:refs/heads/$BRANCH" "" || return 1
  ! LC_ALL=C grep -q -x -F -e "ok refs/heads/$BRANCH" -e "ok refs/heads/$BRANCH up to date" /tmp/reply || return 0
  # As `git push` prints it. Nothing but the server refuses what was looked at before.
  LC_ALL=C sed -n "s/^error refs[^ ]* \(.*\)/ ! [remote rejected] $commit (\1)/p" /tmp/reply
  return 1
}

# Sets an option of the open connection, which answers with a line alone.
ask_option() {
  printf 'option %s\n' "$1" >&7
  IFS= read -r line <&8 && [ "$line" = ok ]
}

finish() {
  printf '%s %s %s\n' "${commit:--}" "${1:--}" "$uncommitted" >/dev/termination-log
}

push() {
  set_environment
  check_credentials
  tip= session= included=
  # The cluster's objects name it. What the agent says of it is not asked for.
  base=$BASE
  init_repository "$base"
  open_session with-token
  look_before
  take_commits
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
  [ "${#head}" -eq "${#base}" ] || init_repository "$head"
  read_header
  # The other way says what is wrong.
  take_whole_bundle 2>/dev/null || take_bundle
  check_commits
  check_branch
  # A server that died may have done it all the same, and another push may have come first.
  push_commit || {
    open_session
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
