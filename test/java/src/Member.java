import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One member of a group until stdin ends; then it commits what it read and leaves. */
final class Member implements ConsumerRebalanceListener {
    private Member() {}

    static void run(JsonNode r, BufferedReader in) throws Exception {
        Properties p = Driver.config(r);
        p.put("group.id", Driver.text(r, "group"));
        p.put("auto.offset.reset", "earliest");
        p.put("fetch.max.wait.ms", 100);
        p.put("auto.commit.interval.ms", 500);
        String way = Driver.text(r, "balancer");
        if (way.startsWith("server")) {
            p.put("group.protocol", "consumer");
        } else {
            p.put("heartbeat.interval.ms", 300);
            p.put("partition.assignment.strategy", switch (way) {
                case "range" -> "org.apache.kafka.clients.consumer.RangeAssignor";
                case "cooperative-sticky" -> "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
                default -> throw new IllegalArgumentException("balancer " + way);
            });
        }
        if (!Driver.text(r, "instance").isEmpty()) {
            p.put("group.instance.id", Driver.text(r, "instance"));
        }
        try (KafkaConsumer<byte[], byte[]> c = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Thread told = new Thread(() -> {
                try {
                    while (in.readLine() != null) {
                        continue;
                    }
                } catch (IOException e) {
                    System.err.println("stdin: " + e);
                }
                c.wakeup();
            });
            told.setDaemon(true);
            told.start();
            if (way.endsWith("pattern")) {
                c.subscribe(new SubscriptionPattern(Driver.text(r, "topic").replaceFirst("..$", ".+")), new Member());
            } else {
                c.subscribe(List.of(Driver.text(r, "topic")), new Member());
            }
            while (true) {
                for (ConsumerRecord<byte[], byte[]> k : c.poll(Duration.ofSeconds(10))) {
                    ObjectNode e = Driver.JSON.createObjectNode();
                    Driver.print(e.put("event", "read").put("partition", k.partition()).put("offset", k.offset()));
                }
            }
        } catch (WakeupException e) {
            Driver.print(Driver.JSON.createObjectNode().put("event", "left"));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        tell("revoked", partitions);
    }

    private static void tell(String event, Collection<TopicPartition> partitions) {
        ObjectNode e = Driver.JSON.createObjectNode().put("event", event);
        ArrayNode list = e.putArray("partitions");
        partitions.forEach(p -> list.add(p.partition()));
        Driver.print(e);
    }
}
