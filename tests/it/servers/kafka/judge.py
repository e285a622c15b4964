"""What others see of a Kafka cluster: a client that is not ours, made of librdkafka.

judge.py SERVERS COMMAND [JSON] prints the answer as JSON. Bytes are base64.
"""

import base64
import json
import select
import socket
import struct
import sys
import time

from confluent_kafka import (
    Consumer, ConsumerGroupTopicPartitions, ElectionType, KafkaError, KafkaException, Producer, TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding, AclOperation, AclPermissionType, AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource,
    NewPartitions, NewTopic, ResourcePatternType, ResourceType,
)

PATIENCE = 60


def coded(data):
    return None if data is None else base64.b64encode(data).decode()


def plain(data):
    return None if data is None else base64.b64decode(data)


def done(futures):
    for future in futures.values():
        future.result(PATIENCE)


def create(admin, servers, given):
    replicas, config = given.get("replicas", 1), given.get("config", {})
    done(admin.create_topics([NewTopic(given["topic"], given.get("partitions", 1), replicas, config=config)]))
    # A broker learns of the topic a moment after the controller has created it.
    until = time.time() + PATIENCE
    while True:
        found = admin.list_topics(given["topic"], PATIENCE).topics[given["topic"]]
        if found.partitions and all(partition.leader >= 0 for partition in found.partitions.values()):
            return
        if time.time() > until:
            sys.exit("the topic has no leaders")
        time.sleep(0.05)


def delete(admin, servers, given):
    done(admin.delete_topics([given["topic"]]))


def produce(admin, servers, given):
    """Produces `messages`: [{key, value, headers, partition, timestamp}]; with `transaction`, commit or abort."""
    settings = {"bootstrap.servers": servers, "acks": "all"}
    transaction = given.get("transaction")
    if transaction:
        settings["transactional.id"] = given.get("id", "judge")
    producer = Producer(settings)
    if transaction:
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
    failed = []
    for message in given["messages"]:
        optional = {name: message[name] for name in ("partition", "timestamp") if name in message}
        headers = [(name, plain(value)) for name, value in message.get("headers", [])]
        producer.produce(
            given["topic"], value=plain(message.get("value")), key=plain(message.get("key")), headers=headers,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None, **optional,
        )
        producer.poll(0)
    if producer.flush(PATIENCE) or failed:
        sys.exit(f"not produced: {failed}")
    if transaction == "commit":
        producer.commit_transaction(PATIENCE)
    elif transaction == "abort":
        producer.abort_transaction(PATIENCE)


def consume(admin, servers, given):
    """Returns all messages of a topic, up to the end that it has now."""
    isolation = given.get("isolation", "read_committed")
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "judge", "enable.auto.commit": False,
        "isolation.level": isolation, "enable.partition.eof": True, "auto.offset.reset": "earliest",
    })
    described = admin.list_topics(given["topic"], PATIENCE).topics[given["topic"]]
    partitions = [TopicPartition(given["topic"], number, 0) for number in described.partitions]
    for partition in partitions:
        partition.offset = consumer.get_watermark_offsets(partition, PATIENCE)[0]
    consumer.assign(partitions)
    open_partitions, messages, until = len(partitions), [], time.time() + PATIENCE
    while open_partitions:
        if time.time() > until:
            sys.exit("the topic does not end")
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            if message.error().code() == -191:
                open_partitions -= 1
                continue
            sys.exit(str(message.error()))
        messages.append({
            "partition": message.partition(), "offset": message.offset(), "timestamp": message.timestamp()[1],
            "key": coded(message.key()), "value": coded(message.value()),
            "headers": [[name, coded(value)] for name, value in message.headers() or []],
        })
    consumer.close()
    return messages


def add_partitions(admin, servers, given):
    done(admin.create_partitions([NewPartitions(given["topic"], given["count"])]))


def delete_records(admin, servers, given):
    """Deletes the records of a partition before an offset."""
    done(admin.delete_records([TopicPartition(given["topic"], given.get("partition", 0), given["before"])]))


