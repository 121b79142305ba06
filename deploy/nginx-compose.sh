#!/bin/sh
# Runs nginx for compose.nginx.yaml. nginx resolves the names of the instances only when it reads its configuration, and does not start if
# one of them is unknown. The configuration therefore contains only the instances that have an address. nginx reloads it when addresses change.
set -eu
readonly INSTANCES='app-1 app-2'

addresses() { for name in $INSTANCES; do getent hosts "$name" || true; done; }

configure() {
  cp /etc/nginx/nginx.conf /run/nginx.conf.new
  cp /etc/nginx/oa-audience/console.conf /run/console.conf
  for name in $INSTANCES; do
    getent hosts "$name" >/dev/null || sed -i "/server $name:/d" /run/nginx.conf.new /run/console.conf
  done
  # The files are included by their full names, because this configuration is in another directory.
  sed -i 's#include oa-audience/server#include /etc/nginx/oa-audience/server#; s#include oa-audience/console#include /run/console#' \
    /run/nginx.conf.new
  mv /run/nginx.conf.new /run/nginx.conf
}

current=$(addresses)
while [ -z "$current" ]; do sleep 1; current=$(addresses); done
configure
(
  while sleep 2; do
    latest=$(addresses)
    [ -n "$latest" ] && [ "$latest" != "$current" ] || continue
    configure
    # If the reload fails, such as when an address has disappeared again, retry it.
    nginx -c /run/nginx.conf -g "pid /run/nginx.pid;" -s reload && current=$latest
  done
) &
exec nginx -c /run/nginx.conf -g 'daemon off; pid /run/nginx.pid; error_log /dev/stderr;'
