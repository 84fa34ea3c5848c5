# Fills DEST with a clone of URL.
populate() {
  set_environment
  check_credentials
  cd "$DEST"
  fetch_or_increment
  [ "$LFS" = Skip ] || fetch_lfs "$URL" ""
  [ "$SUBMODULES" = Skip ] || fetch_submodules 0 ""
  # When the index is written in the same second as the files, every later status reads them. This one does so once for all clones.
  if ! has_few_new_files; then
    sleep 1
    git status --porcelain >/dev/null
  fi
  answer >/dev/termination-log
}

# What the operator reads of a base that is filled: commit and branch of HEAD, - for what there is not, and why it was fetched anew.
answer() {
  commit=$(git rev-parse --quiet --verify HEAD || true)
  branch=$(git symbolic-ref --quiet HEAD || true)
  printf '%s %s\n' "${commit:--}" "${branch:--}"
  [ ! -e /tmp/anew ] || head -n 1 /tmp/anew
}

# After an increment only what has changed was written in this second.
has_few_new_files() {
  [ -e /tmp/changed ] && [ "$(wc -l </tmp/changed)" -lt 1000 ]
}

fetch_or_increment() {
  if [ -n "$FORMER" ]; then
    # A shell of its own: -e ends no function that stands in a condition.
    increment &
    if wait $!; then return 0; fi
    [ -e /tmp/anew ] || echo "git failed on the way from the former base" >/tmp/anew
    rm -f /tmp/silent /tmp/changed
  fi
  # A former attempt may have left files. Without HEAD, what is left of them after a crash is no repository.
  rm -f .git/HEAD
  find . -mindepth 1 -delete
  fetch_source
  take_revision
}

rm -f /tmp/silent /tmp/submodules /tmp/changed /tmp/anew
populate >/tmp/said 2>&1 </dev/null &
if wait $!; then code=0; else code=$?; fi
report
rm -f /tmp/said
exit "$code"
