//! `membar`: see `membar --help`.

fn main() -> std::process::ExitCode {
    membar::cli::main()
}
