#!/bin/sh
# Writes random secrets for compose.yaml to ./secrets, or to the directory in the first argument. It keeps existing files, because a new
# password or key would not match the database. It is safe to run again.
set -eu
directory=${1:-secrets}
mkdir -p "$directory"
# Only the owner can enter the directory. The files themselves are readable by every user, because Compose mounts them with their mode, and
# the users in the containers differ.
chmod 700 "$directory"

hex() { od -An -vtx1 -N"$1" /dev/urandom | tr -d ' \n'; }
base64_of() { head -c "$1" /dev/urandom | base64 | tr -d '\n'; }
# write NAME VALUE
write() {
  if [ -s "$directory/$1" ]; then echo "kept $directory/$1"; return; fi
  printf '%s\n' "$2" >"$directory/$1.new"
  chmod 444 "$directory/$1.new"
  mv "$directory/$1.new" "$directory/$1"
  echo "wrote $directory/$1"
}

write postgres_password "$(hex 32)"
write database_url "postgres://oa_audience:$(cat "$directory/postgres_password")@postgres:5432/oa_audience"
write secrets_keys "key-1:$(base64_of 32)"
write console_token "$(hex 24)"
