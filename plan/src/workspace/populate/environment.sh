# No setting of a repository counts here: git, git-lfs and ssh read these files and variables, and a repository's own .git/config is written by git alone.
set_environment() {
  export HOME=/tmp GIT_CONFIG_GLOBAL=/tmp/gitconfig GIT_CONFIG_NOSYSTEM=1 GIT_ATTR_NOSYSTEM=1
  export GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/bin/false SSH_ASKPASS=/bin/false
  export GIT_ALLOW_PROTOCOL=https:http:git:ssh GIT_LFS_SKIP_SMUDGE=1
  export GIT_SSH_VARIANT=ssh
  ssh="ssh -F /dev/null -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/yoi/credentials/known_hosts -o GlobalKnownHostsFile=/dev/null"
  ssh="$ssh -o IdentityFile=/yoi/credentials/ssh-privatekey -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o ConnectTimeout=30"
  export GIT_SSH_COMMAND="$ssh"
  HOSTS="$(host_of "$URL") $SUBMODULE_HOSTS"
  export HOSTS
  # Files are the tree's owner's; the folder itself may be another's.
  cat >"$GIT_CONFIG_GLOBAL" <<'END'
[safe]
  directory = *
  bareRepository = explicit
[advice]
  detachedHead = false
[core]
  hooksPath = /dev/null
  fsmonitor = false
  attributesFile = /dev/null
  quotePath = false
[submodule]
  recurse = false
[fetch]
  recurseSubmodules = false
[http]
  followRedirects = false
[gc]
  auto = 0
[protocol]
  allow = never
[protocol "file"]
  allow = never
[protocol "ext"]
  allow = never
[protocol "https"]
  allow = always
[protocol "http"]
  allow = always
[protocol "git"]
  allow = always
[protocol "ssh"]
  allow = always
END
  write_helper
  [ -n "$CA" ] || return 0
  grep -q -s 'BEGIN CERTIFICATE' /yoi/ca/ca.crt || fail "$CA does not exist in this namespace, or holds no certificate in PEM: $FIELD.caRef"
  cat /etc/ssl/certs/ca-certificates.crt /yoi/ca/ca.crt >/tmp/ca.crt 2>/dev/null || true
  git config --global http.sslCAInfo /tmp/ca.crt
}
