//! One member of a group until stdin ends; then it commits what it read and leaves.

use std::io::{copy, sink, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::message::Message;
use rdkafka::TopicPartitionList;
use serde_json::{json, Value};

use crate::{config, tell, text};

struct Teller;

impl ClientContext for Teller {}

impl ConsumerContext for Teller {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, r: &Rebalance<'_>) {
        if let Rebalance::Revoke(parts) = r {
            told("revoked", parts);
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, r: &Rebalance<'_>) {
        if let Rebalance::Assign(parts) = r {
            told("assigned", parts);
        }
    }
}

fn told(event: &str, parts: &TopicPartitionList) {
    let all: Vec<i32> = parts.elements().iter().map(|p| p.partition()).collect();
    tell(json!({"event": event, "partitions": all}));
}

pub fn run(r: &Value) {
    let mut conf = config(r);
    conf.set("group.id", text(r, "group"))
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "100")
        .set("auto.commit.interval.ms", "500");
    match text(r, "balancer") {
        "server" => conf.set("group.protocol", "consumer"),
        way => conf.set("partition.assignment.strategy", way).set("heartbeat.interval.ms", "300"),
    };
    let c: BaseConsumer<Teller> = conf.create_with_context(Teller).expect("a consumer");
    c.subscribe(&[text(r, "topic")]).expect("subscribe");
    let over = Arc::new(AtomicBool::new(false));
    let leave = over.clone();
    thread::spawn(move || {
        copy(&mut stdin(), &mut sink()).expect("stdin");
        leave.store(true, Ordering::Relaxed);
    });
    while !over.load(Ordering::Relaxed) {
        if let Some(m) = c.poll(Duration::from_millis(100)) {
            let m = m.expect("a record");
            tell(json!({"event": "read", "partition": m.partition(), "offset": m.offset()}));
        }
    }
    // Nothing to commit is an error here, and fine.
    let _ = c.commit_consumer_state(CommitMode::Sync);
    drop(c);
    tell(json!({"event": "left"}));
}
