//! Turns the feature into the `cfg` that `src/barrier/sync.rs` goes by: set for all crates, as by RUSTFLAGS, it would change
//! the checkers' own dependencies.

fn main() {
    for checker in ["loom", "shuttle"] {
        if std::env::var_os(format!("CARGO_FEATURE_{}", checker.to_uppercase())).is_some() {
            println!("cargo::rustc-cfg={checker}");
        }
    }
}