def offsets(admin, servers, given):
    """Returns the committed offsets of a group, by partition."""
    request = ConsumerGroupTopicPartitions(given["group"])
    found = admin.list_consumer_group_offsets([request])[given["group"]].result(PATIENCE)
    return {f"{at.topic}/{at.partition}": at.offset for at in found.topic_partitions}


def reset(admin, servers, given):
    """Sets the committed offset of a group, as an operator does."""
    at = TopicPartition(given["topic"], given.get("partition", 0), given["offset"])
    done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(given["group"], [at])]))


def delete_group(admin, servers, given):
    """Deletes a group, as soon as its members have left it. A group that does not exist is deleted already."""
    until = time.time() + PATIENCE
    while True:
        try:
            return done(admin.delete_consumer_groups([given["group"]]))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            # The coordinator of the first group of a broker is not there at once.
            passing = (
                KafkaError.NON_EMPTY_GROUP, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            )
            if error.args[0].code() not in passing or time.time() > until:
                raise


def member(admin, servers, given):
    """Is a member of a group until standard input ends. Prints a line for each assignment and each message."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": given["group"], "auto.offset.reset": "earliest",
        "partition.assignment.strategy": given.get("strategy", "cooperative-sticky"), "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    })
    say = lambda *words: print(json.dumps(words), flush=True)
    cooperative = given.get("strategy", "cooperative-sticky") == "cooperative-sticky"

    def assigned(consumer, partitions):
        say("assigned", [f"{at.topic}/{at.partition}" for at in partitions])
        (consumer.incremental_assign if cooperative else consumer.assign)(partitions)

    def revoked(consumer, partitions):
        say("revoked", [f"{at.topic}/{at.partition}" for at in partitions])
        (consumer.incremental_unassign(partitions) if cooperative else consumer.unassign())

    consumer.subscribe([given["topic"]], on_assign=assigned, on_revoke=revoked)
    poller = select.poll()
    poller.register(sys.stdin, select.POLLIN | select.POLLHUP)
    while not poller.poll(0):
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            say("read", f"{message.topic()}/{message.partition()}", message.offset())
            consumer.commit(message=message, asynchronous=False)
    consumer.close()
    return "left"


def describe(admin, servers, given):
    described = admin.list_topics(given["topic"], PATIENCE).topics[given["topic"]]
    if described.error:
        return None
    resource = ConfigResource(ConfigResource.Type.TOPIC, given["topic"])
    config = admin.describe_configs([resource])[resource].result(PATIENCE)
    names = given.get("config", [])
    return {"partitions": len(described.partitions), "config": {name: config[name].value for name in names}}


def right(admin, servers, given):
    """Allows or denies an operation on a topic, or another resource with a `kind`, to a user."""
    binding = AclBinding(
        ResourceType[given.get("kind", "TOPIC")], given["topic"], ResourcePatternType.LITERAL, "User:" + given["user"], "*",
        AclOperation[given["operation"]], AclPermissionType[given["permission"]],
    )
    done(admin.create_acls([binding]))


def configure(admin, servers, given):
    """Changes settings of a topic."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in given["config"].items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, given["topic"], incremental_configs=entries)
    done(admin.incremental_alter_configs([resource]))


def leader(admin, servers, given):
    """Returns the broker that leads a partition."""
    until = time.time() + PATIENCE
    while time.time() < until:
        topic = admin.list_topics(given["topic"], PATIENCE).topics[given["topic"]]
        found = topic.partitions.get(given["partition"])
        if found and found.leader >= 0:
            return found.leader
        time.sleep(0.1)
    sys.exit("the partition has no leader")


