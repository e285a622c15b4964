#!/usr/bin/env bash
# Starts a PostgreSQL server and three nodes of a cluster on this machine. They share the partitions of one pipeline, which
# writes numbered orders to a table. Shows who runs what until Ctrl+C.
# run.sh --check: kills one node and stops another, and exits 0 only if each order is in the table exactly once.
# ANABRANCH names the binary; without it, cargo builds one.
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
[ -n "$initdb" ] || fail "PostgreSQL is missing: install the server (Debian: apt install postgresql)"
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
declare -A nodes=()
finish() {
  for node in "${!nodes[@]}"; do kill -9 "${nodes[$node]}" 2>/dev/null || true; done
  [ ! -f "$work/server/postmaster.pid" ] \
    || (cd / && $as "$bin/pg_ctl" -D "$work/server" -m immediate stop >/dev/null 2>&1) || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

read -r port one two three < <(python3 - <<'PY'
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*[s.getsockname()[1] for s in sockets])
PY
)

mkdir "$work/server"
if [ -n "$as" ]; then chown 65534:65534 "$work/server"; fi
(cd / && $as "$bin/initdb" -D "$work/server" -U postgres -A trust -E UTF8 --locale=C --no-sync >/dev/null)
(cd / && exec $as "$bin/postgres" -D "$work/server" -c "port=$port" -c listen_addresses=127.0.0.1 \
  -c unix_socket_directories= >"$work/server.log" 2>&1) &
export TARGET=postgresql://postgres@127.0.0.1:$port/postgres
sql() { psql -XqAt -v ON_ERROR_STOP=1 -d "$TARGET" -c "$1"; }
for _ in $(seq 600); do
  if sql 'select 1' >/dev/null 2>&1; then break; fi
  sleep 0.1
done
sql 'create table orders (number text, customer text, amount bigint)' || { tail -n 20 "$work/server.log" >&2; fail "no server"; }

# Only what differs between nodes is set here: their names and addresses.
export ANABRANCH_CLUSTER_URL=$TARGET
declare -A ports=([one]=$one [two]=$two [three]=$three)
begin() {
  local name=$1 address=127.0.0.1:${ports[$1]}
  mkdir -p "$work/$name"
  (cd "$work/$name" && exec "$anabranch" run --pipelines "$here/pipeline.yaml" --cluster.node "$name" \
    --cluster.address "http://$address" --api.http.address "$address" >>"$work/$name.log" 2>&1) &
  nodes[$name]=$!
}
if [ "${1:-}" = --check ]; then export ORDERS=40000; fi
for name in one two three; do begin "$name"; done
shown() { "$anabranch" cluster --api.http.address "127.0.0.1:${ports[$1]}"; }
shares() {
  sql "select count(*) from anabranch_kv_store_unit u join anabranch_kv_store_node n on n.id = u.owner \
       where n.name = '$1'" 2>/dev/null || echo 0
}
# Waits until a node has units, or none.
await() {
  for _ in $(seq 600); do
    has=$(shares "$1")
    case "$2 $has" in
      'some 0') ;;
      some* | 'none 0') return ;;
    esac
    sleep 0.1
  done
  tail -n 20 "$work"/*.log >&2
  fail "node $1 should have $2 units"
}
for name in one two three; do await "$name" some; done

if [ "${1:-}" != --check ]; then
  echo "the table: psql $TARGET"
  echo "the pages: http://127.0.0.1:$one http://127.0.0.1:$two http://127.0.0.1:$three"
  while sleep 2; do
    echo
    echo "$(sql 'select count(*) from orders') orders"
    shown one || shown two || shown three || true
  done
fi

shown one
echo "node one is killed"
kill -9 "${nodes[one]}"
await one none
echo "node two is stopped"
kill "${nodes[two]}"
wait "${nodes[two]}" || true
await two none
shown three
begin one
for _ in $(seq 1200); do
  there=$(sql 'select count(distinct number) from orders')
  if [ "$there" = "$ORDERS" ]; then break; fi
  sleep 0.1
done
all=$(sql 'select count(*) from orders')
if [ "$there" != "$ORDERS" ] || [ "$all" != "$ORDERS" ]; then
  tail -n 20 "$work"/*.log >&2
  echo "run.sh: $there of $ORDERS orders are in the table, in $all rows" >&2
  exit 1
fi
echo "each of $ORDERS orders is in the table once"
