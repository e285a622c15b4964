#!/usr/bin/env bash
# Starts everything on this machine - PostgreSQL, an S3 server, the two services -, uploads the documents, runs the
# pipeline until there is nothing more to read and shows the rows.
# run.sh --check: exits 0 only if the tables hold exactly what the documents call for.
# ANABRANCH names the binary; without it, cargo builds one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

need() { command -v "$1" >/dev/null || { echo "run.sh: $1 is missing: $2" >&2; exit 2; }; }
need python3 "install Python 3"
need psql "install PostgreSQL's client"
bin=$(dirname "$(command -v postgres || ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null | tail -1 || true)")
[ -x "$bin/initdb" ] || bin=$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | tail -1 || true)")
[ -x "$bin/initdb" ] || { echo "run.sh: PostgreSQL is missing: install the server" >&2; exit 2; }
python3 -c 'import moto.server' 2>/dev/null \
  || { echo "run.sh: the S3 server is missing: pip install 'moto[s3,server]'" >&2; exit 2; }

work=$(mktemp -d)
# PostgreSQL refuses to run as root.
as=
if [ "$(id -u)" -eq 0 ]; then
  as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
  chmod 711 "$work"
fi
started=()
finish() {
  status=$?
  for pid in ${started[@]+"${started[@]}"}; do kill "$pid" 2>/dev/null || true; done
  [ ! -d "$work/postgres" ] || $as "$bin/pg_ctl" -D "$work/postgres" -m immediate stop >/dev/null 2>&1 || true
  wait 2>/dev/null || true
  rm -rf "$work"
  exit $status
}
trap finish EXIT INT TERM

# Free ports, so that nothing that runs here already is in the way.
read -r s3_port partition_port embed_port pg_port < <(python3 - <<'PY'
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*[s.getsockname()[1] for s in sockets])
PY
)
export OBJSTORE_ENDPOINT="http://127.0.0.1:$s3_port" DB_ADDRESS="127.0.0.1:$pg_port"
export UNSTRUCTURED_ADDRESS="127.0.0.1:$partition_port" OLLAMA_ADDRESS="127.0.0.1:$embed_port"
. ./env.sh

reachable() {
  for _ in $(seq 300); do
    (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
    sleep 0.1
  done
  echo "run.sh: $1 did not start; see $work" >&2
  exit 2
}

python3 -m moto.server -H 127.0.0.1 -p "$s3_port" >"$work/s3.log" 2>&1 & started+=($!)
python3 services.py "$UNSTRUCTURED_ADDRESS" "$OLLAMA_ADDRESS" & started+=($!)
mkdir "$work/postgres"
[ -z "$as" ] || chown nobody:nogroup "$work/postgres"
printf '%s' "$DB_PASSWORD" >"$work/password"
[ -z "$as" ] || chown nobody:nogroup "$work/password"
(cd / && $as "$bin/initdb" -D "$work/postgres" -U "$DB_USER" -A scram-sha-256 --pwfile="$work/password" -E UTF8 --locale=C >/dev/null)
(cd / && $as "$bin/postgres" -D "$work/postgres" -c "port=$pg_port" -c listen_addresses=127.0.0.1 \
  -c unix_socket_directories= >"$work/postgres.log" 2>&1) & started+=($!)
reachable "the S3 server" "$s3_port"
reachable "the partition service" "$partition_port"
reachable "the embedding service" "$embed_port"
reachable "PostgreSQL" "$pg_port"

export PGHOST=127.0.0.1 PGPORT=$pg_port PGUSER=$DB_USER PGPASSWORD=$DB_PASSWORD PGDATABASE=postgres
until psql -qAt -c 'select 1' >/dev/null 2>&1; do sleep 0.1; done
psql -q -c "create database \"$DB_NAME\""
export PGDATABASE=$DB_NAME
embedding=jsonb
if psql -q -c 'create extension vector' 2>/dev/null; then embedding=vector; fi
psql -q -v ON_ERROR_STOP=1 --set=embedding=$embedding -f schema.sql

curl_put() { python3 - "$@" <<'PY'
import sys, urllib.request
url, path, title = sys.argv[1:]
data = open(path, "rb").read() if path else b""
request = urllib.request.Request(url, data=data, method="PUT", headers={"x-amz-meta-title": title} if title else {})
urllib.request.urlopen(request).read()
PY
}
curl_put "$OBJSTORE_ENDPOINT/$OBJSTORE_BUCKET" "" ""
for document in documents/*.txt; do
  name=$(basename "$document" .txt)
  curl_put "$OBJSTORE_ENDPOINT/$OBJSTORE_BUCKET/papers/$name.pdf" "$document" "About $name"
done

if [ -z "${ANABRANCH:-}" ]; then
  cargo build --release --quiet --manifest-path ../../Cargo.toml
  ANABRANCH=$(cd ../.. && pwd)/target/release/anabranch
fi
(cd "$work" && "$ANABRANCH" run --once --preview.pipeline-arch-v2 --pipelines "$here/pipeline.yaml")

if [ "${1:-}" = --check ]; then
  psql -qAt -c "select json_build_object(
    'files', (select coalesce(json_agg(t), '[]') from files t),
    'file_items', (select coalesce(json_agg(json_build_object('file_id', file_id, 'user_id', user_id,
      'content', content, 'local_embedding', local_embedding::text::json, 'tokens', tokens)), '[]') from file_items),
    'collection_files', (select coalesce(json_agg(t), '[]') from collection_files t),
    'file_workspaces', (select coalesce(json_agg(t), '[]') from file_workspaces t))" \
    | python3 check.py documents
else
  psql -c 'select id, name, description, type from files order by name'
  psql -c 'select name, left(content, 40) as content, left(local_embedding::text, 30) as embedding, i.tokens
    from file_items i join files f on f.id = i.file_id order by name, content'
  psql -c 'select name, collection_id, workspace_id from files f join collection_files c on c.file_id = f.id
    join file_workspaces w on w.file_id = f.id order by name'
fi
