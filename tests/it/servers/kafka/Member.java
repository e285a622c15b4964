import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Members of consumer groups, of the client of the Kafka project, in one process.
 *
 * Standard input has a command in JSON per line: {"open": NAME, "servers", "group", "topic", "protocol"} with the protocol
 * cooperative, eager or consumer (KIP-848), {"pause": NAME, "millis"}: it does not poll for this time, and {"close": NAME}. Standard output has a line for each event of a member:
 * {"member", "event": assigned, revoked or lost, "partitions"}, {"member", "event": "read", "partition", "first", "last"},
 * {"member", "event": paused or closed}. A member commits what it has read before it reads on.
 */
public class Member {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Running> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            if (command.has("open")) {
                Running member = new Running(command);
                MEMBERS.put(member.name, member);
                member.start();
            } else if (command.has("pause")) {
                MEMBERS.get(command.get("pause").asText()).pause = command.get("millis").asLong();
            } else {
                MEMBERS.get(command.get("close").asText()).close();
            }
        }
        // The tests have ended.
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(ObjectNode line) {
        System.out.println(line);
        System.out.flush();
    }

    private static class Running extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final String topic;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private volatile boolean closing;
        private volatile long pause;

        Running(JsonNode given) {
            name = given.get("open").asText();
            topic = given.get("topic").asText();
            Properties settings = new Properties();
            settings.put("bootstrap.servers", given.get("servers").asText());
            settings.put("group.id", given.get("group").asText());
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
            settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
            String protocol = given.get("protocol").asText();
            if (protocol.equals("consumer")) {
                settings.put("group.protocol", "consumer");
            } else {
                String assignor = protocol.equals("eager") ? "RangeAssignor" : "CooperativeStickyAssignor";
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
                settings.put("session.timeout.ms", "6000");
                settings.put("heartbeat.interval.ms", "500");
            }
            consumer = new KafkaConsumer<>(settings);
            setDaemon(true);
        }

        private ObjectNode event(String event) {
            return JSON.createObjectNode().put("member", name).put("event", event);
        }

        private void tell(String what, Collection<TopicPartition> partitions) {
            ObjectNode line = event(what);
            for (TopicPartition at : partitions) {
                line.withArray("partitions").add(at.topic() + "/" + at.partition());
            }
            say(line);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit();
            tell("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell("lost", partitions);
        }

        private void commit() {
            try {
                consumer.commitSync();
            } catch (RuntimeException error) {
                // A rebalance is under way: the next commit has these offsets too.
                say(event("uncommitted").put("error", error.toString()));
            }
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(List.of(topic), this);
                while (!closing) {
                    if (pause > 0) {
                        say(event("paused"));
                        Thread.sleep(pause);
                        pause = 0;
                    }
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                    for (TopicPartition at : records.partitions()) {
                        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>(records.records(at));
                        ObjectNode line = event("read").put("partition", at.topic() + "/" + at.partition());
                        say(line.put("first", read.get(0).offset()).put("last", read.get(read.size() - 1).offset()));
                    }
                    if (!records.isEmpty()) {
                        commit();
                    }
                }
            } catch (RuntimeException | InterruptedException error) {
                say(event("failed").put("error", error.toString()));
            }
            try {
                consumer.close();
            } catch (RuntimeException error) {
                say(event("failed").put("error", error.toString()));
            }
            say(event("closed"));
        }

        void close() {
            closing = true;
        }
    }
}
