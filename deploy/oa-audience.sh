#!/bin/sh
# Runs a command of oa-audience as the service's user, with its variables and secrets. Root installs it as /usr/local/bin/oa-audience.
set -eu
config=${OA_AUDIENCE_CONFIG:-/etc/oa-audience}
[ "$(id -u)" = 0 ] || { echo "oa-audience: run this command as root, because it reads $config/credentials" >&2; exit 1; }

set -a
DATA_DIR=/var/lib/oa-audience
. "$config/env"
for file in "$config"/credentials/*; do
  if [ -f "$file" ]; then eval "$(basename "$file")=\$(cat \"\$file\")"; fi
done
set +a
umask 077
exec setpriv --reuid=oa-audience --regid=oa-audience --clear-groups --no-new-privs \
  /opt/oa-audience/current/dist/src/cli/main.js "$@"
