# Progress of a transfer: bytes that the network has received, plus processor time of git's processes. A tick counts as 1000 bytes, as much as an idle
# network receives in a minute.
progress() {
  sum=0
  while read -r device bytes _; do
    case $device in *:) sum=$((sum + bytes)) ;; esac
  done </proc/net/dev
  # A shell reads byte by byte, and names are short.
  for comm in /proc/[0-9]*/comm; do
    { read -r name <"$comm"; } 2>/dev/null || continue
    case $name in git*) ;; *) continue ;; esac
    { read -r line <"${comm%comm}stat"; } 2>/dev/null || continue
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

# Runs a command that fetches from the URL $1. Says why it failed.
fetching_from() {
  from=$1
  shift
  rm -f /tmp/asked /tmp/refused
  "$@" &
  fetching=$!
  silent "$fetching" &
  watcher=$!
  if wait "$fetching"; then code=0; else code=$?; fi
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  [ ! -e /tmp/silent ] || fail "the server has sent nothing for 60 s; does it work, and may Pods of this namespace reach it?"
  [ "$code" -eq 0 ] || explain "$from"
  return "$code"
}
