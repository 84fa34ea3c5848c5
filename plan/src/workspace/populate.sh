# Fills DEST with a full clone of URL. What a user wrote comes in environment variables, and the shell never reads it as a command.
export HOME=/tmp GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/bin/false GIT_CONFIG_NOSYSTEM=1
cd "$DEST"
# A former attempt may have left files.
find . -mindepth 1 -delete
git config --global --add safe.directory "$DEST"
git config --global advice.detachedHead false

# Progress of the clone: bytes that the network has received, plus processor time of git's processes. A tick counts as 1000 bytes, as much as an idle
# network receives in a minute.
progress() {
  sum=0
  while read -r device bytes _; do
    case $device in *:) sum=$((sum + bytes)) ;; esac
  done </proc/net/dev
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    case $line in *" (git"*) ;; *) continue ;; esac
    set -- ${line##*) }
    sum=$((sum + 1000 * (${12} + ${13})))
  done
  echo "$sum"
}
# git waits for ever for a server that has accepted the connection and sends nothing.
silent() {
  last=$(progress) quiet=0
  while [ "$quiet" -lt 60 ]; do
    sleep 1
    now=$(progress)
    if [ $((now - last)) -gt 1000 ]; then last=$now quiet=0; else quiet=$((quiet + 1)); fi
  done
  : >/tmp/silent
  kill -s PIPE "$1"
}
git clone --quiet -- "$URL" . &
clone=$!
silent "$clone" &
watcher=$!
if wait "$clone"; then code=0; else code=$?; fi
kill "$watcher" 2>/dev/null || true
if [ -e /tmp/silent ]; then
  echo "the server has sent nothing for 60 s; does it work, and may Pods of this namespace reach it?" >&2
  exit 1
fi
[ "$code" -eq 0 ] || exit "$code"
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
# Another node holds this generation already, so this one takes the same commit, though the branch has moved on.
if [ -n "$REVISION" ] && [ "$(git rev-parse --verify HEAD 2>/dev/null || true)" != "$REVISION" ]; then
  git reset --quiet --hard "$REVISION"
fi
# The folder of a submodule is empty and a pointer of git LFS is a few lines of text. An agent would take either for the source.
submodule=$(git ls-files -s | grep -m 1 '^160000 ' | cut -f 2- || true)
if [ -n "$submodule" ]; then
  echo "submodule $submodule is not fetched: submodules are not supported yet" >&2
  exit 1
fi
pointer=$(git ls-files -z -- ':(attr:filter=lfs)' | xargs -0 -r grep -l -s -m 1 -e '^version https://git-lfs.github.com/spec/v1' -- | head -n 1 || true)
if [ -n "$pointer" ]; then
  echo "file $pointer is a pointer of git LFS and its content is not fetched: git LFS is not supported yet" >&2
  exit 1
fi
# When the index is written in the same second as the files, every later status reads all files. This one does so once for all clones.
sleep 1
git status --porcelain >/dev/null