def elect_preferred(admin, servers, given):
    """Makes the first replica of each partition of a topic its leader."""
    topic = admin.list_topics(given["topic"], PATIENCE).topics[given["topic"]]
    partitions = [TopicPartition(given["topic"], partition) for partition in topic.partitions]
    for partition, error in admin.elect_leaders(ElectionType.PREFERRED, partitions).result(PATIENCE).items():
        if error and error.code() != KafkaError.ELECTION_NOT_NEEDED:
            sys.exit(f"{partition}: {error}")


def replicas(admin, servers, given):
    """Returns the brokers that have a replica of a partition."""
    return admin.list_topics(given["topic"], PATIENCE).topics[given["topic"]].partitions[given["partition"]].replicas


def in_sync(admin, servers, given):
    """Returns how many replicas of a partition are in sync."""
    return len(admin.list_topics(given["topic"], PATIENCE).topics[given["topic"]].partitions[given["partition"]].isrs)


def group_coordinator(admin, servers, given):
    described = admin.describe_consumer_groups([given["group"]])[given["group"]].result(PATIENCE)
    return described.coordinator.id


def transaction_coordinator(admin, servers, given):
    """The leader of the partition of the transactional id, by the hash of Java."""
    log, code = "__transaction_state", 0
    for character in given["id"]:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    until = time.time() + PATIENCE
    # The first transactional producer creates the log.
    while not (partitions := len(admin.list_topics(log, PATIENCE).topics[log].partitions)):
        if time.time() > until:
            sys.exit("nobody has used a transaction")
        time.sleep(0.1)
    return leader(admin, servers, {"topic": log, "partition": min(code, 2**32 - code) % partitions})


def await_health(admin, servers, given):
    """Waits until each broker knows all brokers, and all replicas of all partitions are in sync."""
    until, lacking, left = time.time() + 2 * PATIENCE, None, servers.split(",")
    while left:
        if time.time() > until:
            sys.exit(f"not in sync at {left[0]}: {lacking}")
        try:
            # A client of its own: others would ask any broker, and one that is cut off knows nothing new.
            found = AdminClient({"bootstrap.servers": left[0], "log_level": 2}).list_topics(timeout=5)
        except KafkaException as error:
            lacking = str(error)
            continue
        lacking = [
            f"{topic.topic}/{at.id}" for topic in found.topics.values() for at in topic.partitions.values()
            if at.leader < 0 or len(at.isrs) < len(at.replicas)
        ]
        lacking += [f"{len(found.brokers)} brokers"] if len(found.brokers) < len(servers.split(",")) else []
        if not lacking:
            left.pop(0)
        else:
            time.sleep(0.2)


