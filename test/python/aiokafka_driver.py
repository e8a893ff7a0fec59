"""aiokafka: a Kafka client for tests. See driver.py."""

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import OffsetOutOfRangeError, for_code

import driver
from driver import Refused

HUGE = 64 << 20


def refuse(code):
    if code:
        raise for_code(code)()


def admin(f):
    """The admin client mostly returns responses as they are: f looks for their errors."""

    async def run(r):
        a = AIOKafkaAdminClient(bootstrap_servers=r["bootstrap"])
        await a.start()
        try:
            return await f(a, r) or {}
        finally:
            await a.close()

    return lambda r: asyncio.run(run(r))


async def create(a, r):
    t = NewTopic(r["topic"], r["partitions"], r.get("replication", 1), topic_configs=r.get("configs", {}))
    refuse((await a.create_topics([t])).topic_errors[0][1])


async def describe(a, r):
    (topic,) = await a.describe_topics([r["topic"]])
    refuse(topic["error_code"])
    return {"partitions": len(topic["partitions"])}


async def names(a, r):
    return {"names": await a.list_topics()}


async def configs(a, r):
    (response,) = await a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"])])
    code, _, _, _, entries = response.resources[0]
    refuse(code)
    return {"configs": {e[0]: e[1] for e in entries}}


async def alter(a, r):
    (response,) = await a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"], r["configs"])])
    refuse(response.resources[0][0])


async def grow(a, r):
    refuse((await a.create_partitions({r["topic"]: NewPartitions(r["partitions"])})).topic_errors[0][1])


async def trim(a, r):
    await a.delete_records({TopicPartition(r["topic"], 0): RecordsToDelete(before_offset=r["offset"])})


async def delete(a, r):
    refuse((await a.delete_topics([r["topic"]])).topic_error_codes[0][1])


async def groups(a, r):
    return {"names": [g[0] for g in await a.list_consumer_groups()]}


async def members(a, r):
    (response,) = await a.describe_consumer_groups([r["group"]])
    return {"members": len(response.groups[0][5])}


async def committed(a, r):
    found = await a.list_consumer_group_offsets(r["group"])
    return {"offsets": {str(p.partition): o.offset for p, o in found.items()}}


def forget(r):
    """There is no call for it: said so that the group case knows."""
    return {"unsupported": True}


async def produce(r):
    p = AIOKafkaProducer(
        bootstrap_servers=r["bootstrap"], compression_type=None if r["codec"] == "none" else r["codec"], enable_idempotence=True,
        linger_ms=5, max_request_size=HUGE, request_timeout_ms=5000,
    )
    await p.start()
    try:
        sent = [
            await p.send(r["topic"], key=driver.unpack(k["key"]), value=driver.unpack(k["value"]), timestamp_ms=k["timestamp"] or None, headers=driver.headers_of(k))
            for k in r["records"]
        ]
        acked = []
        for k, f in zip(r["records"], sent):
            m = await f
            acked.append({**k, "partition": m.partition, "offset": m.offset})
        return {"records": acked}
    finally:
        await p.stop()


async def consume(r):
    c = AIOKafkaConsumer(bootstrap_servers=r["bootstrap"], auto_offset_reset="none", fetch_max_wait_ms=200, enable_auto_commit=False)
    await c.start()
    try:
        return {"records": await read(c, r)}
    finally:
        await c.stop()


async def read(c, r):
    await c._client.force_metadata_update()  # partitions_for_topic knows only what was asked for
    c._client.add_topic(r["topic"])
    await c._client.force_metadata_update()
    found = c.partitions_for_topic(r["topic"])
    if not found:
        raise Refused(3, "no such topic")
    parts = [TopicPartition(r["topic"], n) for n in found]
    ends = await c.end_offsets(parts)
    start = await c.beginning_offsets(parts)
    if r["do"] == "seek":
        start = {p: o.offset for p, o in (await c.offsets_for_times({p: r["time"] for p in parts})).items() if o is not None}
    if r["do"] == "beyond":
        start = {p: end + 1000 for p, end in ends.items()}
    waiting = {p: ends[p] for p, at in start.items() if at < ends[p] or r["do"] == "beyond"}
    if not waiting:
        return []
    c.assign(list(waiting))
    for p in waiting:
        c.seek(p, start[p])
    got = []
    while waiting:
        for p, records in (await c.getmany(timeout_ms=1000)).items():
            for k in records:
                got.append(driver.shown(k.partition, k.offset, k.timestamp, k.key, k.value, k.headers))
                if k.offset + 1 >= waiting.get(p, 1 << 62):
                    del waiting[p]
    return got


class Listener(ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned):
        driver.tell({"event": "assigned", "partitions": [p.partition for p in assigned]})

    async def on_partitions_revoked(self, revoked):
        driver.tell({"event": "revoked", "partitions": [p.partition for p in revoked]})


async def be_member(r):
    ways = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor, "sticky": StickyPartitionAssignor}
    c = AIOKafkaConsumer(
        bootstrap_servers=r["bootstrap"], group_id=r["group"], auto_offset_reset="earliest", fetch_max_wait_ms=100,
        auto_commit_interval_ms=500, heartbeat_interval_ms=300, partition_assignment_strategy=[ways[r["balancer"]]],
    )
    told = []
    driver.when_told(lambda: told.append(True))
    c.subscribe([r["topic"]], listener=Listener())
    await c.start()
    while not told:
        for records in (await c.getmany(timeout_ms=200)).values():
            for k in records:
                driver.tell({"event": "read", "partition": k.partition, "offset": k.offset})
    await c.stop()
    driver.tell({"event": "left"})


def code_of(e):
    if isinstance(e, OffsetOutOfRangeError):
        return 1
    return getattr(e, "errno", None) or -1


driver.serve(
    {
        "version": lambda r: {"version": aiokafka.__version__},
        "create": admin(create),
        "describe": admin(describe),
        "list": admin(names),
        "configs": admin(configs),
        "alter": admin(alter),
        "grow": admin(grow),
        "trim": admin(trim),
        "delete": admin(delete),
        "produce": lambda r: asyncio.run(produce(r)),
        "consume": lambda r: asyncio.run(consume(r)),
        "seek": lambda r: asyncio.run(consume(r)),
        "beyond": lambda r: asyncio.run(consume(r)),
        "groups": admin(groups),
        "members": admin(members),
        "committed": admin(committed),
        "forget": forget,
    },
    code_of,
    lambda r: asyncio.run(be_member(r)),
)
