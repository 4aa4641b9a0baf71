//! `membar-barrier`: see `membar-barrier --help`.

fn main() -> std::process::ExitCode {
    membar::cli::main()
}
