#!/usr/bin/env bash
# Starts two PostgreSQL servers on this machine, changes the tables of one all the time, copies them to the other, and
# compares both until Ctrl+C.
# run.sh --check: kills the service twice, each time within a large transaction, and exits 0 only if both databases were the
# same in each comparison.
# ANABRANCH names the binary; without it, cargo builds one. PATIENCE is the number of seconds after which a copy that
# differs is wrong (30).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"

case "${1:-}" in
  '' | --check) ;;
  *) fail "usage: run.sh [--check]" ;;
esac
find_postgres "14 or newer"
find_anabranch

loads=() service=
finish() {
  for pid in ${loads[@]+"${loads[@]}"}; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  [ -z "$service" ] || { kill -9 "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true; }
  stop_postgres source
  stop_postgres copy
  end_work
}
begin_work finish
read -r source_port copy_port < <(free_ports 2)

# Starts a server. Its name, its port, and further settings.
start() {
  init_postgres "$1" -U postgres -A trust
  run_postgres "$@"
  await "the server of the $1" "$work/$1.log" psql -XqAt -d "postgresql://postgres@127.0.0.1:$2/postgres" -c 'select 1'
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
