"""confluent-kafka: a Kafka client for tests, on librdkafka. See driver.py."""

import confluent_kafka as ck
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

import driver

HUGE = 64 << 20


def admin(f):
    def act(r):
        a = AdminClient({"bootstrap.servers": r["bootstrap"]})  # held until the futures are done
        return f(a, r) or {}

    return act


def only(futures):
    """The result of the one thing that was asked."""
    (f,) = futures.values()
    return f.result(30)


def topic_resource(r):
    return ConfigResource(ConfigResource.Type.TOPIC, r["topic"])


def create(a, r):
    t = NewTopic(r["topic"], r["partitions"], r.get("replication", 1), config=r.get("configs", {}))
    only(a.create_topics([t]))


def describe(a, r):
    d = only(a.describe_topics(ck.TopicCollection([r["topic"]])))
    return {"partitions": len(d.partitions)}


def configs(a, r):
    return {"configs": {k: e.value for k, e in only(a.describe_configs([topic_resource(r)])).items()}}


def alter(a, r):
    of = topic_resource(r)
    for k, v in r["configs"].items():
        of.add_incremental_config(ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET))
    only(a.incremental_alter_configs([of]))


def grow(a, r):
    only(a.create_partitions([NewPartitions(r["topic"], r["partitions"])]))


def trim(a, r):
    only(a.delete_records([TopicPartition(r["topic"], 0, r["offset"])]))


def delete(a, r):
    only(a.delete_topics([r["topic"]]))


def groups(a, r):
    return {"names": [g.group_id for g in a.list_consumer_groups().result(30).valid]}


def members(a, r):
    return {"members": len(only(a.describe_consumer_groups([r["group"]])).members)}


def committed(a, r):
    found = only(a.list_consumer_group_offsets([ConsumerGroupTopicPartitions(r["group"])]))
    return {"offsets": {str(p.partition): p.offset for p in found.topic_partitions}}


def forget(a, r):
    only(a.delete_consumer_groups([r["group"]]))


def produce(r):
    p = Producer({
        "bootstrap.servers": r["bootstrap"], "compression.type": r["codec"], "enable.idempotence": True, "linger.ms": 5,
        "message.max.bytes": HUGE, "message.timeout.ms": 20000, "topic.metadata.propagation.max.ms": 1000, "allow.auto.create.topics": False,
    })
    acked = []

    def done(k):
        def report(err, m):
            acked.append((err, {**k, "partition": m.partition(), "offset": m.offset()}))

        return report

    for k in r["records"]:
        p.produce(r["topic"], key=driver.unpack(k["key"]), value=driver.unpack(k["value"]), timestamp=k["timestamp"], headers=driver.headers_of(k), on_delivery=done(k))
    p.flush(60)
    for err, _ in acked:
        if err is not None:
            raise KafkaException(err)
    return {"records": [k for _, k in acked]}


def consume(r):
    c = Consumer({
        "bootstrap.servers": r["bootstrap"], "group.id": "unused", "auto.offset.reset": "error", "enable.auto.commit": False,
        "fetch.wait.max.ms": 200, "allow.auto.create.topics": False,
    })
    try:
        return {"records": read(c, r)}
    finally:
        c.close()


def read(c, r):
    found = c.list_topics(r["topic"], 30).topics[r["topic"]]
    if found.error is not None:
        raise KafkaException(found.error)
    start, ends = {}, {}
    for n in found.partitions:
        start[n], ends[n] = c.get_watermark_offsets(TopicPartition(r["topic"], n), 30)
    if r["do"] == "seek":
        start = {p.partition: p.offset for p in c.offsets_for_times([TopicPartition(r["topic"], n, r["time"]) for n in ends], 30)}
    if r["do"] == "beyond":
        start = {n: end + 1000 for n, end in ends.items()}
    waiting = {n: ends[n] for n, at in start.items() if 0 <= at < ends[n] or r["do"] == "beyond"}
    c.assign([TopicPartition(r["topic"], n, start[n]) for n in waiting])
    got = []
    while waiting:
        for k in c.consume(1000, 1):
            if k.error() is not None:
                raise KafkaException(k.error())
            got.append(driver.shown(k.partition(), k.offset(), k.timestamp()[1], k.key(), k.value(), k.headers()))
            if k.offset() + 1 >= waiting.get(k.partition(), 1 << 62):
                del waiting[k.partition()]
    return got


def member(r):
    told = []
    conf = {"bootstrap.servers": r["bootstrap"], "group.id": r["group"], "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, "auto.commit.interval.ms": 500}
    topic = r["topic"]
    if r["balancer"].startswith("server"):
        conf["group.protocol"] = "consumer"
    else:
        conf |= {"partition.assignment.strategy": r["balancer"], "heartbeat.interval.ms": 300}
    c = Consumer(conf)
    driver.when_told(lambda: told.append(True))

    def tell(event):
        return lambda _, parts: driver.tell({"event": event, "partitions": [p.partition for p in parts]})

    if r["balancer"].endswith("pattern"):
        topic = f"^{topic[:-2]}.+"
    c.subscribe([topic], on_assign=tell("assigned"), on_revoke=tell("revoked"), on_lost=tell("revoked"))
    while not told:
        for k in c.consume(1000, 0.1):
            if k.error() is not None:
                raise KafkaException(k.error())
            driver.tell({"event": "read", "partition": k.partition(), "offset": k.offset()})
    c.close()
    driver.tell({"event": "left"})


def code_of(e):
    if isinstance(e, KafkaException):
        # librdkafka has codes of its own below 0.
        return e.args[0].code()
    return -1


driver.serve(
    {
        "version": lambda r: {"version": f"{ck.__version__} (librdkafka {ck.libversion()[0]})"},
        "create": admin(create),
        "describe": admin(describe),
        "list": admin(lambda a, r: {"names": list(a.list_topics(timeout=30).topics)}),
        "configs": admin(configs),
        "alter": admin(alter),
        "grow": admin(grow),
        "trim": admin(trim),
        "delete": admin(delete),
        "produce": produce,
        "consume": consume,
        "seek": consume,
        "beyond": consume,
        "groups": admin(groups),
        "members": admin(members),
        "committed": admin(committed),
        "forget": admin(forget),
    },
    code_of,
    member,
)
