# What is said, and how it leaves the Pod. What a user wrote comes in environment variables, and the shell never reads it as a command.
# FIELD is where a user wrote it.
fail() {
  echo "$1" >&2
  exit 1
}

# Takes $1 out of $line.
hide() {
  [ -n "$1" ] || return 0
  rest=$line line=
  while :; do
    case $rest in
      *"$1"*) line="$line${rest%%"$1"*}***" rest=${rest#*"$1"} ;;
      *) break ;;
    esac
  done
  line=$line$rest
}

# Prints the file $1 without the progress that servers tell: each of its lines is written over the one before.
without_progress() {
  sed -e "s/^.*$(printf '\r')\(.\)/\1/" -e '/^remote: [A-Z][a-z]* objects: *[0-9]/d' -e '/^remote: Total [0-9]/d' "$1"
}

# Prints the end of the file $1 without the credentials: a server may send back what it was sent. They are in variables of this shell only, in no
# argument and no environment.
print_words() {
  username=$(cat /yoi/credentials/username 2>/dev/null || true)
  password=$(cat /yoi/credentials/password 2>/dev/null || true)
  basic=$(printf '%s:%s' "$username" "$password" | base64 | tr -d '\n')
  # Some servers take the token as the user. A short name is no secret, and is a part of many words.
  [ "${#username}" -ge 20 ] || username=
  size=$(without_progress "$1" | wc -c)
  without_progress "$1" | tail -c 4000 | {
    # The first line is cut, and half a token would not be found in it.
    [ "$size" -le 4000 ] || IFS= read -r _ || true
    while IFS= read -r line || [ -n "$line" ]; do
      hide "$password"
      hide "$basic"
      hide "$username"
      if [ -e /yoi/credentials/ssh-privatekey ]; then
        while IFS= read -r part || [ -n "$part" ]; do
          case $part in ----* | '') ;; *) hide "$part" ;; esac
        done </yoi/credentials/ssh-privatekey
      fi
      printf '%s\n' "$line"
    done
  }
}

# Prints the end of what was said, for people.
report() {
  print_words /tmp/said >&2
}
