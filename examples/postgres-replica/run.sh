#!/usr/bin/env bash
# Starts two PostgreSQL servers on this machine, changes the tables of one all the time, copies them to the other, and
# compares both until Ctrl+C.
# run.sh --check: kills the service twice, each time within a large transaction, and exits 0 only if both databases were the
# same in each comparison.
# ANABRANCH names the binary; without it, cargo builds one. PATIENCE is the number of seconds after which a copy that
# differs is wrong (30).
set -euo pipefail
invoked=$PWD
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

fail() { echo "run.sh: $*" >&2; exit 2; }
case "${1:-}" in
  '' | --check) ;;
  *) fail "usage: run.sh [--check]" ;;
esac
command -v python3 >/dev/null || fail "python3 is missing: install Python 3.9 or newer"
command -v psql >/dev/null || fail "psql is missing: install PostgreSQL's client (Debian: apt install postgresql)"
initdb=$(command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -1 || true)
[ -n "$initdb" ] || fail "PostgreSQL is missing: install the server, 14 or newer (Debian: apt install postgresql)"
bin=$(dirname "$initdb")

if [ -n "${ANABRANCH:-}" ]; then
  case "$ANABRANCH" in /*) anabranch=$ANABRANCH ;; *) anabranch=$invoked/$ANABRANCH ;; esac
  [ -x "$anabranch" ] || fail "ANABRANCH=$ANABRANCH is not a program"
else
  echo "building anabranch; to use another binary, set ANABRANCH to its path"
  cargo build --release --manifest-path "$root/Cargo.toml" --bin anabranch
  anabranch=${CARGO_TARGET_DIR:-$root/target}/release/anabranch
fi

work=$(mktemp -d)
# PostgreSQL refuses to run as root.
as=
if [ "$(id -u)" -eq 0 ]; then
  as="setpriv --reuid=65534 --regid=65534 --clear-groups"
  chmod 711 "$work"
fi
own() { if [ -n "$as" ]; then chown 65534:65534 "$@"; fi; }
started=() loads=() service=
finish() {
  for pid in ${loads[@]+"${loads[@]}"}; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  [ -z "$service" ] || { kill -9 "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true; }
  for name in source copy; do
    [ ! -f "$work/$name/postmaster.pid" ] \
      || (cd / && $as "$bin/pg_ctl" -D "$work/$name" -m immediate stop >/dev/null 2>&1) || true
  done
  for pid in ${started[@]+"${started[@]}"}; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

read -r source_port copy_port < <(python3 - <<'PY'
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[s.getsockname()[1] for s in sockets])
PY
)

# Starts a server. Its name, its port, and further settings.
start() {
  local name=$1 port=$2
  shift 2
  mkdir "$work/$name"
  own "$work/$name"
  (cd / && $as "$bin/initdb" -D "$work/$name" -U postgres -A trust -E UTF8 --locale=C --no-sync >/dev/null)
  (cd / && exec $as "$bin/postgres" -D "$work/$name" -c "port=$port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= "$@" >"$work/$name.log" 2>&1) & started+=($!)
  for _ in $(seq 600); do
    if psql -XqAt -d "postgresql://postgres@127.0.0.1:$port/postgres" -c 'select 1' >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  tail -n 20 "$work/$name.log" >&2
  fail "the server of the $name did not start"
}
# The source writes to its log what logical replication needs. If the copy is stopped for long, the server gives up its
# slot rather than fill the disk.
start source "$source_port" -c wal_level=logical -c max_slot_wal_keep_size=1GB
start copy "$copy_port"
export SOURCE_URL=postgresql://postgres@127.0.0.1:$source_port/postgres
export COPY_URL=postgresql://postgres@127.0.0.1:$copy_port/postgres

psql -Xq -v ON_ERROR_STOP=1 -d "$SOURCE_URL" -f "$here/schema.sql"
for session in 0 1; do
  psql -Xq -d "$SOURCE_URL" -c "call load.run($session, 2)" 2>>"$work/load.log" & loads+=($!)
done

begin() {
  (cd "$work" && exec "$anabranch" run --pipelines "$here/pipeline.yaml" --api.enabled=false --log.level warn \
    >>"$work/service.log" 2>&1) & service=$!
}
compare() {
  if ! python3 "$here/compare.py" "$SOURCE_URL" "$COPY_URL" "$@"; then
    tail -n 20 "$work/service.log" >&2
    echo "run.sh: the copy differs" >&2
    exit 1
  fi
}
begin
if [ "${1:-}" != --check ]; then
  echo "the source: psql $SOURCE_URL"
  echo "the copy:   psql $COPY_URL"
  compare
fi

compare 2
for round in 1 2; do
  # A large transaction. The service is killed when a part of it is in the copy.
  psql -Xq -v ON_ERROR_STOP=1 -d "$SOURCE_URL" \
    -c "insert into visits select now(), n, '/round/$round' from generate_series(1, 50000) n"
  for _ in $(seq 6000); do
    there=$(psql -XqAt -d "$COPY_URL" -c "select count(*) from visits where page = '/round/$round'")
    [ "$there" = 0 ] || break
    sleep 0.01
  done
  kill -9 "$service" || fail "the service ended: $(tail -n 20 "$work/service.log")"
  wait "$service" 2>/dev/null || true
  echo "the service was killed after $there rows of a large transaction"
  # Changes for which there is no copy.
  sleep 1
  begin
  compare 2
done
psql -Xq -d "$SOURCE_URL" -c 'delete from load.runs'
for pid in "${loads[@]}"; do wait "$pid" || fail "the load failed: $(cat "$work/load.log")"; done
loads=()
compare 1
