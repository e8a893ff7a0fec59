"""kafka-python: a Kafka client for tests. See driver.py."""

import kafka
import kafka.errors
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import OffsetOutOfRangeError, for_code

import driver
from driver import Refused

HUGE = 64 << 20


def refuse(result):
    """Raises what the admin client only returns, and says in more than one way."""
    if isinstance(result, int) and result:
        raise for_code(result)()
    if isinstance(result, type) and issubclass(result, Exception) and result.errno:
        raise result()
    if isinstance(result, Exception):
        raise result
    if isinstance(result, str) and result.startswith("[Error "):
        raise Refused(int(result[len("[Error ") :].split("]")[0]), result)
    if isinstance(result, str) and result.endswith("Error"):
        raise getattr(kafka.errors, result)()


def admin(f):
    def act(r):
        a = KafkaAdminClient(bootstrap_servers=r["bootstrap"])
        try:
            return f(a, r) or {}
        finally:
            a.close()

    return act


def create(a, r):
    a.create_topics({r["topic"]: {"num_partitions": r["partitions"], "replication_factor": r.get("replication", 1), "configs": r.get("configs", {})}})


def describe(a, r):
    (topic,) = a.describe_topics([r["topic"]])
    refuse(topic["error_code"])
    return {"partitions": len(topic["partitions"])}


def configs(a, r):
    found = a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"])], config_filter="all")
    (of,) = found.values()
    return {"configs": {k: v["value"] for k, v in of[r["topic"]].items()}}


def alter(a, r):
    found = a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"], r["configs"])], raise_on_unknown=False)
    for of in found.values():
        for result in of.values():
            refuse(result)


def trim(a, r):
    a.delete_records({TopicPartition(r["topic"], 0): r["offset"]})


def members(a, r):
    return {"members": len(a.describe_groups([r["group"]])[r["group"]]["members"])}


def committed(a, r):
    found = a.list_group_offsets({r["group"]: None})[r["group"]]
    return {"offsets": {str(p.partition): o.offset for p, o in found.items()}}


def forget(a, r):
    for result in a.delete_groups([r["group"]]).values():
        refuse(result)


def produce(r):
    p = KafkaProducer(
        bootstrap_servers=r["bootstrap"], compression_type=None if r["codec"] == "none" else r["codec"],
        linger_ms=5, max_request_size=HUGE, max_block_ms=5000, allow_auto_create_topics=False,
    )
    try:
        sent = [
            p.send(r["topic"], key=driver.unpack(k["key"]), value=driver.unpack(k["value"]), timestamp_ms=k["timestamp"] or None, headers=driver.headers_of(k))
            for k in r["records"]
        ]
        p.flush()
        acked = []
        for k, f in zip(r["records"], sent):
            m = f.get(timeout=30)
            acked.append({**k, "partition": m.partition, "offset": m.offset})
        return {"records": acked}
    finally:
        p.close()


def consume(r):
    c = KafkaConsumer(bootstrap_servers=r["bootstrap"], auto_offset_reset="none", fetch_max_wait_ms=200, allow_auto_create_topics=False, enable_auto_commit=False)
    try:
        return {"records": read(c, r)}
    finally:
        c.close()


def read(c, r):
    found = c.partitions_for_topic(r["topic"])
    if not found:
        raise Refused(3, "no such topic")
    parts = [TopicPartition(r["topic"], n) for n in found]
    c.assign(parts)
    ends = c.end_offsets(parts)
    start = c.beginning_offsets(parts)
    if r["do"] == "seek":
        start = {p: o.offset for p, o in c.offsets_for_times({p: r["time"] for p in parts}).items() if o is not None}
    if r["do"] == "beyond":
        start = {p: end + 1000 for p, end in ends.items()}
    waiting = {p: ends[p] for p, at in start.items() if at < ends[p] or r["do"] == "beyond"}
    c.assign(list(waiting))
    for p in waiting:
        c.seek(p, start[p])
    got = []
    while waiting:
        for p, records in c.poll(timeout_ms=1000).items():
            for k in records:
                got.append(driver.shown(k.partition, k.offset, k.timestamp, k.key, k.value, k.headers))
                if k.offset + 1 >= waiting.get(p, 1 << 62):
                    del waiting[p]
    return got


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned):
        driver.tell({"event": "assigned", "partitions": [p.partition for p in assigned]})

    def on_partitions_revoked(self, revoked):
        driver.tell({"event": "revoked", "partitions": [p.partition for p in revoked]})


def member(r):
    ways = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor, "sticky": StickyPartitionAssignor}
    c = KafkaConsumer(
        bootstrap_servers=r["bootstrap"], group_id=r["group"], auto_offset_reset="earliest", fetch_max_wait_ms=100,
        auto_commit_interval_ms=500, heartbeat_interval_ms=300, partition_assignment_strategy=[ways[r["balancer"]]],
    )
    told = []
    driver.when_told(lambda: told.append(True))
    c.subscribe([r["topic"]], listener=Listener())
    while not told:
        for records in c.poll(timeout_ms=200).values():
            for k in records:
                driver.tell({"event": "read", "partition": k.partition, "offset": k.offset})
    c.close()
    driver.tell({"event": "left"})


def code_of(e):
    if isinstance(e, OffsetOutOfRangeError):
        return 1
    return getattr(e, "errno", None) or -1


driver.serve(
    {
        "version": lambda r: {"version": kafka.__version__},
        "create": admin(create),
        "describe": admin(describe),
        "list": admin(lambda a, r: {"names": list(a.list_topics())}),
        "configs": admin(configs),
        "alter": admin(alter),
        "grow": admin(lambda a, r: a.create_partitions({r["topic"]: r["partitions"]}) and None),
        "trim": admin(trim),
        "delete": admin(lambda a, r: a.delete_topics([r["topic"]]) and None),
        "produce": produce,
        "consume": consume,
        "seek": consume,
        "beyond": consume,
        "groups": admin(lambda a, r: {"names": [g["group_id"] for g in a.list_groups()]}),
        "members": admin(members),
        "committed": admin(committed),
        "forget": admin(forget),
    },
    code_of,
    member,
)
