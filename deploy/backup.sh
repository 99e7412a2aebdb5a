#!/usr/bin/env bash
# Usage: backup.sh FOLDER KEY KEEP
# Write a backup to FOLDER, encrypted with the age identity in the file KEY; read all of it back; remove
# all but the newest KEEP. A failed backup leaves the older ones as they are.
set -o errexit -o nounset -o pipefail
folder=$1 key=$2 keep=$3
[[ $keep =~ ^[1-9][0-9]*$ ]] || { echo "KEEP: found $keep; accepted: a number above 0" >&2; exit 2; }
umask 077
# What a killed backup has left.
find "$folder/" -maxdepth 1 -name '.recalib-*.unfinished' -mmin +1440 -delete
unfinished=$(mktemp "$folder/.recalib-XXXXXXXX.unfinished")
trap 'rm --force "$unfinished"' EXIT
name=recalib-$(date --utc +%Y%m%dT%H%M%SZ).zip.age
# The recipient is derived from the key and stays secret: it is enough to forge a backup.
recalib backup - | age --encrypt --identity "$key" > "$unfinished"
age --decrypt --identity "$key" "$unfinished" > /dev/null
sync "$unfinished"
mv "$unfinished" "$folder/$name"
sync "$folder"
find "$folder/" -maxdepth 1 -name 'recalib-????????T??????Z.zip.age' -print0 \
    | sort --zero-terminated | head --zero-terminated --lines="-$keep" | xargs --null --no-run-if-empty rm
recalib record-backup "$name"
