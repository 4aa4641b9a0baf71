//! `membar-stream`: see `membar-stream --help`.

fn main() -> std::process::ExitCode {
    membar::cli::main()
}