def fill(admin, servers, given):
    """Produces messages until standard input ends, at `rate` in a second, and returns how many. The key is one of `keys`,
    the value a number per key from 0 on, or what `form` makes of them. A key is in one partition, of `partitions` from
    `base` on."""
    failed, count = [], 0
    producer = Producer({
        "bootstrap.servers": servers, "enable.idempotence": True, "message.timeout.ms": 300000, "linger.ms": 5,
        "log_level": 2,
    })
    keys, rate, form, begun = given["keys"], given["rate"], given.get("form", "%(number)d"), time.time()
    poller = select.poll()
    poller.register(sys.stdin, select.POLLIN | select.POLLHUP)
    while not poller.poll(0) or count % keys:
        key = count % keys
        producer.produce(
            given["topic"], key=f"{given['prefix']}{key}", value=form % {"key": key, "number": count // keys},
            partition=given["base"] + key % given["partitions"],
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        count += 1
        producer.poll(max(0, count / rate - (time.time() - begun)))
    if producer.flush(300) or failed:
        sys.exit(f"not produced: {failed}")
    return count // keys


def await_controller(admin, servers, given):
    """Waits until the broker knows the controller. A client that asks before keeps the answer for long."""
    until = time.time() + PATIENCE
    while time.time() < until:
        found = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10)
        if found.controller_id >= 0 and found.brokers:
            return
        time.sleep(0.1)
    sys.exit("the broker does not know the controller")


def bulk(admin, servers, given):
    """Produces `count` messages, to the first `partitions` partitions in turn. The value is the number of the message."""
    failed = []
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": 1000000})
    for n in range(given["count"]):
        producer.produce(
            given["topic"], value=str(n), partition=n % given["partitions"],
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    if producer.flush(PATIENCE) or failed:
        sys.exit(f"not produced: {failed[:3]}")


def ends(admin, servers, given):
    """Returns the ends of the partitions of a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "judge"})
    described = consumer.list_topics(given["topic"], PATIENCE).topics[given["topic"]]
    partitions = [TopicPartition(given["topic"], number) for number in described.partitions]
    return {f"{at.topic}/{at.partition}": consumer.get_watermark_offsets(at, PATIENCE)[1] for at in partitions}


def group_type(admin, servers, given):
    """Returns the type of the protocol of a group: CLASSIC or CONSUMER."""
    listed = admin.list_consumer_groups().result(PATIENCE)
    return next(group.type.name for group in listed.valid if group.group_id == given["group"])


def await_commits(admin, servers, given):
    """Waits until a group has committed the end of all partitions of a topic. Gives up after `patience` seconds without a
    new commit."""
    until, left, before = time.time() + given["patience"], None, None
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "judge", "isolation.level": "read_committed"})
    while time.time() < until:
        try:
            request = ConsumerGroupTopicPartitions(given["group"])
            answer = admin.list_consumer_group_offsets([request])[given["group"]].result(10).topic_partitions
            committed = {at.partition: at.offset for at in answer if at.topic == given["topic"]}
            left = {}
            for number in admin.list_topics(given["topic"], 10).topics[given["topic"]].partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(given["topic"], number), 10)
                if low < high != committed.get(number):
                    left[number] = [committed.get(number), high]
            if committed != before:
                until, before = time.time() + given["patience"], committed
        except KafkaException as error:
            left = str(error)
        if not left:
            return None
        time.sleep(0.2)
    sys.exit(f"not committed: {left}")


def sequences(admin, servers, given):
    """Returns the numbers of each key in the order of the topic, for messages that `fill` made."""
    found = {}
    messages = consume(admin, servers, given)
    for message in sorted(messages, key=lambda message: (message["partition"], message["offset"])):
        found.setdefault(plain(message["key"]).decode(), []).append(int(plain(message["value"])))
    return found


def throttle(admin, servers, given):
    """Limits the bytes that clients of a name may produce and consume in a second; null removes the limit. The client
    has no call for it: this is the request AlterClientQuotas 0, by hand."""
    text = lambda value: struct.pack(">h", len(value)) + value.encode()
    limits = [(key, given[key]) for key in ("producer_byte_rate", "consumer_byte_rate")]
    changes = b"".join(text(key) + struct.pack(">d?", value or 0.0, value is None) for key, value in limits)
    entity = struct.pack(">i", 1) + text("client-id") + text(given["client"])
    body = struct.pack(">i", 1) + entity + struct.pack(">i", len(limits)) + changes + b"\0"
    request = struct.pack(">hhi", 49, 0, 1) + text("judge") + body
    host, port = servers.split(",")[0].split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as stream:
        stream.sendall(struct.pack(">i", len(request)) + request)
        answer = stream.makefile("rb")
        size, = struct.unpack(">i", answer.read(4))
        # Correlation, throttling, number of entries, code.
        code, = struct.unpack(">12xh", answer.read(size)[:14])
    if code:
        sys.exit(f"throttling is refused with the code {code}")


servers, command, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}")
functions = (
    create, delete, produce, consume, add_partitions, delete_records, delete_group, offsets, reset, member,
    describe, right, configure, leader, replicas, in_sync, group_coordinator, transaction_coordinator, await_health, fill, await_commits,
    sequences, throttle, ends, group_type, bulk, await_controller, elect_preferred,
)
commands = {function.__name__: function for function in functions}
json.dump(commands[command](AdminClient({"bootstrap.servers": servers}), servers, given), sys.stdout)
