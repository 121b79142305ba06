#!/bin/sh
# The service `backup` of compose.yaml: runs backup.sh when it starts and then once a day. After a failure it waits for 60 s, and twice as
# long after each further one, up to 3840 s: an attempt on a full disk fills it again, and the database may share the disk.
trap exit TERM
retry=60
while :; do
  if sh /backup.sh; then
    pause=86400
    retry=60
  else
    pause=$retry
    [ "$retry" -gt 3600 ] || retry=$((retry * 2))
  fi
  sleep "$pause" &
  wait
done
