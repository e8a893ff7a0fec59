//! What a request asks of the admin client.

use std::time::Duration;

use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Map, Value};

use crate::{config, text, Answer, Refusal};

const WAIT: Duration = Duration::from_secs(30);

type Admin = AdminClient<DefaultClientContext>;

fn refusal(code: RDKafkaErrorCode) -> Refusal {
    Refusal(code as i32, code.to_string())
}

/// The result of the one thing that was asked.
fn only<T>(results: Vec<Result<T, (String, RDKafkaErrorCode)>>) -> Answer {
    match results.into_iter().next() {
        Some(Ok(_)) => Ok(json!({})),
        Some(Err((_, code))) => Err(refusal(code)),
        None => Err(Refusal(-1, "no result".into())),
    }
}

pub fn act(r: &Value) -> Answer {
    let a: Admin = config(r).create()?;
    let opts = AdminOptions::new().request_timeout(Some(WAIT)).operation_timeout(Some(WAIT));
    let (topic, group) = (text(r, "topic"), text(r, "group"));
    let partitions = r["partitions"].as_i64().unwrap_or(0) as usize;
    match text(r, "do") {
        "create" => {
            let replicas = TopicReplication::Fixed(r["replication"].as_i64().unwrap_or(1) as i32);
            let mut t = NewTopic::new(topic, partitions as i32, replicas);
            for (k, v) in r["configs"].as_object().into_iter().flatten() {
                t = t.set(k, v.as_str().unwrap_or(""));
            }
            only(block_on(a.create_topics([&t], &opts))?)
        }
        "describe" => {
            let all = a.inner().fetch_metadata(Some(topic), WAIT)?;
            let t = &all.topics()[0];
            match t.error() {
                Some(e) => Err(refusal(e.into())),
                None => Ok(json!({"partitions": t.partitions().len()})),
            }
        }
        "list" => {
            let all = a.inner().fetch_metadata(None, WAIT)?;
            Ok(json!({"names": all.topics().iter().map(|t| t.name()).collect::<Vec<_>>()}))
        }
        "configs" => {
            let found = block_on(a.describe_configs([&ResourceSpecifier::Topic(topic)], &opts))?;
            match found.into_iter().next() {
                Some(Ok(of)) => {
                    let all: Map<String, Value> = of.entries.into_iter().map(|e| (e.name, json!(e.value))).collect();
                    Ok(json!({"configs": all}))
                }
                Some(Err(code)) => Err(refusal(code)),
                None => Err(Refusal(-1, "no result".into())),
            }
        }
        "alter" => {
            let mut of = AlterConfig::new(ResourceSpecifier::Topic(topic));
            for (k, v) in r["configs"].as_object().into_iter().flatten() {
                of = of.set(k, v.as_str().unwrap_or(""));
            }
            let found = block_on(a.alter_configs([&of], &opts))?;
            match found.into_iter().next() {
                Some(Err((_, code))) => Err(refusal(code)),
                _ => Ok(json!({})),
            }
        }
        "grow" => only(block_on(a.create_partitions([&NewPartitions::new(topic, partitions)], &opts))?),
        "trim" => trim(&a, topic, r["offset"].as_i64().unwrap_or(0), &opts),
        "delete" => only(block_on(a.delete_topics(&[topic], &opts))?),
        "groups" => {
            let all = a.inner().fetch_group_list(None, WAIT)?;
            Ok(json!({"names": all.groups().iter().map(|g| g.name()).collect::<Vec<_>>()}))
        }
        "members" => {
            let all = a.inner().fetch_group_list(Some(group), WAIT)?;
            Ok(json!({"members": all.groups().first().map_or(0, |g| g.members().len())}))
        }
        "committed" => committed(r, topic, group),
        "forget" => only(block_on(a.delete_groups(&[group], &opts))?),
        _ => Ok(json!({"unsupported": true})),
    }
}

fn trim(a: &Admin, topic: &str, offset: i64, opts: &AdminOptions) -> Answer {
    let mut of = TopicPartitionList::new();
    of.add_partition_offset(topic, 0, Offset::Offset(offset))?;
    for done in block_on(a.delete_records(&of, opts))?.elements() {
        done.error()?;
    }
    Ok(json!({}))
}

/// A consumer that is configured with the group, but is no member, may ask.
fn committed(r: &Value, topic: &str, group: &str) -> Answer {
    let c: BaseConsumer = config(r).set("group.id", group).create()?;
    let all = c.fetch_metadata(Some(topic), WAIT)?;
    let mut of = TopicPartitionList::new();
    for p in all.topics()[0].partitions() {
        of.add_partition(topic, p.id());
    }
    let mut offsets = Map::new();
    for o in c.committed_offsets(of, WAIT)?.elements() {
        if let Offset::Offset(at) = o.offset() {
            offsets.insert(o.partition().to_string(), json!(at));
        }
    }
    Ok(json!({"offsets": offsets}))
}
