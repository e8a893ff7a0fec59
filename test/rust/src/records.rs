//! Writes and reads records.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

use crate::{config, text, Answer, Refusal};

const WAIT: Duration = Duration::from_secs(30);

fn unpack(v: &Value) -> Option<Vec<u8>> {
    v.as_str().map(|s| STANDARD.decode(s).expect("base64"))
}

fn pack(b: Option<&[u8]>) -> Value {
    b.map_or(Value::Null, |b| json!(STANDARD.encode(b)))
}

/// Keeps what was acknowledged, by the place in the request.
#[derive(Clone, Default)]
struct Acks(Arc<Mutex<Vec<(usize, Result<(i32, i64), KafkaError>)>>>);

impl ClientContext for Acks {}

impl ProducerContext for Acks {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, i: Self::DeliveryOpaque) {
        let at = match result {
            Ok(m) => Ok((m.partition(), m.offset())),
            Err((e, _)) => Err(e.clone()),
        };
        self.0.lock().expect("acks").push((*i, at));
    }
}

pub fn produce(r: &Value) -> Answer {
    let acks = Acks::default();
    let p: BaseProducer<Acks> = config(r)
        .set("compression.type", text(r, "codec"))
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("message.max.bytes", "67108864")
        .set("message.timeout.ms", "20000")
        .set("topic.metadata.propagation.max.ms", "1000")
        .set("allow.auto.create.topics", "false")
        .create_with_context(acks.clone())?;
    let records = r["records"].as_array().cloned().unwrap_or_default();
    for (i, k) in records.iter().enumerate() {
        let (key, value) = (unpack(&k["key"]), unpack(&k["value"]));
        let mut headers = OwnedHeaders::new();
        for h in k["headers"].as_array().unwrap_or(&vec![]) {
            headers = headers.insert(Header { key: text(h, "key"), value: unpack(&h["value"]).as_ref() });
        }
        let mut one = BaseRecord::<Vec<u8>, Vec<u8>, Box<usize>>::with_opaque_to(text(r, "topic"), Box::new(i)).headers(headers);
        if let Some(at) = k["timestamp"].as_i64().filter(|at| *at != 0) {
            one = one.timestamp(at);
        }
        if let Some(key) = &key {
            one = one.key(key);
        }
        if let Some(value) = &value {
            one = one.payload(value);
        }
        p.send(one).map_err(|(e, _)| e)?;
    }
    p.flush(WAIT)?;
    let mut out = records;
    for (i, at) in acks.0.lock().expect("acks").drain(..) {
        let (partition, offset) = at?;
        out[i]["partition"] = json!(partition);
        out[i]["offset"] = json!(offset);
    }
    Ok(json!({"records": out}))
}

pub fn consume(r: &Value) -> Answer {
    let c: BaseConsumer = config(r)
        .set("group.id", "unused")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "200")
        .set("allow.auto.create.topics", "false")
        .create()?;
    let topic = text(r, "topic");
    let all = c.fetch_metadata(Some(topic), WAIT)?;
    if let Some(e) = all.topics()[0].error() {
        let code: rdkafka::error::RDKafkaErrorCode = e.into();
        return Err(Refusal(code as i32, code.to_string()));
    }
    let mut times = TopicPartitionList::new();
    let (mut starts, mut waiting) = (HashMap::new(), HashMap::new());
    for p in all.topics()[0].partitions() {
        let (low, high) = c.fetch_watermarks(topic, p.id(), WAIT)?;
        starts.insert(p.id(), if text(r, "do") == "beyond" { high + 1000 } else { low });
        waiting.insert(p.id(), high);
        times.add_partition_offset(topic, p.id(), Offset::Offset(r["time"].as_i64().unwrap_or(0)))?;
    }
    if text(r, "do") == "seek" {
        starts.clear();
        for o in c.offsets_for_times(times, WAIT)?.elements() {
            if let Offset::Offset(at) = o.offset() {
                starts.insert(o.partition(), at);
            }
        }
    }
    let beyond = text(r, "do") == "beyond";
    waiting.retain(|p, end| beyond || starts.get(p).is_some_and(|at| at < end));
    let mut from = TopicPartitionList::new();
    for p in waiting.keys() {
        from.add_partition_offset(topic, *p, Offset::Offset(starts[p]))?;
    }
    c.assign(&from)?;
    let mut got = vec![];
    while !waiting.is_empty() {
        let Some(m) = c.poll(Duration::from_secs(1)) else { continue };
        let m = m?;
        got.push(shown(&m));
        if waiting.get(&m.partition()).is_some_and(|end| m.offset() + 1 >= *end) {
            waiting.remove(&m.partition());
        }
    }
    Ok(json!({"records": got}))
}

fn shown(m: &impl Message) -> Value {
    let headers: Vec<Value> = m
        .headers()
        .map(|all| all.iter().map(|h| json!({"key": h.key, "value": pack(h.value)})).collect())
        .unwrap_or_default();
    json!({
        "partition": m.partition(),
        "offset": m.offset(),
        "timestamp": m.timestamp().to_millis(),
        "key": pack(m.key()),
        "value": pack(m.payload()),
        "headers": headers,
    })
}
