"""Confluent's Avro serializers and deserializers, between a Kafka cluster and a schema registry.

avro.py SERVERS REGISTRY TOKEN COMMAND JSON
"""

import decimal
import json
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

servers, url, token, command, given = sys.argv[1:]
given = json.loads(given)
client = SchemaRegistryClient({"url": url, "basic.auth.user.info": "anybody:" + token})
topic = given["topic"]
key_context = SerializationContext(topic, MessageField.KEY)
value_context = SerializationContext(topic, MessageField.VALUE)


def plain(value):
    """JSON has no decimals and no bytes."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value


def exact(value):
    if isinstance(value, dict):
        return {name: decimal.Decimal(inner) if name == "price" else exact(inner) for name, inner in value.items()}
    return value


if command == "produce":
    # Messages: [key, value, number of the schema], or {"bytes": [...]}.
    key_serializer = AvroSerializer(client, json.dumps(given["key"]))
    serializers = [AvroSerializer(client, json.dumps(schema)) for schema in given["schemas"]]
    producer = Producer({"bootstrap.servers": servers})
    for message in given["messages"]:
        if isinstance(message, dict):
            producer.produce(topic, value=bytes(message["bytes"]))
        else:
            key, value, schema = message
            value = None if value is None else serializers[schema](exact(value), value_context)
            producer.produce(topic, key=key_serializer(key, key_context), value=value)
    assert producer.flush(60) == 0
elif command == "consume":
    # The values and keys as Python has them, by offset.
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "avro", "enable.auto.commit": False})
    partition = TopicPartition(topic, 0, 0)
    end = consumer.get_watermark_offsets(partition, 60)[1]
    consumer.assign([partition])
    key_deserializer, deserializer = AvroDeserializer(client), AvroDeserializer(client)
    messages = []
    while len(messages) < end:
        message = consumer.poll(60)
        assert message is not None and not message.error(), message
        key = message.key() if given.get("raw_keys") else key_deserializer(message.key(), key_context)
        value = deserializer(message.value(), value_context)
        messages.append([key.decode() if isinstance(key, bytes) else key, plain(value)])
    consumer.close()
    subjects = {name: client.get_versions(name) for name in client.get_subjects() if name.startswith(topic)}
    print(json.dumps({"messages": messages, "subjects": subjects}))
elif command == "register":
    print(client.register_schema(given["subject"], Schema(json.dumps(given["schema"]), "AVRO")))
