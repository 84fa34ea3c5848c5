# Fills DEST with a full clone of URL. Everything that a user wrote comes by environment and is never read as a command.
export HOME=/tmp GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/bin/false GIT_CONFIG_NOSYSTEM=1
cd "$DEST"
# A former attempt may have left a part.
find . -mindepth 1 -delete
git config --global --add safe.directory "$DEST"
git config --global advice.detachedHead false
git clone --quiet -- "$URL" .
if [ -n "$REF" ]; then
  if git rev-parse --quiet --verify "refs/remotes/origin/$REF" >/dev/null; then
    git checkout --quiet -B "$REF" --track "origin/$REF"
  elif git rev-parse --quiet --verify "refs/tags/$REF^{commit}" >/dev/null; then
    git checkout --quiet --detach "refs/tags/$REF"
  elif git rev-parse --quiet --verify "$REF^{commit}" >/dev/null || git fetch --quiet origin "$REF"; then
    git checkout --quiet --detach "$REF"
  else
    echo "the source has no branch, tag or commit $REF" >&2
    exit 1
  fi
fi
# Another node holds this generation already: the same commit, though the branch has moved on.
if [ -n "$REVISION" ] && [ "$(git rev-parse --verify HEAD 2>/dev/null || true)" != "$REVISION" ]; then
  git reset --quiet --hard "$REVISION"
fi
# An index written in the same second as the files makes every later status read all of them; this one does it once for all clones.
sleep 1
git status --porcelain >/dev/null
