// Tells the version of rdkafka that is locked.
fn main() {
    let lock = std::fs::read_to_string("Cargo.lock").expect("Cargo.lock");
    let at = lock.find("name = \"rdkafka\"\n").expect("rdkafka in Cargo.lock");
    let version = lock[at..].split('"').nth(3).expect("its version");
    println!("cargo:rustc-env=RDKAFKA={version}");
    println!("cargo:rerun-if-changed=Cargo.lock");
}
