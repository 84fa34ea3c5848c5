# The first file that is still a pointer of git LFS. An agent would take its few lines for the source. Only the index is searched, and no link is followed.
first_pointer() {
  begins='^version https://git-lfs.github.com/spec/v1'
  git grep --cached -l -z -e "$begins" -- ':(attr:filter=lfs)' >/tmp/pointers || [ $? -eq 1 ]
  sed -z 's|^|./|' /tmp/pointers |
    xargs -0 -r sh -c 'begins=$1; shift; find "$@" -maxdepth 0 -type f -size -3 -exec grep -l -m 1 -e "$begins" -- {} +' find "$begins" |
    head -n 1 | cut -c 3-
}

# Fetches the objects of git LFS of the repository in this folder, whose URL is $1 and whose place in the tree is $2.
fetch_lfs() {
  pointer=$(first_pointer)
  [ -n "$pointer" ] || return 0
  git lfs version >/dev/null 2>&1 || fail "file $2$pointer is a pointer of git LFS, and the image of this Pod has no git-lfs"
  # git-lfs reads the file that a link points to, and that need not be in the tree.
  [ ! -L .lfsconfig ] || fail "$2.lfsconfig is a link: git LFS is not fetched with it"
  if [ -e .lfsconfig ]; then
    git config --file .lfsconfig --get-regexp '^include(if)?[.]' >/tmp/urls || [ $? -eq 1 ]
    [ ! -s /tmp/urls ] || fail "$2.lfsconfig includes another file: git LFS is not fetched with it"
    git config --file .lfsconfig -z --get-regexp '^(lfs|remote)\.(.*\.)?(url|pushurl|lfsurl|lfspushurl)$' >/tmp/urls || [ $? -eq 1 ]
    tr '\n\0' '\t\n' </tmp/urls | cut -f 2- | while IFS= read -r url; do
      require_host "$url" "the server of git LFS in $2.lfsconfig"
    done
  fi
  # A repository may leave files out, which would then be pointers.
  fetching_from "$1" git lfs fetch --include= --exclude= origin HEAD || fail "file $2$pointer of git LFS is not fetched"
  # git-lfs writes the files only where the filter is there, and without it each of them would look changed.
  git config --global filter.lfs.clean 'git-lfs clean -- %f'
  git lfs checkout >/dev/null
  pointer=$(first_pointer)
  [ -z "$pointer" ] || fail "file $2$pointer is a pointer of git LFS, and its content was not fetched"
}
