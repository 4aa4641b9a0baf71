//! `membar-latency`: see `membar-latency --help`.

fn main() -> std::process::ExitCode {
    membar::cli::main()
}
