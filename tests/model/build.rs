//! Sets the `cfg` that `src/barrier/sync.rs` goes by, for this package alone.

fn main() {
    println!("cargo::rustc-cfg=model");
}
