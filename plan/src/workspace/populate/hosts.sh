# Prints the host of a URL, with a port that is not the scheme's own. Prints nothing for a URL that is not taken: one of another scheme, one with a user
# where none belongs, and one that programs could read in different ways.
host_of() {
  case $1 in
    https://*) host=${1#*://} port=443 ;;
    http://*) host=${1#*://} port=80 ;;
    git://*) host=${1#*://} port=9418 ;;
    ssh://*) host=${1#*://} port=22 ;;
    *://* | -*) return 0 ;;
    *@*:*)
      host=${1%%:*} port=22
      # Without a user before its first colon it is something else, e.g. `ext::command`.
      case $host in *@*) ;; *) return 0 ;; esac
      ;;
    *) return 0 ;;
  esac
  host=${host%%[/?#]*}
  [ "$port" != 22 ] || host=${host#*@}
  case $host in '' | -* | *[!A-Za-z0-9.:-]*) return 0 ;; esac
  host=${host%:"$port"}
  printf '%s\n' "$host" | tr A-Z a-z
}

is_allowed() {
  case " $HOSTS " in *" $1 "*) ;; *) return 1 ;; esac
}

# Fails unless $1, the URL of $2, is of a host that the source names.
require_host() {
  host=$(host_of "$1")
  [ -n "$host" ] || fail "$2 has the url $1; only https, http, git and ssh urls without a password are fetched"
  is_allowed "$host" || fail "$2 is on host $host, which nobody has allowed: name it in $FIELD.submoduleHosts"
}

# A full commit id.
is_commit_id() {
  case $1 in *[!0-9a-f]*) return 1 ;; esac
  [ "${#1}" -eq 40 ] || [ "${#1}" -eq 64 ]
}
