//! rdkafka as a client for tests: reads requests from stdin, one JSON object a
//! line, and answers each with one line. ../field/driver_test.go says what is
//! asked and answered.

mod admin;
mod member;
mod records;

use std::io::{stdin, stdout, Write};

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::util::get_rdkafka_version;
use serde_json::{json, Value};

/// An error with its code: Kafka's, librdkafka's own below 0, or -1.
pub struct Refusal(pub i32, pub String);

impl From<KafkaError> for Refusal {
    fn from(e: KafkaError) -> Self {
        Refusal(e.rdkafka_error_code().map_or(-1, |c| c as i32), e.to_string())
    }
}

pub type Answer = Result<Value, Refusal>;

pub fn text<'a>(r: &'a Value, field: &str) -> &'a str {
    r[field].as_str().unwrap_or("")
}

pub fn config(r: &Value) -> ClientConfig {
    let mut c = ClientConfig::new();
    c.set("bootstrap.servers", text(r, "bootstrap")).set("client.id", "rdkafka-driver");
    c
}

pub fn tell(v: Value) {
    let mut out = stdout().lock();
    writeln!(out, "{v}").expect("stdout");
}

fn act(r: &Value) -> Answer {
    match text(r, "do") {
        "version" => Ok(json!({"version": format!("{} (librdkafka {})", env!("RDKAFKA"), get_rdkafka_version().1)})),
        "produce" => records::produce(r),
        "consume" | "seek" | "beyond" => records::consume(r),
        _ => admin::act(r),
    }
}

fn main() {
    let mut line = String::new();
    // Not lines(), which would keep stdin from the member.
    while stdin().read_line(&mut line).expect("stdin") > 0 {
        let r: Value = serde_json::from_str(&line).expect("a request");
        line.clear();
        if text(&r, "do") == "member" {
            return member::run(&r);
        }
        tell(act(&r).unwrap_or_else(|Refusal(code, text)| json!({"error": {"code": code, "text": text}})));
    }
}
