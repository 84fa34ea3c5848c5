# A base may begin as a clone of the one before it, at commit FORMER. Then only what has changed is fetched, and the outcome is that of a fresh clone.

no_increment() {
  echo "$1" >/tmp/anew
  echo "the source is fetched anew: $1"
  exit 1
}

# Ends where a fresh clone might differ. Nobody but this script has written to the former base.
increment() {
  # An attempt that was cut short may have left anything.
  mkdir .git/increment || no_increment "no former base, or one that an attempt has changed already"
  [ "$(git rev-parse --verify HEAD)" = "$FORMER" ] || no_increment "the former base is not at commit $FORMER"
  # What a former commit needed would stay in these folders.
  [ ! -e .git/modules ] && [ ! -e .git/lfs ] || no_increment "the former base has submodules or objects of git LFS"
  # Each increment adds a pack, and git gc in each agent's tree would begin at fifty.
  set -- .git/objects/pack/*.pack
  [ $# -lt 20 ] || no_increment "the former base has $# packs"
  # No branch or tag need hold FORMER.
  { git for-each-ref --format='%(objectname)' && echo "$FORMER"; } | sort -u >/tmp/former
  fetching_from "$URL" git ls-remote --symref -- "$URL" HEAD >/tmp/head || no_increment "the source does not say what its default branch is"
  default=$(sed -n "s|^ref: refs/heads/\(.*\)${tab}HEAD\$|\1|p" /tmp/head)
  [ "$(git symbolic-ref refs/remotes/origin/HEAD)" = "refs/remotes/origin/$default" ] || no_increment "the source has another default branch"
  # As one pack, however little it is: loose objects would be without number after some generations.
  fetching_from "$URL" git -c fetch.unpackLimit=1 fetch --quiet --progress --force --prune origin '+refs/heads/*:refs/remotes/origin/*' '+refs/tags/*:refs/tags/*' ||
    no_increment "the source's branches are not fetched"
  take_bundle
  check_names
  git cat-file -e "$REVISION^{commit}" 2>/dev/null || fetch_one "$REVISION" || no_increment "the source's branches do not hold commit $REVISION"
  git diff-tree -r --name-only --no-renames "$FORMER" "$REVISION" >/tmp/changed
  # They say how content is written that is the same in both commits.
  ! grep -q -E '(^|/)[.]gitattributes"?$' /tmp/changed || no_increment "git attributes have changed"
  parse_ref
  wanted=
  [ -n "$REF" ] || wanted=refs/heads/$default
  ! is_remote_branch || wanted=refs/heads/$branch
  [ "$(git symbolic-ref --quiet HEAD || true)" = "$wanted" ] || no_increment "$REF is a branch now, or is none any more"
  # git clone makes the default branch, too, where another one is asked for.
  git for-each-ref --format='%(refname:strip=2)' refs/heads >/tmp/branches
  while IFS= read -r name; do git update-ref "refs/heads/$name" "refs/remotes/origin/$name"; done </tmp/branches
  # Only files that differ are looked at: a sealed tree is as its index says, and a look at all others takes longer than the rest.
  git read-tree -m -u "$FORMER" "$REVISION"
  git reset --quiet --soft "$REVISION"
  git clean --quiet -ffdx
  # These name commits that may be no part of the source any more.
  rm -rf .git/logs .git/FETCH_HEAD .git/ORIG_HEAD
  remove_unreachable
  rmdir .git/increment
}

# What a forced push or a branch that was deleted has taken away would be in no fresh clone.
remove_unreachable() {
  git for-each-ref --format='%(objectname)' | sort -u >/tmp/current
  comm -23 /tmp/former /tmp/current >/tmp/lost
  git rev-list --objects $(cat /tmp/lost) --not --all >/tmp/unreachable
  [ -s /tmp/unreachable ] || return 0
  git repack -a -d -q
  git prune --expire=now
}
