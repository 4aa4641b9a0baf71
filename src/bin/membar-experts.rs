//! `membar-experts`: see `membar-experts --help`.

fn main() -> std::process::ExitCode {
    membar::cli::main()
}
