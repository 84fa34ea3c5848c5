# Puts a team's assets of PLACE, a folder of the repository, into SET, as they are at REF. No file is run, and no setting of the repository counts.

# Sentences say skills and commands for all of them.
kinds="skills commands workflows skill_graph AGENTS.md"
# At most so much is fetched (in blocks of 512 bytes, as the shell counts what one file may have), and of so much is written.
most_blocks=131072
most_files=2000
most_bytes=16777216
most_seconds=120

fetch_set() {
  set_environment
  check_credentials
  ulimit -f "$most_blocks"
  if is_commit_id "$REF"; then echo "$REF" >/tmp/commit; else commit_of_ref; fi
  commit=$(cat /tmp/commit)
  # As one file, however many objects it holds.
  git config --global fetch.unpackLimit 1
  git init --quiet /tmp/repository
  cd /tmp/repository
  git remote add origin "$URL"
  fetch_one "$commit" || too_large || exit 1
  write_files "$commit:$PLACE"
  echo "$commit" >"$SET/revision"
}

# What git says of a file that grew too large is no sentence. It leaves that file.
too_large() {
  [ -n "$(find .git/objects/pack -type f -size +$((most_blocks - 2)))" ] || return 1
  fail "the commit has more than 64 MiB: keep skills and commands in a repository of their own"
}

# $1 is the folder as git names it.
write_files() {
  where="the folder $PLACE of commit $commit"
  [ -n "$PLACE" ] || where="commit $commit"
  [ "$(git cat-file -t "$1" 2>/dev/null || true)" = tree ] || fail "$where is not there: name another one in $FIELD.path"
  # A folder may hold itself many times over, so the list ends where it is too long. A submodule is another repository.
  git ls-tree -r -l "$1" -- $kinds | head -n $((most_files + 1)) | grep -v '^160000 ' >/tmp/files || true
  [ -s /tmp/files ] || fail "$where has no files in skills or commands: name the folder that holds these two in $FIELD.path"
  [ "$(wc -l </tmp/files)" -le "$most_files" ] || fail "$where has more than $most_files files in skills and commands"
  sum=0
  while read -r _ _ _ size _; do sum=$((sum + size)); done </tmp/files
  [ "$sum" -le "$most_bytes" ] || fail "$where has more than 16 MiB in skills and commands"
  git ls-tree -r "$1" -- $kinds | grep -v '^160000 ' | git update-index --add --index-info
  git checkout-index --all --prefix="$SET/files/"
}

# Ends the process $1 once it has taken too long: a server may send little by little, for ever.
end_late() {
  left=$most_seconds
  while [ "$left" -gt 0 ]; do
    sleep 1
    left=$((left - 1))
  done
  : >/tmp/late
  kill -s PIPE "$1"
}

# Another set, or a former try, may have left files.
find /tmp "$SET" -mindepth 1 -delete
fetch_set >/tmp/said 2>&1 </dev/null &
work=$!
end_late "$work" >/dev/null 2>&1 &
timer=$!
if wait "$work"; then code=0; else code=$?; fi
kill "$timer" 2>/dev/null || true
if [ "$code" -eq 0 ]; then
  cat "$SET/revision" >/dev/termination-log
else
  [ ! -e /tmp/late ] || echo "the server has not sent it within $most_seconds s" >>/tmp/said
  report
  if [ -n "$LENIENT" ]; then
    rm -rf "$SET/files" "$SET/revision"
    print_words /tmp/said | tail -c 1000 >"$SET/failure"
    cat "$SET/failure" >/dev/termination-log
    code=0
  fi
fi
# What git was told, and what it has fetched, is of no use to the agent.
find /tmp -mindepth 1 -delete
exit "$code"
