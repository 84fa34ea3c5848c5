# Takes the commits that somebody has sent for this generation, where there are any: parts of one bundle, whose SHA-256 is BUNDLE. Whoever sent it may have
# written any byte of it, so git's own check has every object before one is used, and no name of it counts.
take_bundle() {
  [ -n "$BUNDLE" ] || return 0
  rm -f /tmp/bundle
  part=0
  while [ "$part" -lt "$BUNDLE_PARTS" ]; do
    [ -e "/yoi/bundle/$part" ] || fail "part $part of what was synced is not there any more: say kubectl yoi sync again"
    cat "/yoi/bundle/$part" >>/tmp/bundle
    part=$((part + 1))
  done
  [ "$(sha256sum </tmp/bundle | cut -d ' ' -f 1)" = "$BUNDLE" ] || fail "what was synced is not what has come: say kubectl yoi sync again"
  header=$(LC_ALL=C sed '/^$/q' /tmp/bundle | wc -c)
  ! head -c "$header" /tmp/bundle | LC_ALL=C grep -q -a '^@filter' || fail "the bundle that was synced leaves objects out"
  git bundle list-heads /tmp/bundle >/tmp/heads || fail "what was synced is no bundle"
  [ "$(cut -d ' ' -f 1 /tmp/heads)" = "$REVISION" ] || fail "the bundle that was synced does not hold commit $REVISION alone"
  git bundle verify --quiet /tmp/bundle ||
    fail "what was synced is made on top of commits that the source does not have: push them, or fetch what the source has, and say kubectl yoi sync again"
  tail -c +$((header + 1)) /tmp/bundle | git index-pack --stdin --fix-thin --strict --max-input-size=8388608 >/dev/null ||
    fail "what was synced holds an object that is not sound"
  rm -f /tmp/bundle /tmp/heads
}

# Paths of commit $1 that Windows cannot hold: names of devices, letters that it does not take, names that end in a dot or a space.
odd_names() {
  git ls-tree -r -z --name-only --full-tree "$1" | LC_ALL=C tr '\000\001-\037' '\n?' |
    LC_ALL=C grep -a -i -E '(^|/)(con|prn|aux|nul|conin[$]|conout[$]|com[0-9]|lpt[0-9]) *([.][^/]*)?(/|$)|[<>:"|?*\\]|[. ](/|$)' || true
}

# Of the paths that a bundle brings, each machine of the team must be able to hold them. What the source has already is its own.
check_names() {
  [ -n "$BUNDLE" ] || return 0
  git rev-list --boundary "$REVISION" --not --all >/tmp/brought
  [ -s /tmp/brought ] || return 0
  odd_names "$REVISION" >/tmp/odd
  [ -s /tmp/odd ] || return 0
  sed -n 's/^-//p' /tmp/brought | while IFS= read -r commit; do odd_names "$commit"; done >/tmp/known
  name=$(LC_ALL=C grep -a -v -x -F -f /tmp/known /tmp/odd | head -n 1 | LC_ALL=C tr -c ' -~\n' '?' | cut -c 1-200)
  [ -z "$name" ] || fail "what was synced holds the path $name, which Windows cannot hold: rename it, or let git ignore it, and say kubectl yoi sync again"
}
