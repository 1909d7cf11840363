#!/bin/sh
# A DNS-01 provider as a program: docs/certificates.md, "A provider of your own". It keeps the TXT records of one zone in a
# file, a line "NAME VALUE" for each; replace the lines that use $records by calls of your provider.
#
#   exec: {program: /usr/local/bin/dns-hook, args: [example.com, /var/lib/dns-hook/records]}
set -eu
zone=$1
records=$2
request=$(cat)

# The request is one line, and neither names nor values of challenges have anything that JSON would escape.
field() {
    printf '%s' "$request" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"
}

name=$(field name)
value=$(field value)
case $name in
"$zone" | *."$zone") ;;
*)
    echo "$name is not in $zone" >&2
    exit 65
    ;;
esac
if ! touch "$records"; then
    # A temporary failure: the request is repeated.
    exit 75
fi
case $(field action) in
zone) printf '{"zone":"%s"}\n' "$zone" ;;
present) grep -qxF "$name $value" "$records" || echo "$name $value" >>"$records" ;;
cleanup)
    grep -vxF "$name $value" "$records" >"$records.new" || true
    mv "$records.new" "$records"
    ;;
*)
    echo "unknown action" >&2
    exit 1
    ;;
esac
