import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What a request asks of Admin. */
final class Admins {
    private Admins() {}

    static JsonNode act(String what, JsonNode r) throws Exception {
        ObjectNode out = Driver.JSON.createObjectNode();
        String topic = Driver.text(r, "topic");
        String group = Driver.text(r, "group");
        try (Admin admin = Admin.create(Driver.config(r))) {
            switch (what) {
                case "create":
                    NewTopic t = new NewTopic(topic, r.get("partitions").asInt(), (short) r.path("replication").asInt(1));
                    t.configs(configs(r));
                    admin.createTopics(List.of(t), new CreateTopicsOptions().validateOnly(true)).all().get();
                    admin.createTopics(List.of(t)).all().get();
                    break;
                case "describe":
                    TopicDescription d = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                    // By id is another request, and must come to the same.
                    TopicCollection byId = TopicCollection.ofTopicIds(List.of(d.topicId()));
                    out.put("partitions", admin.describeTopics(byId).allTopicIds().get().get(d.topicId()).partitions().size());
                    break;
                case "list":
                    admin.listTopics().names().get().forEach(out.putArray("names")::add);
                    break;
                case "grow":
                    admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(r.get("partitions").asInt()))).all().get();
                    break;
                case "delete":
                    admin.deleteTopics(List.of(topic)).all().get();
                    break;
                case "configs":
                    ConfigResource named = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                    ObjectNode all = out.putObject("configs");
                    for (ConfigEntry e : admin.describeConfigs(List.of(named)).all().get().get(named).entries()) {
                        all.put(e.name(), e.value());
                    }
                    break;
                case "alter":
                    alter(admin, topic, configs(r));
                    break;
                case "trim":
                    TopicPartition p = new TopicPartition(topic, 0);
                    admin.deleteRecords(Map.of(p, RecordsToDelete.beforeOffset(r.get("offset").asLong()))).all().get();
                    break;
                default:
                    groups(admin, what, group, out);
            }
        }
        return out;
    }

    private static void groups(Admin admin, String what, String group, ObjectNode out) throws Exception {
        switch (what) {
            case "groups":
                for (GroupListing g : admin.listGroups().all().get()) {
                    out.withArray("names").add(g.groupId());
                }
                break;
            case "members":
                out.put("members", admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size());
                break;
            case "committed":
                ObjectNode offsets = out.putObject("offsets");
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                        .forEach((p, o) -> offsets.put(String.valueOf(p.partition()), o.offset()));
                break;
            case "forget":
                admin.deleteConsumerGroups(List.of(group)).all().get();
                break;
            default:
                out.put("unsupported", true);
        }
    }

    private static void alter(Admin admin, String topic, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> ops = new ArrayList<>();
        configs.forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), ops)).all().get();
    }

    private static Map<String, String> configs(JsonNode r) {
        Map<String, String> m = new HashMap<>();
        r.path("configs").properties().forEach(e -> m.put(e.getKey(), e.getValue().asText()));
        return m;
    }
}
