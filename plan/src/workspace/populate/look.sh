# Finds out which commit REF is at, and fetches nothing.
look() {
  set_environment
  check_credentials
  if is_commit_id "$REF"; then echo "$REF" >/tmp/commit; else commit_of_ref; fi
}

rm -f /tmp/silent /tmp/commit
look >/tmp/said 2>&1 </dev/null &
if wait $!; then code=0; else code=$?; fi
if [ "$code" -eq 0 ]; then cat /tmp/commit >"$ANSWER"; else report; fi
rm -f /tmp/said
exit "$code"
