#!/usr/bin/env bash
# Starts a PostgreSQL server and three nodes of a cluster on this machine. They share the partitions of one pipeline, which
# writes numbered orders to a table. Shows who runs what until Ctrl+C.
# run.sh --check: kills one node and stops another, and exits 0 only if each order is in the table exactly once.
# ANABRANCH names the binary; without it, cargo builds one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"

case "${1:-}" in
  '' | --check) ;;
  *) fail "usage: run.sh [--check]" ;;
esac
find_postgres
find_anabranch

declare -A nodes=()
finish() {
  for node in "${!nodes[@]}"; do kill -9 "${nodes[$node]}" 2>/dev/null || true; done
  stop_postgres server
  end_work
}
begin_work finish
read -r port one two three < <(free_ports 4)

init_postgres server -U postgres -A trust
run_postgres server "$port"
export TARGET=postgresql://postgres@127.0.0.1:$port/postgres
sql() { psql -XqAt -v ON_ERROR_STOP=1 -d "$TARGET" -c "$1"; }
await PostgreSQL "$work/server.log" sql 'select 1'
sql 'create table orders (number text, customer text, amount bigint)'

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
# Waits until a node has some units, or none.
await_units() {
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
for name in one two three; do await_units "$name" some; done

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
await_units one none
echo "node two is stopped"
kill "${nodes[two]}"
wait "${nodes[two]}" || true
await_units two none
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
