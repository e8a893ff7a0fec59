import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes and reads records. */
final class Records {
    private static final int HUGE = 64 << 20;

    private Records() {}

    static JsonNode produce(JsonNode r) throws Exception {
        Properties p = Driver.config(r);
        p.put("compression.type", r.path("codec").asText("none"));
        p.put("linger.ms", 5);
        p.put("max.request.size", HUGE);
        p.put("buffer.memory", HUGE);
        p.put("max.block.ms", 5000);
        p.put("request.timeout.ms", 20000);
        p.put("delivery.timeout.ms", 30000);
        String topic = Driver.text(r, "topic");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode n : r.get("records")) {
                long at = n.get("timestamp").asLong();
                ProducerRecord<byte[], byte[]> k = new ProducerRecord<>(topic, null, at == 0 ? null : at, bytes(n.get("key")), bytes(n.get("value")));
                for (JsonNode h : n.path("headers")) {
                    k.headers().add(new RecordHeader(h.get("key").asText(), bytes(h.get("value"))));
                }
                sent.add(producer.send(k));
            }
            ObjectNode out = Driver.JSON.createObjectNode();
            ArrayNode acked = out.putArray("records");
            int i = 0;
            for (Future<RecordMetadata> f : sent) {
                RecordMetadata m = f.get();
                ObjectNode n = ((ObjectNode) r.get("records").get(i++)).deepCopy();
                acked.add(n.put("partition", m.partition()).put("offset", m.offset()));
            }
            return out;
        }
    }

    /** Reads up to the ends that the partitions have now, from the start or from a time; "beyond" only tries to read where nothing is. */
    static JsonNode consume(JsonNode r) throws Exception {
        Properties p = Driver.config(r);
        p.put("auto.offset.reset", "none");
        p.put("allow.auto.create.topics", false);
        p.put("fetch.max.wait.ms", 200);
        p.put("default.api.timeout.ms", 5000);
        String topic = Driver.text(r, "topic");
        ObjectNode out = Driver.JSON.createObjectNode();
        ArrayNode records = out.putArray("records");
        try (KafkaConsumer<byte[], byte[]> c = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Map<TopicPartition, Long> waiting = start(c, topic, r);
            while (!waiting.isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> k : c.poll(Duration.ofSeconds(1))) {
                    TopicPartition at = new TopicPartition(k.topic(), k.partition());
                    Long end = waiting.get(at);
                    if (end == null) {
                        continue;
                    }
                    records.add(node(k));
                    if (k.offset() + 1 >= end) {
                        waiting.remove(at);
                    }
                }
            }
        }
        return out;
    }

    private static Map<TopicPartition, Long> start(KafkaConsumer<byte[], byte[]> c, String topic, JsonNode r) {
        List<TopicPartition> all = new ArrayList<>();
        c.partitionsFor(topic).forEach(i -> all.add(new TopicPartition(topic, i.partition())));
        if (all.isEmpty()) {
            throw new UnknownTopicOrPartitionException("no partitions of " + topic);
        }
        c.assign(all);
        Map<TopicPartition, Long> from = c.beginningOffsets(all);
        Map<TopicPartition, Long> ends = new HashMap<>(c.endOffsets(all));
        String what = r.get("do").asText();
        if (what.equals("seek")) {
            Map<TopicPartition, Long> times = new HashMap<>();
            all.forEach(p -> times.put(p, r.get("time").asLong()));
            from = new HashMap<>();
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> e : c.offsetsForTimes(times).entrySet()) {
                if (e.getValue() != null) {
                    from.put(e.getKey(), e.getValue().offset());
                }
            }
        }
        Map<TopicPartition, Long> waiting = new HashMap<>();
        for (TopicPartition p : all) {
            Long at = what.equals("beyond") ? (Long) (ends.get(p) + 1000) : from.get(p);
            if (at == null || at >= ends.get(p) && !what.equals("beyond")) {
                c.pause(List.of(p));
                c.seek(p, ends.get(p));
                continue;
            }
            waiting.put(p, ends.get(p));
            c.seek(p, at);
        }
        return waiting;
    }

    private static ObjectNode node(ConsumerRecord<byte[], byte[]> k) {
        ObjectNode n = Driver.JSON.createObjectNode();
        n.put("partition", k.partition()).put("offset", k.offset()).put("timestamp", k.timestamp());
        n.put("key", k.key()).put("value", k.value());
        ArrayNode headers = n.putArray("headers");
        for (Header h : k.headers()) {
            headers.addObject().put("key", h.key()).put("value", h.value());
        }
        return n;
    }

    private static byte[] bytes(JsonNode n) throws IOException {
        return n == null || n.isNull() ? null : n.binaryValue();
    }
}
