# Credentials come from the files of a Secret. Only git's credential helper, ssh, report() and the write_token() of a push open them.
must_hold="it must hold username and password for https (a token is a password), or ssh-privatekey and known_hosts for ssh"

# Whether the URL $1 is fetched by ssh.
is_ssh() {
  case $1 in ssh://*) ;; *://*) return 1 ;; *) ;; esac
}

check_credentials() {
  [ -n "$SECRET" ] || return 0
  if is_ssh "$URL"; then set -- ssh-privatekey known_hosts; else set -- username password; fi
  [ -n "$(ls /yoi/credentials)" ] || fail "Secret $SECRET does not exist in this namespace, or is empty: $must_hold"
  for key in "$@"; do
    [ -s "/yoi/credentials/$key" ] || fail "Secret $SECRET has no key $key: $must_hold"
  done
  is_ssh "$URL" || return 0
  command -v ssh >/dev/null || fail "the image of this Pod has no ssh: $FIELD.url needs one with openssh-client"
  id -un >/dev/null 2>&1 || fail "the image of this Pod has no user of number $(id -u), which ssh needs: leave spec.owner at 1000, or use https"
  words=$(ssh-keygen -y -P '' -f /yoi/credentials/ssh-privatekey 2>&1 >/dev/null) ||
    fail "$(printf '%s' "$words" | tr -d '\r'); ssh-privatekey of Secret $SECRET must be a private key without a passphrase, whose last line ends with a line feed"
}

# Git asks this program for user and password. It tells them over https only, to the hosts of the source only, and keeps in two files what happened.
write_helper() {
  cat >/tmp/helper <<'END'
protocol= host=
while IFS='=' read -r key value && [ -n "$key" ]; do
  case $key in protocol) protocol=$value ;; host) host=$(printf '%s\n' "$value" | tr A-Z a-z) ;; esac
done
host=${host%:443}
case $1 in
  get) echo "$host" >/tmp/asked ;;
  erase) echo "$host" >/tmp/refused ;;
esac
[ "$1" = get ] && [ "$protocol" = https ] && [ -s /yoi/credentials/password ] || exit 0
case " $HOSTS " in *" $host "*) ;; *) exit 0 ;; esac
printf 'username=%s\npassword=%s\n' "$(cat /yoi/credentials/username)" "$(cat /yoi/credentials/password)"
END
  git config --global credential.helper '!sh /tmp/helper'
}

# Prints where the server of the URL $1 leads to in place of an answer; nothing if git has not said so in the file $said. Nobody has said that this place may be spoken to.
redirect_of() {
  grep -q 'returned error: 30[12378]' "${said:-/tmp/said}" || return 0
  export GIT_TRACE_CURL=/tmp/trace GIT_TRACE_CURL_NO_DATA=1
  git -c http.lowSpeedLimit=1 -c http.lowSpeedTime=30 ls-remote -- "$1" HEAD >/dev/null 2>&1 || true
  sed -n 's/^.*<= Recv header: [Ll]ocation: \([^[:cntrl:]]*\).*$/\1/p' /tmp/trace | sed 's|/info/refs[?].*||' | head -n 1
  rm -f /tmp/trace
}

# Says what helps after a failure to fetch from the URL $1.
explain() {
  if is_ssh "$1"; then
    explain_ssh "$1"
    return 0
  fi
  leads_to=$(redirect_of "$1")
  if [ -n "$leads_to" ]; then
    echo "the server of $1 leads to $leads_to, and no redirect is followed: write that URL in place of this one if it is the right one"
  elif [ -e /tmp/refused ] && [ -n "$SECRET" ]; then
    echo "$(cat /tmp/refused) refuses username and password of Secret $SECRET: has the token expired, and may it read this repository?"
  elif [ -e /tmp/asked ] && [ -z "$SECRET" ]; then
    echo "$(cat /tmp/asked) asks for a user, or has no such repository: name a Secret with username and password in $FIELD.credentialsSecretRef"
  elif [ -e /tmp/asked ] && ! is_allowed "$(cat /tmp/asked)"; then
    echo "$(cat /tmp/asked) asks for a user, and gets none: name it in $FIELD.submoduleHosts if it may have the credentials"
  fi
}

# Names the keys of a host that known_hosts does not list. They are shown to a person, and never trusted.
explain_ssh() {
  name=$(host_of "$1")
  port=22
  case $name in *:*) port=${name##*:} name=${name%:*} ;; esac
  listed=$name
  [ "$port" = 22 ] || listed="[$name]:$port"
  ssh-keygen -F "$listed" -f /yoi/credentials/known_hosts >/dev/null 2>&1 && return 0
  keys=$(ssh-keyscan -T 10 -p "$port" -- "$name" 2>/dev/null | ssh-keygen -l -f - 2>/dev/null | cut -d ' ' -f 2,4 | sort -u | tr '\n' ' ')
  echo "known_hosts of Secret $SECRET does not list $listed, which shows ${keys:-no key }now: compare it with what its owner publishes, then add its line"
}
