#!/usr/bin/env bash
# Starts a Kafka broker on this machine, fills a topic, copies its large orders to another topic and shows them.
# run.sh --check: exits 0 only if exactly the large orders arrived, also when the copy runs twice.
# run.sh --broker: only starts the broker, prints its address and waits for Ctrl+C.
# ANABRANCH names the binary; without it, cargo builds one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"

case "${1:-}" in
  '' | --check | --broker) ;;
  *) fail "usage: run.sh [--check | --broker]" ;;
esac
command -v java >/dev/null || fail "java is missing: install Java 17 or newer (Debian: apt install default-jdk-headless)"

# The broker's jars, where .ci/setup puts them too.
lib=$root/target/kafka/lib
if [ -z "$(ls "$lib"/kafka_2.13-*.jar 2>/dev/null)" ]; then
  command -v mvn >/dev/null || fail "mvn is missing: install Maven (Debian: apt install maven)"
  echo "downloading Kafka into $lib"
  mvn -q -B -f "$root/tests/it/servers/kafka/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$lib" -DincludeScope=runtime
fi

if [ "${1:-}" != --broker ]; then find_anabranch; fi

broker=
finish() {
  [ -z "$broker" ] || { kill -9 "$broker" 2>/dev/null || true; wait "$broker" 2>/dev/null || true; }
  rm -rf "$work"
}
begin_work finish

# Two free ports.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}
port=$(free_port) controller=$(free_port)
cat >"$work/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:$controller
log.dirs=$work/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=4194304
PROPERTIES
java() { command java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp "$lib/*" "$@"; }
java kafka.tools.StorageTool format --standalone -t AnabranchExample000000 -c "$work/server.properties" \
  >"$work/format.log" 2>&1 || { cat "$work/format.log" >&2; fail "the broker's directory cannot be prepared"; }
command java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp "$lib/*" \
  kafka.Kafka "$work/server.properties" >"$work/broker.log" 2>&1 &
broker=$!
for _ in $(seq 600); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  kill -0 "$broker" 2>/dev/null || { tail -n 20 "$work/broker.log" >&2; fail "the broker did not start"; }
  sleep 0.1
done
export KAFKA_SERVERS=127.0.0.1:$port
if [ "${1:-}" = --broker ]; then
  echo "the broker listens: export KAFKA_SERVERS=$KAFKA_SERVERS"
  wait "$broker"
  exit 0
fi

export ORDERS=$here/orders.ndjson LARGE=$work/large-orders.ndjson
cd "$work"
for pipeline in load pipeline show; do
  "$anabranch" run --once --log.level warn --pipelines "$here/$pipeline.yaml"
done

if [ "${1:-}" = --check ]; then
  # Nothing is left to copy: a second run adds nothing.
  for pipeline in pipeline show; do
    "$anabranch" run --once --log.level warn --pipelines "$here/$pipeline.yaml"
  done
  python3 - "$ORDERS" "$LARGE" <<'PY'
import json, sys
orders, large = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
wanted = [order for order in orders if order["amount"] >= 100]
by_id = lambda order: order["id"]
if sorted(large, key=by_id) != wanted:
    sys.exit(f"large-orders has {large}, not {wanted}")
print(f"large-orders: {len(large)} records")
PY
else
  cat "$LARGE"
fi
