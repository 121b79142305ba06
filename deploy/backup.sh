#!/bin/sh
# Makes one backup in BACKUP_DIR and then deletes those that are older than KEEP_DAYS (14). If the backup fails, it exits with a status
# other than 0 and deletes nothing: old backups are deleted only after a newer one is complete. It needs the variables of the service, and
# `oa-audience` on the PATH or the path of the program in OA_AUDIENCE.
set -eu
: "${BACKUP_DIR:?set BACKUP_DIR to the directory of the backups}"
keep_days=${KEEP_DAYS:-14}
case $keep_days in
  '' | *[!0-9]*) echo "KEEP_DAYS must be a number of days" >&2; exit 1 ;;
esac
umask 077

name=$(date -u +%Y-%m-%dT%H%M%SZ)
# The directory has its final name only when it is complete.
trap 'rm -rf "$BACKUP_DIR/$name.unfinished"' EXIT
trap 'exit 1' HUP INT TERM
"${OA_AUDIENCE:-oa-audience}" backup "$BACKUP_DIR/$name.unfinished"
mv "$BACKUP_DIR/$name.unfinished" "$BACKUP_DIR/$name"

# The names are those that this script gives. The new backup is never deleted, even with KEEP_DAYS=0. An unfinished backup is what a killed
# attempt has left, unless another attempt is writing into it.
find "$BACKUP_DIR" -mindepth 1 -maxdepth 1 -type d ! -name "$name" \
  \( -name '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*Z' -mmin "+$((keep_days * 1440))" -o -name '*Z.unfinished' -mmin +1440 \) \
  -exec rm -rf {} +
