# Fills DEST with a clone of URL.
populate() {
  set_environment
  check_credentials
  cd "$DEST"
  fetch_or_increment
  fetch_lfs "$URL" ""
  fetch_submodules 0 ""
  # When the index is written in the same second as the files, every later status reads them. This one does so once for all clones.
  if ! has_few_new_files; then
    sleep 1
    git status --porcelain >/dev/null
  fi
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
    rm -f /tmp/silent /tmp/changed
  fi
  # A former attempt may have left files. Without HEAD, what is left of them after a crash is no repository.
  rm -f .git/HEAD
  find . -mindepth 1 -delete
  fetch_source
  take_revision
}

rm -f /tmp/silent /tmp/submodules /tmp/changed
populate >/tmp/said 2>&1 </dev/null &
if wait $!; then code=0; else code=$?; fi
report
rm -f /tmp/said
exit "$code"
