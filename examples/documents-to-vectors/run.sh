#!/usr/bin/env bash
# Starts everything on this machine - PostgreSQL, an S3 server, the two services -, uploads the documents, runs the
# pipeline until there is nothing more to read and shows the rows.
# run.sh --check: exits 0 only if the tables hold exactly what the documents call for.
# ANABRANCH names the binary (without it, cargo builds one), PYTHON a Python that has moto, DOCUMENTS a directory of
# other *.txt files.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
cd "$here"

case "${1:-}" in
  '' | --check) ;;
  *) fail "usage: run.sh [--check]" ;;
esac
find_postgres
documents=$(absolute "${DOCUMENTS:-$here/documents}")
find_anabranch

# The S3 server is moto: of PYTHON, where .ci/setup puts it, of the system, or installed here.
has_moto() { "$1" -c 'import moto.server' 2>/dev/null; }
python=
for candidate in "${PYTHON:-}" "$root/target/moto/bin/python" python3; do
  if [ -n "$candidate" ] && has_moto "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  echo "installing the S3 server moto into $root/target/moto"
  { python3 -m venv "$root/target/moto" \
    && "$root/target/moto/bin/pip" install --quiet --disable-pip-version-check 'moto[server]>=5.2,<6'; } \
    || fail "cannot install moto: install it (pip install 'moto[server]') and name its Python in PYTHON"
  python=$root/target/moto/bin/python
fi

finish() {
  stop_postgres postgres
  end_work
}
begin_work finish
read -r s3_port partition_port embed_port pg_port < <(free_ports 4)
export OBJSTORE_ENDPOINT="http://127.0.0.1:$s3_port" DB_ADDRESS="127.0.0.1:$pg_port"
export UNSTRUCTURED_ADDRESS="127.0.0.1:$partition_port" OLLAMA_ADDRESS="127.0.0.1:$embed_port"
. ./env.sh

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

"$python" -m moto.server -H 127.0.0.1 -p "$s3_port" >"$work/s3.log" 2>&1 & started+=($!)
python3 services.py "$UNSTRUCTURED_ADDRESS" "$OLLAMA_ADDRESS" >"$work/services.log" 2>&1 & started+=($!)
printf '%s' "$DB_PASSWORD" >"$work/password"
own "$work/password"
init_postgres postgres -U "$DB_USER" -A scram-sha-256 --pwfile="$work/password"
run_postgres postgres "$pg_port"
export PGHOST=127.0.0.1 PGPORT=$pg_port PGUSER=$DB_USER PGPASSWORD=$DB_PASSWORD PGDATABASE=postgres
await "the S3 server" "$work/s3.log" listens "$s3_port"
await "the partition service" "$work/services.log" listens "$partition_port"
await "the embedding service" "$work/services.log" listens "$embed_port"
await PostgreSQL "$work/postgres.log" psql -qAt -c 'select 1'

psql -q -c "create database \"$DB_NAME\""
export PGDATABASE=$DB_NAME
embedding=jsonb
if psql -q -c 'create extension vector' 2>/dev/null; then embedding=vector; fi
psql -q -v ON_ERROR_STOP=1 --set=embedding=$embedding -f schema.sql

python3 - "$OBJSTORE_ENDPOINT/$OBJSTORE_BUCKET" "$documents" <<'PY'
import pathlib, sys, urllib.request

def put(url, data, headers):
    # Whose request this is; moto checks no signatures.
    headers["authorization"] = "AWS4-HMAC-SHA256 Credential=example/20260101/us-east-1/s3/aws4_request, " \
        "SignedHeaders=host, Signature=0"
    urllib.request.urlopen(urllib.request.Request(url, data=data, method="PUT", headers=headers)).read()

bucket, documents = sys.argv[1:]
put(bucket, b"", {})
for document in sorted(pathlib.Path(documents).glob("*.txt")):
    put(f"{bucket}/papers/{document.stem}.pdf", document.read_bytes(),
        {"x-amz-meta-title": f"About {document.stem}", "content-type": "application/pdf"})
PY

(cd "$work" && "$anabranch" run --once --preview.pipeline-arch-v2 --pipelines "$here/pipeline.yaml")

if [ "${1:-}" = --check ]; then
  psql -qAt -c "select json_build_object(
    'files', (select coalesce(json_agg(t), '[]') from files t),
    'file_items', (select coalesce(json_agg(json_build_object('file_id', file_id, 'user_id', user_id,
      'content', content, 'local_embedding', local_embedding::text::json, 'tokens', tokens)), '[]') from file_items),
    'collection_files', (select coalesce(json_agg(t), '[]') from collection_files t),
    'file_workspaces', (select coalesce(json_agg(t), '[]') from file_workspaces t))" \
    | python3 check.py "$documents"
else
  psql -P pager=off -c 'select id, name, description, type from files order by name'
  psql -P pager=off -c 'select name, left(content, 40) as content, left(local_embedding::text, 30) as embedding,
    i.tokens from file_items i join files f on f.id = i.file_id order by name, content'
  psql -P pager=off -c 'select name, collection_id, workspace_id from files f
    join collection_files c on c.file_id = f.id join file_workspaces w on w.file_id = f.id order by name'
fi
