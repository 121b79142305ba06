#!/bin/sh
# Runs a command of oa-audience as the service's user, with its variables and secrets. Root installs it as /usr/local/bin/oa-audience.
set -eu
config=${OA_AUDIENCE_CONFIG:-/etc/oa-audience}
[ "$(id -u)" = 0 ] || { echo "oa-audience: run this command as root, because it reads $config/credentials" >&2; exit 1; }

export DATA_DIR=/var/lib/oa-audience
# As systemd does, and not as shell code: a URL may contain & and ;.
while IFS= read -r line || [ -n "$line" ]; do
  case $line in [A-Z]*=*) export "$line" ;; esac
done <"$config/env"
for file in "$config"/credentials/*; do
  name=${file##*/}
  # Not a copy such as DATABASE_URL.bak.
  case $name in *[!A-Z_]*) continue ;; esac
  if [ -f "$file" ]; then export "$name=$(cat "$file")"; fi
done
umask 077
exec setpriv --reuid=oa-audience --regid=oa-audience --clear-groups --no-new-privs \
  /opt/oa-audience/current/dist/src/cli/main.js "$@"
