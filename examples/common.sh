# What the scripts of the examples have in common. A script sets `here` to its directory and sources this file.

invoked=$PWD
root=$(cd "$here/../.." && pwd)
# The processes that end with the script.
started=()

fail() { echo "run.sh: $*" >&2; exit 2; }

# A path that was given is relative to where the reader stands.
absolute() { case "$1" in /*) echo "$1" ;; *) echo "$invoked/$1" ;; esac; }

# Sets `anabranch` to the binary that ANABRANCH names; without it, cargo builds one.
find_anabranch() {
  if [ -n "${ANABRANCH:-}" ]; then
    anabranch=$(absolute "$ANABRANCH")
    [ -x "$anabranch" ] || fail "ANABRANCH=$ANABRANCH is not a program"
  else
    echo "building anabranch; to use another binary, set ANABRANCH to its path"
    cargo build --release --manifest-path "$root/Cargo.toml" --bin anabranch
    anabranch=${CARGO_TARGET_DIR:-$root/target}/release/anabranch
  fi
}

# Sets `bin` to the directory of PostgreSQL's programs. The version that the example needs.
find_postgres() {
  command -v python3 >/dev/null || fail "python3 is missing: install Python 3.9 or newer"
  command -v psql >/dev/null || fail "psql is missing: install PostgreSQL's client (Debian: apt install postgresql)"
  local initdb
  initdb=$(command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -1 || true)
  [ -n "$initdb" ] || fail "PostgreSQL is missing: install the server${1:+, $1} (Debian: apt install postgresql)"
  bin=$(dirname "$initdb")
}

# Sets `work` to a new directory, and runs a command when the script ends. The command removes the directory.
begin_work() {
  work=$(mktemp -d)
  trap "$1" EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # PostgreSQL refuses to run as root.
  as=
  if [ "$(id -u)" -eq 0 ]; then
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chmod 711 "$work"
  fi
}
own() { if [ -n "$as" ]; then chown 65534:65534 "$@"; fi; }

# Prints free ports, so that nothing that runs here already is in the way. Their number.
free_ports() {
  python3 - "$1" <<'PY'
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*[s.getsockname()[1] for s in sockets])
PY
}

# Waits until a command succeeds. What was started, its log, and the command.
await() {
  local what=$1 log=$2
  shift 2
  for _ in $(seq 600); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  tail -n 20 "$log" >&2
  fail "$what did not start"
}

# Makes the directory of a server. Its name, and the options of initdb.
init_postgres() {
  local data=$work/$1
  shift
  mkdir "$data"
  own "$data"
  (cd / && $as "$bin/initdb" -D "$data" "$@" -E UTF8 --locale=C --no-sync >/dev/null)
}

# Starts a server. Its name, its port, and further settings.
run_postgres() {
  local name=$1 port=$2
  shift 2
  (cd / && exec $as "$bin/postgres" -D "$work/$name" -c "port=$port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= "$@" >"$work/$name.log" 2>&1) & started+=($!)
}

# Stops a server, if it runs. Its name.
stop_postgres() {
  [ ! -f "$work/$1/postmaster.pid" ] \
    || (cd / && $as "$bin/pg_ctl" -D "$work/$1" -m immediate stop >/dev/null 2>&1) || true
}

# Ends what the script has started, and removes the directory.
end_work() {
  for pid in ${started[@]+"${started[@]}"}; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
