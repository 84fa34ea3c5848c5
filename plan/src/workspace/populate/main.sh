# Fills DEST with a clone of URL.
populate() {
  set_environment
  check_credentials
  cd "$DEST"
  fetch_or_increment
  fetch_lfs "$URL" ""
  fetch_submodules 0 ""
  # When the index is written in the same second as the files, every later status reads all files. This one does so once for all clones.
  sleep 1
  git status --porcelain >/dev/null
}

fetch_or_increment() {
  if [ -n "$FORMER" ]; then
    # A shell of its own: -e ends no function that stands in a condition.
    increment &
    if wait $!; then return 0; fi
    rm -f /tmp/silent
  fi
  # A former attempt may have left files. Without HEAD, what is left of them after a crash is no repository.
  rm -f .git/HEAD
  find . -mindepth 1 -delete
  fetch_source
  take_revision
}

rm -f /tmp/silent /tmp/submodules
populate >/tmp/said 2>&1 </dev/null &
if wait $!; then code=0; else code=$?; fi
report
rm -f /tmp/said
exit "$code"
